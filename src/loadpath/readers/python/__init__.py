"""Python: tracebacks, environments, frameworks' own messages."""
