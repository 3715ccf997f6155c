"""Runs trees: `run`, `start` and `resume` are here; budget, tree, run and delegation are below."""
