"""What a profile shows."""
