"""What measurements of a live server show: benchmarks, readiness."""
