"""Memory that does not suffice: the KV cache, weights, passes, graphs, the host's own."""
