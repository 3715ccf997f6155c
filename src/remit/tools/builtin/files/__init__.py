"""The tools `read`, `write` and `edit`."""
