"""A process that runs a batch: each request adds a line to a file, and each delivered row a line to another.

python batch_driver.py STORE FOLDER ROWS TOTAL
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import remit.stores.owner as owner

if __name__ == "__main__":
    # Before the writer is imported, which copies them.
    owner.LEASE_S, owner.HEARTBEAT_S, owner.SAFE_S = 2.0, 0.3, 1.5

from remit import Agent, Call, Limits, Reply, Request, batch, tool


@tool(tier="observe")
async def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


LEAD = Agent("lead", tools=[look])
TURNS = 3


class Slow:
    """Writes a line for each request before it replies, as a provider that counts would."""

    name = "slow"

    def __init__(self, path: Path) -> None:
        self.path = path

    async def reply(self, request: Request, emit: object) -> Reply:
        with self.path.open("a", encoding="ascii") as file:
            file.write(f"{request.run_id} {os.getpid()}\n")
        await asyncio.sleep(0.02)
        turn = len(request.messages) // 2 + 1
        if turn < TURNS:
            return Reply(calls=(Call(f"c{turn}", "look", {"n": turn}),))
        return Reply("done")


async def main() -> None:
    store, place, rows, total = sys.argv[1:]
    folder = Path(place)
    async with batch(
        LEAD,
        [f"row {n}" for n in range(int(rows))],
        id="killed",
        store=store,
        model=Slow(folder / "requests"),
        limits=Limits(requests=TURNS),
        total=Limits(requests=int(total)),
        concurrency=8,
    ) as job:
        async for item in job.outcomes():
            with (folder / f"rows-{os.getpid()}").open("a", encoding="ascii") as file:
                file.write(f"{item.number} {item.outcome.ok}\n")
        summary = job.summary
        await job.outcome()
    (folder / "summary").write_text(f"{summary.requests} {summary.by_status}", encoding="ascii")


if __name__ == "__main__":
    asyncio.run(main())
