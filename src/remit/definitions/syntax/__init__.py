"""Front matter and TOML as people write them, read into values that know their line."""
