"""loadpath: follow a model's load path from checkpoint to first token, and name what broke."""

__version__ = "0.1.0"
