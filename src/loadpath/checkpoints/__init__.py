"""Model files as they lie on disk or on the hub → shapes and stored tensors, without loading any weight."""
