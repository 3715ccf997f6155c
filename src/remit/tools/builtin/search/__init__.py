"""The tools `ls`, `glob` and `grep`."""
