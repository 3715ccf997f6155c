"""What the journal costs: 1,000 children in one response, with SQLite and without, in one process.

    python benchmarks/journal.py [children] [rounds]

Prints medians and ratios. The model takes 50 ms for every reply; nothing else is simulated. The rounds of
the two kinds alternate, so that a busy machine is busy for both.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

from remit import Agent, Call, Limits, Reply, Request, Usage, run

REPLY_S = 0.05
USAGE = Usage(requests=1, input_tokens=100, output_tokens=20)


class FanOut:
    """The lead asks for all its children in one response; each of them answers at once."""

    name = "fan-out"

    def __init__(self, children: int) -> None:
        calls = [Call(f"c{n}", "task", {"agent": "worker", "prompt": f"part {n}"}) for n in range(children)]
        self._first = Reply(calls=tuple(calls), stop="calls", usage=USAGE)

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit
        await asyncio.sleep(REPLY_S)
        if request.agent == "worker":
            return Reply("done with my part", usage=USAGE)
        return self._first if len(request.messages) == 1 else Reply("all done", usage=USAGE)


def measure(children: int, store: str | None) -> tuple[float, float]:
    """Seconds of wall clock and of CPU for one tree."""
    worker = Agent("worker", instructions="Do your part.")
    lead = Agent("lead", instructions="Split the work.", subagents=[worker])
    limits = Limits(delegations=children, concurrency=children + 1, requests=10**6, tokens=10**9)

    async def go() -> tuple[float, float]:
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = await run(lead, "go", model=FanOut(children), limits=limits, store=store)
        spent = time.perf_counter() - wall, time.process_time() - cpu
        outcome.raise_for_status()
        assert len(outcome.children) == children
        assert not outcome.warnings, outcome.warnings
        return spent

    return asyncio.run(go())


def main() -> None:
    children, rounds = (int(a) for a in (*sys.argv[1:3], *("1000", "7")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        stores = {"no journal": None, "SQLite": f"sqlite:///{Path(folder, 'runs.db')}"}
        for store in stores.values():
            measure(min(children, 50), store)
        seen = {name: list[tuple[float, float]]() for name in stores}
        for _ in range(rounds):
            for name, store in stores.items():
                seen[name].append(measure(children, store))
    medians = {
        name: [statistics.median(column) for column in zip(*spent, strict=True)]
        for name, spent in seen.items()
    }
    print(f"{children} children, medians of {rounds}")
    for name, (wall, cpu) in medians.items():
        print(
            f"  {name:10}  wall {wall * 1000:6.0f} ms   CPU {cpu * 1000:6.0f} ms   {cpu / children * 1e6:4.0f} us per child"
        )
    (wall, cpu), (wall0, cpu0) = medians["SQLite"], medians["no journal"]
    print(f"  ratio       wall {wall / wall0:.2f}      CPU {cpu / cpu0:.2f}")


if __name__ == "__main__":
    main()
