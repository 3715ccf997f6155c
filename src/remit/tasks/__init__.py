"""Stopping work: interruptible waits, deadlines, signals, and running foreign code that may be abandoned."""
