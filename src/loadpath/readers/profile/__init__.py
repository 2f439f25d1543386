"""Profilers' exports."""
