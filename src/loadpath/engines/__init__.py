"""One folder or file an engine: all that is known of it."""
