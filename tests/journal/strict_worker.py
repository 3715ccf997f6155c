"""A process that runs a strict tree with a short lease: each request adds a line to a file.

python strict_worker.py STORE FILE strict|loose
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import remit.stores.owner as owner

if __name__ == "__main__":
    # Before the writer is imported, which copies them.
    owner.LEASE_S, owner.HEARTBEAT_S, owner.SAFE_S = 1.0, 0.2, 0.8

from remit import Agent, Call, Limits, Reply, Request, run, tool


@tool(tier="observe")
async def look() -> str:
    """Look."""
    return "seen"


LEAD = Agent("lead", tools=[look])


class Endless:
    """Writes the id of its process for each request, and asks for another call."""

    name = "endless"

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    async def reply(self, request: Request, emit: object) -> Reply:
        with self.path.open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        await asyncio.sleep(0.002)
        return Reply(calls=(Call("c", "look", {"n": len(request.messages)}),))


async def main() -> None:
    store, path, mode = sys.argv[1:]
    await run(
        LEAD,
        "go",
        model=Endless(path),
        store=store,
        run_id="frozen",
        strict=mode == "strict",
        limits=Limits(turns=100_000, seconds=None),
    )


if __name__ == "__main__":
    asyncio.run(main())
