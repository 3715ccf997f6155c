"""Tools for other processes: pickled by name, without their module's globals, or refused in one sentence."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

from remit import Tool, UsageError, tool

SECRET_KEY = "sk-this-must-not-travel"


@tool(tier="observe")
def look(path: str) -> str:
    """Look at a path."""
    return f"{path} {SECRET_KEY}"


def plain(path: str) -> str:
    """Look at a path."""
    return f"{path} {len(SECRET_KEY)}"


renamed = Tool(plain, name="renamed", tier="observe")


class Client:
    def __init__(self, lock: object = None) -> None:
        self.lock = lock
        self.base = "base"

    def fetch(self, path: str) -> str:
        """Fetch a path."""
        return f"{self.base} {path}"


def inner() -> Tool:
    @tool
    def closure(path: str) -> str:
        """Look at a path."""
        return path

    return closure


@pytest.mark.parametrize("one", [look, renamed, Tool(Client().fetch)], ids=["by name", "function", "method"])
def test_a_tool_travels_without_its_globals(one: Tool) -> None:
    """A tool of a module, or of an object that can be pickled, arrives usable; the module's globals do not travel."""
    one.check({"path": "a"})
    data = pickle.dumps(one)
    assert SECRET_KEY.encode() not in data
    back: Any = pickle.loads(data)
    assert (back.name, back.tier, back.spec) == (one.name, one.tier, one.spec)
    assert back.invoke(back.check({"path": "a"}), None) == one.invoke({"path": "a"}, None)  # pyright: ignore[reportArgumentType] - no context
    assert (back is one) == (one is look)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (inner(), "because 'inner' defines it: move it to the top level of a module."),
        (Tool(lambda path: path, name="short"), "because it is a lambda: write a function at the top level"),
        (
            Tool(Client(threading.Lock()).fetch),
            "because its object of type Client cannot be pickled (cannot pickle '_thread.lock' object).",
        ),
    ],
    ids=["closure", "lambda", "lock"],
)
def test_a_tool_that_cannot_travel_says_so(one: Tool, why: str) -> None:
    """A closure, a lambda or an object with a lock gives one sentence that names the tool."""
    with pytest.raises(UsageError) as caught:
        pickle.dumps(one)
    said = str(caught.value)
    assert said.startswith(f"The tool {one.name!r} cannot be sent to another process, because ")
    assert why in said
    assert "\n" not in said


def test_a_tool_that_is_missing_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that the receiving process does not have gives one sentence."""
    data = pickle.dumps(look)
    monkeypatch.delitem(globals(), "look")
    with pytest.raises(UsageError, match=r"has no tool 'look' here: install the same version"):
        pickle.loads(data)


def test_copies_do_not_pickle() -> None:
    """Copying works for every tool, and a copy is another tool."""
    for one in (look, inner()):
        for made in (copy.copy(one), copy.deepcopy(one)):
            assert made is not one
            assert made.spec == one.spec
