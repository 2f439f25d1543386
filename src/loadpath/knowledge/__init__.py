"""Tables as data, and their typed loaders."""
