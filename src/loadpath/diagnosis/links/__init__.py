"""What joins GPUs and nodes."""
