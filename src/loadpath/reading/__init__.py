"""The `read` service: sources → captures → facts → report."""
