"""Starts programs, reads their output, and ends them with all their descendants: for `terminal` and MCP servers."""
