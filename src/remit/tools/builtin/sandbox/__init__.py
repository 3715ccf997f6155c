"""The sandbox of commands and file tools: bubblewrap, and protected paths."""
