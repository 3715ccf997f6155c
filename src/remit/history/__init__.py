"""Rebuilds trees from their events, and redacts secrets. No side effects."""
