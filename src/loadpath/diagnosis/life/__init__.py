"""A server's life: its start, its serving, its end."""
