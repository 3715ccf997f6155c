"""How to go on with a run: by `remit resume` only where that works, in its own program where a program started it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from commandbench import Bench, Waiting, make_bench, remit, two_scouts

import remit.cli.commands.watch as watch
import remit.cli.follow as following
import remit.cli.jobs.approval_answers as approval_answers
from remit.cli.run_lookup import NamedRun
from remit.testing import ScriptedModel, call, refuse, say
from remit.types.events import ApprovalRequested

pytestmark = pytest.mark.real_time

PROGRAM = "in its own program, remit.resume(store, 'abcdefghjk', agent=..., model=...)"
WAYS = [(True, "remit resume abcde"), (False, PROGRAM)]
"""Whether `remit run` started it, and what is said then."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(following, "LOOK_S", 0.1)
    monkeypatch.setattr(following, "POLL_S", 0.02)
    monkeypatch.setattr(approval_answers, "HEARD_S", 0.05)
    return make_bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(("called", "way"), WAYS)
def test_of_an_interrupted_run(bench: Bench, *, called: bool, way: str) -> None:
    """Every command that meets a run whose process is gone says the way on that works for it."""
    bench.interrupted(called=called)
    assert remit("show").out.endswith(f"Go on with it: {way}\n")
    assert remit("watch").err.endswith(f"No process runs abcde any more. To go on with it: {way}\n")
    assert remit("cancel", "last").err.endswith(f"no process runs it. To go on with it: {way}\n")
    assert remit("send", "last", "hello").err.endswith(f"so it joins when that goes on: {way}\n")


@pytest.mark.parametrize(("called", "way"), WAYS)
def test_of_a_cancelled_run(bench: Bench, *, called: bool, way: str) -> None:
    """Whoever cancels a run, or watches or cancels it when it was, reads the way on that works for it."""
    with bench.running(Waiting(), called=called):
        assert remit("cancel", "last").err == f"abcde was cancelled. To go on with it: {way}\n"
    assert remit("watch").err.endswith(f"To go on with it: {way}\n")
    assert remit("cancel", "last").err.endswith(f"it ended before (cancelled). To go on with it: {way}\n")


@pytest.mark.parametrize(("called", "way"), WAYS)
def test_of_an_answer_that_is_kept(bench: Bench, *, called: bool, way: str) -> None:
    """An answer to a run that nobody runs counts when it goes on: in the way that works for it."""
    model = ScriptedModel([call("publish", page="news"), say("Done.")])
    with bench.running(model, called=called) as tree:
        tree.wait_for(bench, ApprovalRequested)
        asked = len(bench.events(tree.id))
    asyncio.run(bench.cut(tree.id, asked))
    assert remit("approve", "abcde").err.endswith(f"it counts when the run goes on: {way}\n")


@pytest.mark.parametrize(("called", "way"), [(True, "remit resume abcdefghjk"), (False, PROGRAM)])
def test_of_an_interrupted_run_that_the_doctor_finds(bench: Bench, *, called: bool, way: str) -> None:
    """`remit doctor` gives the same advice."""
    bench.interrupted(called=called)
    found = json.loads(remit("doctor", "--json").out)["findings"]
    assert way in [one.get("fix") for one in found if one["topic"] == "journal"]


@pytest.mark.parametrize(
    ("called", "way"),
    [
        (True, "remit resume abcde TEXT"),
        (False, "in its own program, remit.run(agent, TEXT, history=outcome.messages)"),
    ],
)
def test_of_a_conversation(bench: Bench, *, called: bool, way: str) -> None:
    """A run that has completed cannot be told anything; its conversation goes on in the way that works for it."""
    bench.run(two_scouts(), called=called)
    assert remit("send", "last", "hello").err.endswith(f"To ask more: {way}\n")
    if not called:
        assert remit("resume", "last").err.endswith(f"To go on with its conversation: {way}\n")


def test_of_a_run_that_does_not_go_on(bench: Bench) -> None:
    """A run that failed or was refused stays as it is: whoever would cancel it is told to look at it instead."""
    bench.run(ScriptedModel([refuse("No.")]), called=True)
    assert remit("cancel", "last").err.endswith("it ended before (refused). See: remit show abcde\n")


def test_a_hint_names_the_run_that_was_meant(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in `remit watch` names the watched run by its id, since by then another one may be the last."""

    async def interrupted(store: object, found: NamedRun, display: object) -> None:
        del store, found, display
        raise KeyboardInterrupt

    bench.run(two_scouts())
    monkeypatch.setattr(watch, "_show", interrupted)
    assert remit("watch").err == "The run goes on. To stop it: remit cancel abcde\n"
    assert remit("send", "last", " ").err.endswith("remit send RUN TEXT\n")
