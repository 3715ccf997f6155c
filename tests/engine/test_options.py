"""The options of `run`, `run_sync`, `start`, `resume` and `reopen` are written once and shown by each of them."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

from remit import Agent, Limits, UsageError, reopen, resume, run, run_sync, start
from remit.testing import ScriptedModel, run_virtual, say

SHARED = ["model", "models", "limits", "approver", "policy", "sandbox", "workspace", "on_event"]
SHARED += ["on_call", "on_result", "show", "strict", "deps"]
# Without a type checker's eye, as most people write.
WAYS_IN: list[Any] = [run, run_sync, start]
WAYS_BACK: list[Any] = [resume, reopen]


@pytest.mark.parametrize("function", WAYS_IN + WAYS_BACK, ids=lambda f: f.__name__)
def test_signature_and_help_show_each_option(function: Callable[..., object]) -> None:
    """Every option is in the signature, with its type and default, and in help()."""
    parameters = inspect.signature(function).parameters
    new = function in WAYS_IN
    first = ["agent", "task"] if new else ["store", "run_id", "agent"]
    assert list(parameters) == [*first, *SHARED, *(["store", "history", "run_id"] if new else [])]
    for name in SHARED:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default is (False if name == "show" else None)
    assert parameters["limits"].annotation == "Limits | None"
    assert inspect.iscoroutinefunction(function) == (function in (run, resume))
    shown = pydoc.plain(pydoc.render_doc(function))
    assert all(f"    {name}: " in shown for name in SHARED)
    assert ("history: the messages" in shown) == new
    if new:
        assert parameters["history"].default == ()


@pytest.mark.parametrize("function", WAYS_IN + WAYS_BACK, ids=lambda f: f.__name__)
def test_an_unknown_option_is_reported_before_anything_runs(function: Callable[..., object]) -> None:
    """An unknown option is a UsageError that names the function and the option that was probably meant."""
    model = ScriptedModel([say("done")])
    agent = Agent("lead")
    args = (agent, "go") if function in WAYS_IN else ("sqlite:///absent.db", "abcdefghjk")
    named = {} if function in WAYS_IN else {"agent": agent}

    def drive(made: object) -> None:
        if inspect.iscoroutine(made):
            run_virtual(made)

    with pytest.raises(
        UsageError, match=rf"^{function.__name__}\(\) has no option 'limit'\. Did you mean 'limits'\?"
    ):
        drive(function(*args, **named, model=model, limit=Limits(turns=1)))
    assert model.requests == []


def typed(agent: Agent) -> None:
    """Never called: the type checker must reject each of these. An ignore that is not needed is an error too."""
    start(agent, "go", limit=Limits())  # pyright: ignore[reportCallIssue]
    start(agent, "go", limits=3)  # pyright: ignore[reportArgumentType]
    run_sync(agent, "go", history=None)  # pyright: ignore[reportArgumentType]
    reopen("sqlite:///runs.db", "r1", agent=agent, store="x")  # pyright: ignore[reportCallIssue]
    reopen("sqlite:///runs.db", "r1", agent=agent, history=())  # pyright: ignore[reportCallIssue]
