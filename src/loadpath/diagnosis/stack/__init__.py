"""The stack from driver to framework: versions, compiled code, libraries, model and engine."""
