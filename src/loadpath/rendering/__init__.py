"""A Report as terminal text, JSON, Markdown or HTML. Nothing here judges or computes."""
