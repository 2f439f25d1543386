"""Container engines, their configuration, Kubernetes."""
