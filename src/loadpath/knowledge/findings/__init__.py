"""Tables of findings, one TOML file a boundary or engine: data only, read by `loadpath.knowledge.tables`."""
