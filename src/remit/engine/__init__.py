"""How trees run: the ways in, and below them budget, tree, run and delegation."""
