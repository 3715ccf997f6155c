"""How long a hostile model blocks the event loop: the longest CPU time of the loop's thread between two iterations.

    .venv/bin/python benchmarks/blocking.py [--only grep,ls] [--store off,sqlite] [--out blocking.json]

Each case is one reply (or one tool result) that is made to be expensive. It runs in a process of its own, which is
stopped after two minutes. `cpu_ms` is what counts: other programs on the machine do not change it. `wall_ms` is the longest
time in which the loop did not run: it includes waiting for Python's lock and for the processor. `took_s` is the whole run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

try:
    from remit import Agent, Call, Limits, Outcome, Reply, Request, Tool, Usage, start, tool
except ModuleNotFoundError:
    sys.exit("This Python has no remit: use the one that `make demo` sets up, .venv/bin/python.")
from remit.tools.builtin.search.grep import grep
from remit.tools.builtin.search.ls_glob import ls
from remit.tools.builtin.terminal.terminal import terminal

TARGET_MS = 100.0
"""The target: the longest CPU time for which a case may block the loop."""

PATIENCE_S = 120
STORES = ("off", "sqlite")
MB = 1_000_000
USED = Usage(requests=1, input_tokens=1, output_tokens=1, usd=0.0)


# --- Measuring ------------------------------------------------------------------------------------------------------


class Watch(selectors.BaseSelector):
    """A selector that measures the loop's thread between two selects, which is one iteration of the loop."""

    def __init__(self) -> None:
        self._inner = selectors.DefaultSelector()
        self._since: tuple[float, float] | None = None
        self.cpu = self.wall = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._since is not None:
            cpu, wall = self._since
            self.cpu = max(self.cpu, time.thread_time() - cpu)
            self.wall = max(self.wall, time.perf_counter() - wall)
        found = self._inner.select(timeout)
        self._since = time.thread_time(), time.perf_counter()
        return found

    def reset(self) -> None:
        """Reset, so that only the run itself is measured."""
        self._since, self.cpu, self.wall = None, 0.0, 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


# --- The cases -------------------------------------------------------------------------------------------------------


class Says:
    """A model that first gives one reply and then "done"; a child's model replies "done", after a delay if it is slow."""

    name = "says"

    def __init__(self, first: Reply, *, slow: bool) -> None:
        self.first = first
        self.slow = slow

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit
        if request.depth == 0 and len(request.messages) == 1:
            return self.first
        if request.depth and self.slow:
            await asyncio.sleep(60)
        return Reply("done", usage=USED)


class Case(NamedTuple):
    """One tree: the agent, its model's first reply, and the limits."""

    agent: Agent
    first: Reply
    limits: Limits = Limits()
    stop_after_s: float | None = None
    """When the tree is cancelled, if at all. Its children are slow then."""
    policy: Sequence[str] | None = None


def asks(name: str, args: dict[str, object] | str, times: int) -> Reply:
    calls = tuple(Call(f"c{n}", name, {**args} if isinstance(args, dict) else args) for n in range(times))
    return Reply("", calls, stop="calls", usage=USED)


def unknown(times: int) -> Reply:
    calls = tuple(Call(f"c{n}", f"{n:05} {'list of files ' * 13}", {}) for n in range(times))
    return Reply("", calls, stop="calls", usage=USED)


def case(
    tools: Sequence[Tool], first: Reply, limits: Limits | None = None, *, policy: Sequence[str] | None = None
) -> Case:
    return Case(Agent("lead", tools=list(tools)), first, limits or Limits(), policy=policy)


@tool(tier="observe")
async def echo(text: object = "") -> str:
    """Answers at once."""
    return str(text)[:10]


@tool(tier="observe")
def plain(text: str = "") -> str:
    """Answers at once, from a thread."""
    return text[:10]


@tool(tier="observe")
async def long_text(chars: int, letter: str) -> str:
    """A long text."""
    return LONG[chars, letter]


@tool(tier="observe")
def long_list(values: int) -> list[int]:
    """A long list."""
    return list(range(values))


LONG: dict[tuple[int, str], str] = {}


def returns(chars: int, letter: str = "x", times: int = 1) -> Case:
    LONG[chars, letter] = letter * chars
    return case([long_text], asks("long_text", {"chars": chars, "letter": letter}, times))


def children(number: int, *, concurrency: int | None = 16, stop_after_s: float | None = None) -> Case:
    lead = Agent("lead", subagents=[Agent("kid", instructions="Work.")])
    limits = Limits(delegations=None, concurrency=concurrency)
    return Case(lead, asks("task", {"agent": "kid", "prompt": "look"}, number), limits, stop_after_s)


def deep(levels: int) -> dict[str, object]:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return {"text": value}


NUMBERS: dict[str, object] = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def checked_by_schema() -> Tool:
    async def add(numbers: list[int]) -> int:
        """Adds."""
        return sum(numbers)

    return tool(add, tier="observe", parameters={"type": "object", "properties": {"numbers": NUMBERS}})


def wide_schema() -> Tool:
    names = [f"property_{n}" for n in range(2_000)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "enum": [f"value {n}" for n in range(20)]} for name in names},
        "required": names,
    }

    async def wide(**given: object) -> str:
        """Takes many things."""
        return str(len(given))

    return tool(wide, tier="observe", parameters=schema)


CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "grep": (
        '150 calls of grep("(a+)+$") under seconds=10',
        # With a lookahead, which ripgrep does not support, so that Python searches on every machine.
        lambda: case(
            [grep], asks("grep", {"pattern": "(?=a)(a+)+$", "path": "a.txt"}, 150), Limits(seconds=10)
        ),
    ),
    "terminal": (
        "300 calls of terminal",
        lambda: case([terminal], asks("terminal", {"command": "true"}, 300), policy=["allow terminal"]),
    ),
    "ls": ("10,000 calls of ls", lambda: case([ls], asks("ls", {}, 10_000))),
    "args": ("100 MB of arguments", lambda: case([echo], asks("echo", {"text": "x" * 100 * MB}, 1))),
    "args_text": (
        "100 MB of arguments, as the text of an object",
        lambda: case([echo], asks("echo", '{"text": "' + "x" * 100 * MB + '"}', 1)),
    ),
    "args_many": (
        "10 MB of arguments in 5,000,000 numbers",
        lambda: case([echo], asks("echo", {"text": [0] * 5_000_000}, 1)),
    ),
    "args_spread": (
        "100 MB of arguments in 1,000 calls",
        lambda: case([echo], asks("echo", {"text": "x" * 100_000}, 1_000)),
    ),
    "args_most": (
        "as many numbers as are accepted as arguments",
        lambda: case([echo], asks("echo", {"text": [0] * 199_000}, 1)),
    ),
    "args_schema": (
        "the same, 16 times, checked by a JSON schema",
        lambda: case([checked_by_schema()], asks("add", {"numbers": [0] * 12_000}, 16)),
    ),
    "deep": (
        "arguments nested 100,000 deep",
        lambda: case([echo], asks("echo", '{"text":' + "[" * 100_000 + "]" * 100_000 + "}", 1)),
    ),
    "deep_dict": (
        "arguments nested 50,000 deep, as objects",
        lambda: case([echo], asks("echo", deep(50_000), 1)),
    ),
    "result": ("a result of 180 MB", lambda: returns(180 * MB)),
    "result_wide": ("a result of 90 million characters beyond ASCII", lambda: returns(90 * MB, "é")),
    "result_list": (
        "a result that is a list of 5,000,000 numbers",
        lambda: case([long_list], asks("long_list", {"values": 5_000_000}, 1)),
    ),
    "results": (
        "1,000 results of 100,000 characters",
        lambda: returns(100_000, times=1_000),
    ),
    "unknown": ("5,000 calls of unknown tools", lambda: case([echo, plain, ls, grep], unknown(5_000))),
    "children": ("10,000 children", lambda: children(10_000)),
    "children_stopped": (
        "10,000 children, cancelled while most of them wait for a slot",
        lambda: children(10_000, stop_after_s=2),
    ),
    "children_live": (
        "10,000 children, cancelled while all of them work",
        lambda: children(10_000, concurrency=None, stop_after_s=3),
    ),
    "ls_stopped": (
        "10,000 calls of ls, cancelled while most of them wait",
        lambda: case([ls], asks("ls", {}, 10_000))._replace(stop_after_s=0.05),
    ),
    "sync": ("10,000 calls of a sync tool", lambda: case([plain], asks("plain", {"text": "a"}, 10_000))),
    "async": ("10,000 calls of an async tool", lambda: case([echo], asks("echo", {"text": "a"}, 10_000))),
    "calls": ("100,000 calls in one reply", lambda: case([echo], asks("echo", {"text": "a"}, 100_000))),
    "refused": (
        "10,000 calls in a reply that was cut off",
        lambda: case([echo], replace(asks("echo", {"text": "a"}, 10_000), stop="length")),
    ),
    "denied": (
        "10,000 calls that a rule denies",
        lambda: case(
            [terminal],
            asks("terminal", {"command": "git push; ls -l | wc"}, 10_000),
            policy=["deny terminal(git push*)"],
        ),
    ),
    "misfit": (
        "1,000 calls with arguments that do not fit a schema of 2,000 properties",
        lambda: case([wide_schema()], asks("wide", {"property_1": 1, "other": 2}, 1_000)),
    ),
    "command": (
        "a command of 900,000 characters under a rule",
        lambda: case(
            [terminal],
            asks("terminal", {"command": "echo a; " * 112_500}, 1),
            policy=["deny terminal(git push*)"],
        ),
    ),
    "text": ("a reply of 50 MB of text", lambda: Case(Agent("lead"), Reply("é" * 25 * MB, usage=USED))),
    "output": (
        "a structured answer of 50 MB",
        lambda: Case(Agent("lead", output=list[int]), Reply("[" + "1," * (25 * MB - 1) + "1]", usage=USED)),
    ),
    "output_most": (
        "the longest structured answer that is accepted",
        lambda: Case(Agent("lead", output=list[int]), Reply("[" + "1," * 2_499_990 + "1]", usage=USED)),
    ),
    "output_schema": (
        "a structured answer of 100,000 numbers, checked by a JSON schema",
        lambda: Case(Agent("lead", output=NUMBERS), Reply("[" + "1," * 100_000 + "1]", usage=USED)),
    ),
    "instructions": (
        "50 children with instructions of a million characters",
        lambda: Case(
            Agent("lead", subagents=[Agent("kid", instructions="be careful. " * 80_000)]),
            asks("task", {"agent": "kid", "prompt": "look"}, 50),
        ),
    ),
    "prompts": (
        "50 children with a prompt of 1 MB each",
        lambda: Case(
            Agent("lead", subagents=[Agent("kid")]),
            asks("task", {"agent": "kid", "prompt": "look at this " * 80_000}, 50),
        ),
    ),
}


# --- Running a case -------------------------------------------------------------------------------------------------


async def measured(chosen: Case, folder: Path, store: str | None, watch: Watch) -> Outcome:
    watch.reset()
    running = start(
        chosen.agent,
        "go",
        model=Says(chosen.first, slow=chosen.stop_after_s is not None),
        limits=chosen.limits,
        policy=chosen.policy,
        workspace=folder,
        store=store,
    )
    async with running:
        if chosen.stop_after_s is not None:
            await asyncio.sleep(chosen.stop_after_s)
            await running.cancel("enough")
        return await running.outcome()


def run_case(name: str, stores: str) -> dict[str, object]:
    """Run one case in this process and return its figures."""
    chosen = CASES[name][1]()
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        (Path(folder) / "work" / "a.txt").write_text("a" * 40 + "!\n")
        store = f"sqlite:///{Path(folder, 'runs.db')}" if stores == "sqlite" else None
        began = time.perf_counter()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watch)) as runner:
            outcome = runner.run(measured(chosen, Path(folder) / "work", store, watch))
            cpu, wall = watch.cpu, watch.wall
        took = time.perf_counter() - began
    return {
        "cpu_ms": round(cpu * 1e3, 1),
        "wall_ms": round(wall * 1e3, 1),
        "took_s": round(took, 1),
        "status": str(outcome.status),
        "calls": len(outcome.calls),
        "good": sum(entry.success for entry in outcome.calls),
    }


def in_own_process(name: str, store: str) -> dict[str, object]:
    command = [sys.executable, __file__, "--here", name, "--store", store]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, text=True)
    except subprocess.TimeoutExpired:
        return {"status": f"stopped after {PATIENCE_S} s"}
    if done.returncode:
        return {"status": "failed", "error": done.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def line_of(name: str, store: str, found: Mapping[str, object]) -> str:
    cpu = found.get("cpu_ms")
    verdict = "" if not isinstance(cpu, float) else "held" if cpu <= TARGET_MS else "missed"
    figures = "  ".join(f"{key} {value}" for key, value in found.items())
    return f"{name:17} {store:7} {verdict:7} {figures}"


def names(said: str, known: Sequence[str]) -> list[str]:
    found = [name.strip() for name in said.split(",")]
    for name in found:
        if name not in known:
            raise argparse.ArgumentTypeError(f"unknown name {name!r}; known names: {', '.join(known)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = ",".join(CASES)
    parser.add_argument("--only", type=lambda said: names(said, list(CASES)), default=every, help="cases")
    parser.add_argument("--store", type=lambda said: names(said, STORES), default=",".join(STORES))
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    parser.add_argument("--here", choices=CASES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(run_case(asked.here, asked.store[0])))
        return
    figures: dict[str, dict[str, object]] = {}
    for name in asked.only:
        figures[name] = {"what": CASES[name][0]}
        for store in asked.store:
            found = figures[name][store] = in_own_process(name, store)
            print(line_of(name, store, found), flush=True)
            if asked.out is not None:
                asked.out.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
