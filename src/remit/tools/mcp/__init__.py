"""MCP servers as tools: `Agent(tools=["read", McpServer("files", command="npx", args=[...])])`.

A server is started, or connected to, once per tree, by the first run that has it. The `mcp` package is imported then.
"""

from __future__ import annotations

from remit.tools.mcp.config import Servers, read_mcp_json, read_servers
from remit.tools.mcp.server import McpServer

__all__ = ["McpServer", "Servers", "read_mcp_json", "read_servers"]
