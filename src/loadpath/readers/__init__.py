"""One file a capture format: lines → facts."""
