"""A live machine, layer by layer."""
