"""`ls`, `glob` and `grep`."""
