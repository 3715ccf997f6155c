"""MCP servers as tools: `Agent(tools=["read", McpServer("files", command="npx", args=[...])])`.

The first run that needs a server starts it, or connects to it, once per tree. The `mcp` package is imported then.
"""

from __future__ import annotations

from remit.tools.mcp.config import Servers, read_mcp_json, read_servers
from remit.tools.mcp.server import McpServer

__all__ = ["McpServer", "Servers", "read_mcp_json", "read_servers"]
