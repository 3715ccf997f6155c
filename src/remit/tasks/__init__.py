"""Stopping: waits that can be ended at once, clocks, and code that is not ours, which may be left behind."""
