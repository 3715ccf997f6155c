"""Front matter, TOML and JSON as people write them, read into values that know their line."""
