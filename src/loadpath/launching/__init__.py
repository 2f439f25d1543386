"""The files that start an engine, written from the settings of a plan; every line carries its reason."""
