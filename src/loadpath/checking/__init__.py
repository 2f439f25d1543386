"""A live machine, checked layer by layer: probes, then the same readers and rules as for a file."""
