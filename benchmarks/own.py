"""Measure remit under heavy load, each workload as a ratio to a bare asyncio loop in the same process.

    .venv/bin/python benchmarks/own.py [--rounds 5] [--only tree,cancel] [--out own.json]

The model is a script with fixed delays. The bare loop does the same work with dicts and `gather`: no limits, no events,
no journal. Every limit of remit is set, so every check runs. The rounds of both alternate, so that load on the machine
affects both. CPU time is compared, except for `cancel` and `held`, which compare waiting times.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

try:
    from remit import Agent, Call, Limits, Price, Reply, Request, Usage, resume, run, start, tool
except ModuleNotFoundError:
    sys.exit("This Python has no remit: use the one that `make demo` sets up, .venv/bin/python.")
from remit.events import Event
from remit.stores import open_store
from remit.types.ports import Store

USED = Usage(requests=1, input_tokens=1, output_tokens=1, usd=0.0)
RESULT = "x" * 2048
CALL_ID = "toolu_01A09q90qw90lq9178{:06d}"
"""Ids as providers create them: they look like keys, so the journal must check each of them."""

Go = Callable[[], Awaitable[object]]
Spent = dict[str, float]


class Shape(NamedTuple):
    """A tree: the number of children of a run at each level, and the number of turns of its leaves."""

    fans: tuple[int, ...]
    turns: int = 0
    latency_s: float = 0.0
    concurrency: int = 20_000
    task_chars: int = 0
    """The minimal length of a child's task."""

    @property
    def runs(self) -> int:
        total = width = 1
        for fan in self.fans:
            width *= fan
            total += width
        return total

    def says(self, level: int, turn: int) -> str | list[tuple[str, str]]:
        """The reply of the model of a level at a turn: an answer, or calls."""
        if level < len(self.fans):
            parts = [f"part {n} ".ljust(self.task_chars, "x") for n in range(self.fans[level])]
            return "done" if turn else [("task", part) for part in parts]
        return "done" if turn >= self.turns else [("echo", f"message {turn}")]


# --- The bare loop --------------------------------------------------------------------------------------------------


async def bare(shape: Shape, level: int = 0, gate: asyncio.Semaphore | None = None) -> str:
    gate = gate or asyncio.Semaphore(shape.concurrency)
    messages: list[dict[str, object]] = [{"role": "user", "content": "go"}]
    turn = 0
    while True:
        async with gate:
            if shape.latency_s:
                await asyncio.sleep(shape.latency_s)
            said = shape.says(level, turn)
        turn += 1
        if isinstance(said, str):
            messages.append({"role": "assistant", "content": said})
            return said
        calls = [(name, json.dumps({"text": value})) for name, value in said]
        messages.append({"role": "assistant", "calls": calls})
        work = [_bare_call(shape, level, gate, name, json.loads(args)["text"]) for name, args in calls]
        # The common way to write it; a runtime may not use `gather`.
        results = [await work[0]] if len(work) == 1 else await asyncio.gather(*work)  # noqa: TID251
        messages.extend({"role": "tool", "content": result} for result in results)


async def _bare_call(shape: Shape, level: int, gate: asyncio.Semaphore, name: str, text: str) -> str:
    del text
    return await bare(shape, level + 1, gate) if name == "task" else RESULT


# --- remit ----------------------------------------------------------------------------------------------------------


class Scripted:
    """Replies as the shape requires; `held` delays the answers of that level until it is set."""

    name = "scripted"
    price = Price(1.0, 1.0)

    def __init__(self, shape: Shape, held: tuple[int, asyncio.Event] | None = None) -> None:
        self.shape = shape
        self.held = held
        self.asked = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit
        self.asked += 1
        turn = (len(request.messages) - 1) // 2 if request.depth == len(self.shape.fans) else 0
        if request.depth < len(self.shape.fans):
            turn = int(len(request.messages) > 1)
        if self.held is not None and request.depth == self.held[0] and (turn or request.depth):
            await self.held[1].wait()
        if self.shape.latency_s:
            await asyncio.sleep(self.shape.latency_s)
        said = self.shape.says(request.depth, turn)
        if isinstance(said, str):
            return Reply(said, usage=USED)
        below = f"level{request.depth + 1}"
        calls = [
            Call(
                CALL_ID.format(n),
                name,
                {"agent": below, "prompt": value} if name == "task" else {"text": value},
            )
            for n, (name, value) in enumerate(said)
        ]
        return Reply("", tuple(calls), stop="calls", usage=USED)


@tool(tier="observe")
async def echo(text: str) -> str:
    """Two kilobytes."""
    del text
    return RESULT


def limits(shape: Shape) -> Limits:
    return Limits(
        depth=10,
        delegations=10**6,
        requests=10**6,
        tokens=10**10,
        usd=10.0**6,
        calls=10**6,
        seconds=3600,
        concurrency=shape.concurrency,
        turns=1000,
        call_seconds=120,
        stall_seconds=180,
        result_chars=8000,
    )


def agent_of(shape: Shape) -> Agent:
    agent = Agent(f"level{len(shape.fans)}", instructions="Do your part.", tools=[echo])
    for level in reversed(range(len(shape.fans))):
        agent = Agent(f"level{level}", instructions="Split the work.", subagents=[agent])
    return agent


def ours(shape: Shape, store: Store | str | None = None) -> Go:
    agent, model = agent_of(shape), Scripted(shape)

    async def go() -> None:
        outcome = await run(agent, "go", model=model, limits=limits(shape), store=store)
        outcome.raise_for_status()
        assert not outcome.warnings, outcome.warnings

    return go


# --- Measuring ------------------------------------------------------------------------------------------------------


def rss_kb() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    # On systems without this file, such as macOS.
    said = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return int(said.stdout)


async def spent(go: Go) -> tuple[float, float]:
    """Milliseconds of CPU and of wall clock."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await go()
    return (time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


async def compared(rounds: int, shape: Shape, times: int = 1, trees: int = 1, **kinds: Go) -> Spent:
    """Medians of each kind and of the bare loop, in alternating rounds; `ratio` is the ratio of the first kind.

    A round is the mean of `times` runs: if two kinds differ by less than the noise of a shared machine, one run of each
    is not enough.
    """

    async def bares() -> None:
        for _ in range(trees):
            await bare(shape)

    kinds["bare"] = bares
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for go in kinds.values():
        await go()
    for _ in range(rounds * times):
        for name, go in kinds.items():
            seen[name].append(await spent(go))
    found: Spent = {}
    for name, both in seen.items():
        means = [
            [statistics.mean(column) for column in zip(*some, strict=True)] for some in batched(both, times)
        ]
        found[f"{name}_cpu_ms"], found[f"{name}_wall_ms"] = map(statistics.median, zip(*means, strict=True))
    first = next(iter(kinds))
    found["ratio"] = found[f"{first}_cpu_ms"] / found["bare_cpu_ms"]
    found["us_per_run"] = found[f"{first}_cpu_ms"] * 1e3 / shape.runs / trees
    return found


def batched(both: list[tuple[float, float]], size: int) -> list[list[tuple[float, float]]]:
    return [both[at : at + size] for at in range(0, len(both), size)]


# --- The workloads --------------------------------------------------------------------------------------------------


async def journal(rounds: int) -> Spent:
    """1,000 children in one reply, 50 ms per model call, with a SQLite journal that is opened and closed with the tree."""
    return await _journalled(rounds, Shape((1000,), latency_s=0.05), times=8)


async def opened(rounds: int) -> Spent:
    """Like `journal`, with a store that is already open, as in programs that run many trees."""
    return await _journalled(rounds, Shape((1000,), latency_s=0.05), times=8, once=True)


async def briefed(rounds: int) -> Spent:
    """Like `opened`, with tasks of 2 KB each; the journal has each task twice, as a call and as a run."""
    return await _journalled(rounds, Shape((1000,), latency_s=0.05, task_chars=2048), once=True)


async def small(rounds: int) -> Spent:
    """100 consecutive trees of 20 children each; each tree opens and closes the journal."""
    return await _journalled(rounds, Shape((20,)), times=1, trees=100)


async def _journalled(
    rounds: int, shape: Shape, *, times: int = 5, trees: int = 1, once: bool = False
) -> Spent:
    def many(go: Go) -> Go:
        async def all_of_them() -> None:
            for _ in range(trees):
                await go()

        return all_of_them

    with tempfile.TemporaryDirectory() as folder:
        place = f"sqlite:///{Path(folder, 'runs.db')}"
        store = open_store(place)
        kinds = {"sqlite": many(ours(shape, store if once else place)), "off": many(ours(shape))}
        found = await compared(rounds, shape, times=times, trees=trees, **kinds)
        await store.close()
    found["on_against_off"] = found["sqlite_cpu_ms"] / found["off_cpu_ms"]
    return found


async def many(rounds: int) -> Spent:
    """10,000 children in one reply, 100 of them at once, 5 ms per model call."""
    shape = Shape((10_000,), latency_s=0.005, concurrency=100)
    return await compared(rounds, shape, ours=ours(shape))


async def tree(rounds: int) -> Spent:
    """A tree of depth 5 and fan-out 5: 3,906 runs."""
    shape = Shape((5, 5, 5, 5, 5), latency_s=0.001)
    return await compared(rounds, shape, ours=ours(shape))


async def long(rounds: int) -> Spent:
    """5 children of 200 turns each, every tool result 2 KB."""
    shape = Shape((5,), turns=200, latency_s=0.0001)
    found = await compared(rounds, shape, ours=ours(shape))
    found["us_per_turn"] = found["ours_cpu_ms"] * 1e3 / (5 * 200)
    return found


async def readers(rounds: int) -> Spent:
    """1,000 children in one reply, with 5 readers of the event stream."""
    shape = Shape((1000,), latency_s=0.05)
    agent, model = agent_of(shape), Scripted(shape)

    async def go() -> None:
        async with start(agent, "go", model=model, limits=limits(shape)) as running:
            counts = await asyncio.gather(*(_read(running.events()) for _ in range(5)))  # noqa: TID251 - a script
            (await running.outcome()).raise_for_status()
            assert counts == [counts[0]] * 5, counts
            assert counts[0] > 6000, counts

    found = await compared(rounds, shape, read=go, unread=ours(shape))
    found["read_against_unread"] = found["read_cpu_ms"] / found["unread_cpu_ms"]
    return found


async def _read(events: AsyncIterator[Event]) -> int:
    return len([event async for event in events])


async def held(rounds: int) -> Spent:
    """1,000 children in one reply: the longest time for which no other code runs on the event loop."""
    shape = Shape((1000,), latency_s=0.05)
    few = shape._replace(concurrency=16)
    kinds: dict[str, Go] = {"ours": ours(shape), "of_16": ours(few), "bare": lambda: bare(shape)}
    seen: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds + 1):
        for name, go in kinds.items():
            seen[name].append(await _longest(go))
    found = {f"{name}_wall_ms": statistics.median(some[1:]) for name, some in seen.items()}
    return {**found, "ratio": found["ours_wall_ms"] / found["bare_wall_ms"]}


async def _longest(go: Go) -> float:
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    gc.collect()
    ticking = asyncio.ensure_future(tick())  # noqa: TID251 - a script
    await go()
    ticking.cancel()
    return max(gaps) * 1e3


async def cancel(rounds: int) -> Spent:
    """Cancel 1,000 live children: wall clock until no part of the tree is alive; bare: 1,000 waiting tasks."""
    shape = Shape((1000,))
    seen: list[float] = []
    bares: list[float] = []
    for _ in range(rounds + 1):
        seen.append(await _cancelled(shape))
        bares.append(await _cancelled_bare(1000))
    ours_ms, bare_ms = statistics.median(seen[1:]), statistics.median(bares[1:])
    return {"ours_wall_ms": ours_ms, "bare_wall_ms": bare_ms, "ratio": ours_ms / bare_ms}


async def _cancelled(shape: Shape) -> float:
    model = Scripted(shape, held=(1, asyncio.Event()))
    async with start(agent_of(shape), "go", model=model, limits=limits(shape)) as running:
        while model.asked < shape.runs:  # noqa: ASYNC110 - nothing says when the last one was asked
            await asyncio.sleep(0.01)
        gc.collect()
        began = time.perf_counter()
        await running.cancel("enough")
        took = time.perf_counter() - began
        assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()
        assert (await running.outcome()).status == "cancelled"
    return took * 1e3


async def _cancelled_bare(children: int) -> float:
    forever = asyncio.Event()
    tasks = [asyncio.ensure_future(forever.wait()) for _ in range(children)]  # noqa: TID251 - as above
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return (time.perf_counter() - began) * 1e3


async def resumed(rounds: int) -> Spent:
    """Resume a tree of 1,001 runs from SQLite with one model call left; bare: the same events read as JSON."""
    shape = Shape((1000,))
    agent = agent_of(shape)
    seen: list[float] = []
    bares: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            store = f"sqlite:///{Path(folder, f'{number}.db')}"
            run_id, lines = await _stopped_short(shape, agent, store)
            again = Scripted(shape)

            async def go(store: str = store, run_id: str = run_id, again: Scripted = again) -> None:
                (await resume(store, run_id, agent=agent, model=again)).raise_for_status()

            async def read(lines: list[bytes] = lines) -> None:
                assert all(json.loads(line)["seq"] for line in lines)

            seen.append((await spent(go))[0])
            assert again.asked == 1, "recorded replies are not requested again"
            bares.append((await spent(read))[0])
    ours_ms, bare_ms = statistics.median(seen[1:]), statistics.median(bares[1:])
    return {"ours_cpu_ms": ours_ms, "bare_cpu_ms": bare_ms, "ratio": ours_ms / bare_ms}


async def _stopped_short(shape: Shape, agent: Agent, store: str) -> tuple[str, list[bytes]]:
    """A journal in which every child has ended and the lead has not; its events as JSON lines."""
    from remit.events import encode  # noqa: PLC0415 - only this workload reads them

    lines: list[bytes] = []
    model = Scripted(shape, held=(0, asyncio.Event()))
    async with start(agent, "go", model=model, limits=limits(shape), store=store) as running:
        events = running.events()
        async for event in events:
            lines.append(encode(event))
            if event.kind == "turn_started" and event.depth == 0 and len(lines) > 100:
                break
        await running.cancel("the machine is needed")
        return running.run_id, lines


async def soak(rounds: int) -> Spent:
    """100,000 delegations in one process, 100 trees of 1,000 children, once: memory after a tenth, and at the end."""
    del rounds
    shape = Shape((1000,))
    go = ours(shape)
    cpu, first = time.process_time(), 0
    for number in range(100):
        await go()
        if number == 9:
            gc.collect()
            first = rss_kb()
    cpu = (time.process_time() - cpu) * 1e3
    gc.collect()
    last = rss_kb()
    floor = time.process_time()
    for _ in range(10):
        await bare(shape)
    floor = (time.process_time() - floor) * 1e4
    return {
        "ours_cpu_ms": cpu,
        "bare_cpu_ms": floor,
        "ratio": cpu / floor,
        "us_per_run": cpu * 1e3 / 100_000,
        "rss_mb_after_10000": first / 1024,
        "rss_mb_at_the_end": last / 1024,
    }


# `soak` first: memory that other workloads keep would hide memory that `soak` leaks.
EVERY = (soak, journal, opened, briefed, small, many, tree, long, readers, held, cancel, resumed)
WORKLOADS = {w.__name__: w for w in EVERY}


TARGETS = {"journal": ("on_against_off", 2.0), "cancel": ("ours_wall_ms", 150.0)}
"""The target of a figure."""


def verdict(name: str, found: Spent) -> str:
    if name not in TARGETS:
        return ""
    key, most = TARGETS[name]
    return f"  ({key} <= {most:g}: {'held' if found[key] <= most else 'missed'})"


def names(said: str) -> list[str]:
    """The workloads named in `--only`."""
    found = [name.strip() for name in said.split(",")]
    for name in found:
        if name not in WORKLOADS:
            what = f"unknown workload {name!r}" if name else "a name is missing"
            raise argparse.ArgumentTypeError(f"{what}; known workloads: {', '.join(WORKLOADS)}")
    return found


def at_least_one(said: str) -> int:
    if not said.isdecimal() or int(said) < 1:
        raise argparse.ArgumentTypeError(f"{said!r} is not a number of rounds; use 1 or more")
    return int(said)


def processor() -> str:
    """The processor's name, if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = ",".join(WORKLOADS)
    parser.add_argument(
        "--rounds",
        type=at_least_one,
        default=5,
        help="number of rounds; the figures are medians; soak runs once",
    )
    parser.add_argument("--only", type=names, default=every, help=f"comma-separated workloads: {every}")
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    asked = parser.parse_args()
    if asked.out is not None:
        # Open the file before anything is measured.
        try:
            asked.out.open("a", encoding="utf-8").close()
        except OSError as error:
            parser.error(f"{asked.out} cannot be written: {error.strerror}")
    figures: dict[str, object] = {
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "processor": processor(),
        "rounds": asked.rounds,
    }
    for name in asked.only:
        print(f"{name:8} ", end="", flush=True)
        found = asyncio.run(WORKLOADS[name](asked.rounds))
        figures[name] = {"what": WORKLOADS[name].__doc__, **{k: round(v, 4) for k, v in found.items()}}
        figured = (f"{key} {value:,.{1 + (value < 10)}f}" for key, value in found.items())
        print("  ".join(figured) + verdict(name, found), flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
