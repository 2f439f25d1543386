"""Results of benchmark tools and of our own measurements."""
