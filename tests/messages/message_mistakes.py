"""Wrong calls and wrong commands, and the messages that people read about them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from message_trees import CHILD, Texts, change, lead, look

import remit.remote as remote
from remit import Agent, Limits, ModelError, RemitError, resume, run, run_sync, start, tool
from remit.cli.main import COMMANDS, main
from remit.stores import open_store
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, run_virtual, say

WRONG = [
    "nope",
    "run",
    "run x --agent nobody",
    "run x --model nosuch:model",
    "run x --max-turns many",
    "run x --max-turns 0",
    "run x --colour",
    "resume",
    "resume nope",
    "runs",
    "show nope",
    "watch nope",
    "cancel nope",
    "send nope hello",
    "approve nope",
    "deny nope",
    "rm nope",
    "completion fishy",
]


def errors() -> Texts:
    """The exceptions that wrong calls raise."""
    wrong: Any = 3

    async def on_event(event: object) -> None:
        del event

    async def ran(agent: Any = CHILD, task: Any = "go", **options: Any) -> None:
        chosen: dict[str, Any] = {"model": ScriptedModel([say("done")])}
        await run(agent, task, **(chosen | options))

    async def started(use: Callable[[Any], Any]) -> None:
        async with start(CHILD, "go", model=ScriptedModel([say("done")])) as running:
            found = use(running)
            if isinstance(found, Coroutine):
                await found

    async def resumed(agent: Agent) -> None:
        store = MemoryStore()
        async with start(lead(), "go", model=ScriptedModel([say("late", delay=60)]), store=store) as running:
            await running.cancel()
        await resume(store, "r1", agent=agent, model=ScriptedModel([]))

    async def inside() -> None:
        run_sync(CHILD, "go")

    async def awaited() -> None:
        await start(CHILD, "go", model="offline")

    return {
        title: _raised(make)
        for title, make in {
            "Agent('two words')": lambda: Agent("two words"),
            "Agent(system_prompt=...)": lambda: Agent("a", system_prompt="x"),  # pyright: ignore[reportCallIssue]
            "Agent(model='')": lambda: Agent("a", model=""),
            "Agent(model=3)": lambda: Agent("a", model=wrong),
            "Agent(tools='read')": lambda: Agent("a", tools="read"),
            "Agent(tools=[look, look])": lambda: Agent("a", tools=[look, look]),
            "Agent(subagents=[3])": lambda: Agent("a", subagents=[wrong]),
            "Agent(policy=['refuse x'])": lambda: Agent("a", policy=["refuse x"]),
            "Agent.from_dict(limit)": lambda: Agent.from_dict({"name": "a", "limit": {}}),
            "Limits(turns=-1)": lambda: Limits(turns=-1),
            "Limits(request=1)": lambda: Limits(request=1),  # pyright: ignore[reportCallIssue]
            "ModelError(kind='slow')": lambda: ModelError("x", kind="slow"),  # pyright: ignore[reportArgumentType]
            "tool(3)": lambda: tool(wrong),
            "run(3)": lambda: ran(3),
            "run(task=3)": lambda: ran(task=3),
            "run(model=None)": lambda: ran(model=None),
            "run(model='nosuch:x')": lambda: ran(model="nosuch:x"),
            "run(tools=['raed'])": lambda: ran(Agent("a", tools=["raed"])),
            "run(max_turns=3)": lambda: ran(max_turns=3),
            "run(system_prompt='x')": lambda: ran(system_prompt="x"),
            "run(limits=3)": lambda: ran(limits=3),
            "run(limits=Limits(usd=1)) without a price": lambda: ran(limits=Limits(usd=1)),
            "run(policy=['deny lok'])": lambda: ran(policy=["deny lok"]),
            "run(approver=3)": lambda: ran(approver=3),
            "run(on_event=async)": lambda: ran(on_event=on_event),
            "run(store=3)": lambda: ran(store=3),
            "run(store=Path)": lambda: ran(store=Path("runs.db")),
            "run(store='redis://x')": lambda: ran(store="redis://x"),
            "run(workspace='missing')": lambda: ran(workspace="missing"),
            "run(history='x')": lambda: ran(history="x"),
            "run_sync() in a loop": inside,
            "await start()": awaited,
            "cancel(run='r9')": lambda: started(lambda running: running.cancel(run="r9")),
            "cancel('r1')": lambda: started(lambda running: running.cancel("r1")),
            "send('')": lambda: started(lambda running: running.send("")),
            "resume('r9')": lambda: resume(MemoryStore(), "r9", agent=CHILD, model="offline"),
            "resume('r1.1')": lambda: resume(MemoryStore(), "r1.1", agent=CHILD, model="offline"),
            "resume() with another agent": lambda: resumed(CHILD),
            "resume() without a subagent": lambda: resumed(lead(subagents=[], tools=[change])),
            "remote.cancel('r9')": lambda: remote.cancel(MemoryStore(), "r9"),
            "remote.approve('r9')": lambda: remote.approve(MemoryStore(), "r9"),
            "open_store('')": lambda: open_store(""),
        }.items()
    }


def _raised(make: Callable[[], Any]) -> str:
    async def wait() -> object:
        found = make()
        return await found if isinstance(found, Coroutine) else found

    try:
        result = run_virtual(wait)
    except RemitError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"nothing was raised; the result is {result!r}")


def command_errors() -> Texts:
    """What wrong commands print, in an empty project without an API key."""
    return {f"remit {command}": _printed(*shlex.split(command)) for command in WRONG}


def help_texts() -> Texts:
    """The help of `remit` and of each command."""
    options = {"remit --help": ["--help"]} | {f"remit {name} --help": [name, "--help"] for name in COMMANDS}
    return {title: _printed(*args) for title, args in options.items()}


def _printed(*args: str) -> str:
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    with _empty_project() as folder:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(list(args))
        said.seek(0)
        text = said.read().replace(str(folder), "FOLDER")
    text = "\n".join(line.rstrip() for line in text.strip().split("\n"))
    return f"{text}\n[exit {code}]"


@contextlib.contextmanager
def _empty_project() -> Iterator[Path]:
    hidden = re.compile(r"REMIT_|XDG_|OTEL_|.*(_API_KEY|_BASE_URL|_COLOR)$")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        kept = {name: value for name, value in os.environ.items() if not hidden.match(name)}
        home = {"HOME": str(folder), "REMIT_HOME": str(folder / "state"), "COLUMNS": "100"}
        with (
            patch.dict(os.environ, kept | home, clear=True),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
            contextlib.chdir(folder),
        ):
            yield folder
