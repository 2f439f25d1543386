"""Requests to a live server, measured: the load, the clock, the statistics. What the figures mean is judged elsewhere."""
