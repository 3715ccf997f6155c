"""`remit` commands whose output programs read, as transcripts: what was typed, what came out, the exit code.

`runs` and `show` look at the stored trees. `run` runs agents from files in virtual time. Two things are not as they
came out: the folder is `<folder>`, and what `resume` measured by the real clock is 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from parts import Line, run_command
from staging import by_turn
from stored_trees import SCHEMA, SCOUT_FILE, called_script

from remit import Model, Price, Request, Usage
from remit.testing import ScriptedModel, call, calls, refuse, run_virtual, say

LEAD_FILE = """---
name: lead
description: Leads.
subagents: [scout, poet]
tools: read
limits: {turns: 6}
---
You lead.
"""

POET_FILE = """---
name: poet
description: Writes poems.
tools: []
---
You write poems.
"""

PRICE = Price(input=3.0, output=15.0)

FILES = {"lead": LEAD_FILE, "scout": SCOUT_FILE, "poet": POET_FILE}

RUNS = (("runs", "--json", "--all"), ("runs", "--json", "--limit", "2"))

SHOWS: dict[str, list[tuple[str, ...]]] = {
    "finished1": [
        ("show", "finished1.2", "--tree", "--json"),
        ("show", "finished1", "--artifact", "finished1.1/answer"),
        ("show", "finished1.2", "--artifact", "text"),
    ],
    "busy1": [("show", "busy1.2", "--json"), ("show", "busy1", "--artifact", "answer")],
    "limited1": [("show", "limited1.1", "--events", "--json")],
    "called1": [("show", "called1", "--events", "--json"), ("show", "last", "--tree", "--events", "--json")],
}


def of_runs(url: str) -> str:
    """What `remit runs` says of a store."""
    return "".join(transcript(*args, url=url) for args in RUNS)


def line_of(root: str, url: str) -> str:
    """What `remit runs` says of one tree."""
    lines = transcript(*RUNS[0], url=url).split("\n")
    return without_bytes(next(line for line in lines if line.startswith(f'{{"id": "{root}"')))


def without_versions(text: str) -> str:
    return re.sub(r'"v": ?[0-9]+', '"v":N', text)


def without_bytes(text: str) -> str:
    """A text without the sizes of trees: they depend on the version of the events."""
    return re.sub(r'"bytes": [0-9]+', '"bytes": N', text)


def of_tree(root: str, url: str) -> str:
    """What `remit show` says of a stored tree, of one of its children and of a text that was kept."""
    whole = [("show", root, "--json"), ("show", root, "--messages", "--calls", "--usage", "--json")]
    return "".join(transcript(*args, url=url) for args in [*whole, *SHOWS.get(root, ())])


def _two_children(request: Request) -> Line:
    wide = calls(
        call("task", agent="poet", prompt="ode on it", description="an ode"),
        call("task", agent="scout", prompt="look at it"),
        call("task", agent="nobody", prompt="x"),
        said="Both of them.",
    )
    scripts: dict[str, Callable[[Request], Line]] = {
        "lead": by_turn(wide, say("A poem and a look.", delay=2, chunks=2)),
        "poet": by_turn(
            say("Roses are red. " * 10, thinking="what rhymes?", usage=Usage(1, 20, 90, usd=0.01))
        ),
        "scout": by_turn(call("raed", path="x"), refuse("I see nothing.")),
    }
    return scripts[request.agent](request)


def _short_of_turns(request: Request) -> Line:
    return by_turn(call("task", agent="poet", prompt="one"), call("x"), wrap="No more.")(request)


def _in_form(request: Request) -> Line:
    return by_turn(say("three"), say('{"n": 3}'))(request)


RUN_CASES: dict[str, tuple[tuple[str, ...], Callable[[Request], Line]]] = {
    "result": (("--agent", "lead", "--output-format", "json"), _two_children),
    "stream": (("--agent", "lead", "--output-format", "stream-json"), _two_children),
    "limited": (("--agent", "lead", "--max-turns", "1", "--output-format", "json"), _short_of_turns),
    "structured": (
        ("--agent", "poet", "--json-schema", json.dumps(SCHEMA), "--output-format", "json"),
        _in_form,
    ),
    "refused": (("--agent", "poet", "--output-format", "stream-json"), lambda _: refuse("No.")),
}


def run_case(name: str, folder: Path) -> str:
    """A transcript of `remit run`, in virtual time."""
    options, script = RUN_CASES[name]
    # Every command enters its event loop through `asyncio.run`. Without a journal nothing else needs the real clock.
    with in_folder(folder), patch.object(asyncio, "run", run_virtual):
        said = transcript("run", "go", *options, "--no-journal", "--model", "scripted", model=script)
        return said.replace(str(Path.cwd()), "<folder>")


def resume_case(folder: Path, url: str) -> str:
    """A transcript of `remit resume` for a stored tree that `remit run` had started: by its id alone."""
    with in_folder(folder):
        said = transcript(
            "resume", "called1", "--output-format", "stream-json", model=called_script(1), url=url
        )
    return without_versions(re.sub(r'("(?:at|duration_s|duration_ms)": ?)[0-9.]+', r"\g<1>0", said))


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """In an empty project with three agent files, and a home where nothing is set."""
    agents = folder / "project" / ".remit" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (agents / f"{name}.md").write_text(text, encoding="utf-8")
    foreign = ("REMIT_", "XDG_")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(foreign) and not name.endswith(("_API_KEY", "_BASE_URL"))
    }
    environment = {**kept, "HOME": str(folder), "REMIT_HOME": str(folder / "state")}
    with patch.dict(os.environ, environment, clear=True), contextlib.chdir(folder / "project"):
        yield


class _Captured(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def text(self) -> str:
        self.seek(0)
        return self.read()


def transcript(*args: str, model: Callable[[Request], Line] | None = None, url: str = "") -> str:
    """What `remit ARGS` prints in this process, without a terminal. What goes to standard error is for people."""
    out, err = _Captured(), _Captured()
    models: dict[str, Model] | None = (
        None if model is None else {"scripted": ScriptedModel(model, price=PRICE)}
    )
    place = ["--journal", url] if url else []
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
    ):
        code = run_command([*args, *place], models=models)
    said = out.text()
    return f"$ remit {shlex.join(args)}\n{said}{'' if said.endswith(chr(10)) else chr(10)}[exit {code}]\n"
