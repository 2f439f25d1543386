"""Rules: facts → findings. One file a boundary or phase; see `registry` for all of them."""
