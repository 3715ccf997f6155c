"""From what was typed to a tree that runs, is followed, asks, and ends in an answer."""
