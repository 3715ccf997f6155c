"""Delegation: the one path a child takes, and the three tools a model sees of it."""
