"""A server built with the package's own server side, which uses the newest protocol, over stdio or HTTP."""

from __future__ import annotations

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

stopped: list[str] = []


def make() -> MCPServer:
    made = MCPServer("packaged")

    @made.tool()
    async def dig(depth: int, ctx: Context) -> dict[str, int]:
        """Dig."""
        await ctx.report_progress(1, 2, "digging")
        return {"depth": depth}

    @made.tool()
    async def rest() -> str:
        """Rest until it is cancelled."""
        try:
            await anyio.sleep(60)
        except BaseException:
            stopped.append("rest")
            raise
        return "rested"

    @made.tool()
    async def count() -> str:
        """How many calls were cancelled."""
        return str(len(stopped))

    @made.tool()
    async def where(ctx: Context) -> types.CallToolResult | types.InputRequiredResult:
        """The client's roots, which need a second round."""
        if ctx.input_responses is None:
            asked: types.InputRequests = {"roots": types.ListRootsRequest()}
            return types.InputRequiredResult(input_requests=asked, request_state="second")
        answer = ctx.input_responses["roots"]
        assert isinstance(answer, types.ListRootsResult)
        said = f"{ctx.request_state}: {answer.roots[0].uri}"
        return types.CallToolResult(content=[types.TextContent(text=said)])

    @made.tool()
    async def who() -> types.InputRequiredResult:
        """Asks a person."""
        params = types.ElicitRequestFormParams(
            message="Who are you?", requested_schema={"type": "object", "properties": {}}
        )
        return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=params)})

    return made


if __name__ == "__main__":
    make().run("stdio")
