"""Many rows, one tree each: `batch()`, the cap over all trees, and what a batch recorded.

A batch is itself a tree: its root is a program, and the result of each row is a recorded step (docs/decisions/0045).
"""
