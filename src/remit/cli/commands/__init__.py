"""One module per command; `cli/main.py` has the list."""
