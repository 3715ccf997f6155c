"""Programs that are started, heard and ended as a whole: for `terminal` and for MCP servers."""
