"""What NVIDIA's driver and its other tools print."""
