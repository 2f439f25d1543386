"""Containers and their limits: injection, CDI, runtimes, shared memory, probes, exits."""
