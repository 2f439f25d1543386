"""The host: its kernel, bus, limits, memory."""
