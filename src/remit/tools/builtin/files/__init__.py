"""`read`, `write` and `edit`."""
