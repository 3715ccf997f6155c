"""Hints on resuming: `remit resume` only if that works, else the call in the program that started the run."""

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
"""Whether `remit run` started the run, and the expected hint."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(following, "LOOK_S", 0.1)
    monkeypatch.setattr(following, "POLL_S", 0.02)
    monkeypatch.setattr(approval_answers, "HEARD_S", 0.05)
    return make_bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(("called", "way"), WAYS)
def test_an_interrupted_run(bench: Bench, *, called: bool, way: str) -> None:
    """Every command that finds a run without a process prints the hint that works for it."""
    bench.interrupted(called=called)
    assert remit("show").out.endswith(f"Resume: {way}\n")
    assert remit("watch").err.endswith(f"No process runs abcde any more. Resume: {way}\n")
    assert remit("cancel", "last").err.endswith(f"when the run is resumed. Resume: {way}\n")
    assert remit("send", "last", "hello").err.endswith(f"Its model reads the message after a resume: {way}\n")


@pytest.mark.parametrize(("called", "way"), WAYS)
def test_a_cancelled_run(bench: Bench, *, called: bool, way: str) -> None:
    """`cancel` and `watch` print the hint that works for a cancelled run."""
    with bench.running(Waiting(), called=called):
        assert remit("cancel", "last").err == f"abcde was cancelled. Resume: {way}\n"
    assert remit("watch").err.endswith(f"Resume: {way}\n")
    assert remit("cancel", "last").err.endswith(f"it has already ended (cancelled). Resume: {way}\n")


@pytest.mark.parametrize(("called", "way"), WAYS)
def test_a_stored_answer(bench: Bench, *, called: bool, way: str) -> None:
    """An answer to a run without a process is printed with the resume hint that works for it."""
    model = ScriptedModel([call("publish", page="news"), say("Done.")])
    with bench.running(model, called=called) as tree:
        tree.wait_for(bench, ApprovalRequested)
        asked = len(bench.events(tree.id))
    asyncio.run(bench.cut(tree.id, asked))
    assert remit("approve", "abcde").err.endswith(f"The answer applies after a resume: {way}\n")


@pytest.mark.parametrize(("called", "way"), [(True, "remit resume abcdefghjk"), (False, PROGRAM)])
def test_doctor_has_the_same_hint(bench: Bench, *, called: bool, way: str) -> None:
    """`remit doctor` prints the same hint for interrupted runs."""
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
def test_continuing_a_conversation(bench: Bench, *, called: bool, way: str) -> None:
    """A message to a completed run is rejected with the hint that continues its conversation."""
    bench.run(two_scouts(), called=called)
    assert remit("send", "last", "hello").err.endswith(f"Continue its conversation: {way}\n")
    if not called:
        assert remit("resume", "last").err.endswith(f"Continue its conversation: {way}\n")


def test_a_run_that_cannot_be_resumed(bench: Bench) -> None:
    """For a failed or refused run, `cancel` suggests `remit show` instead of a resume."""
    bench.run(ScriptedModel([refuse("No.")]), called=True)
    assert remit("cancel", "last").err.endswith("it has already ended (refused). Details: remit show abcde\n")


def test_the_hint_of_watch_names_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in `remit watch` names the watched run by its id, since `last` may mean another run by then."""

    async def interrupted(store: object, found: NamedRun, display: object) -> None:
        del store, found, display
        raise KeyboardInterrupt

    bench.run(two_scouts())
    monkeypatch.setattr(watch, "_show", interrupted)
    assert remit("watch").err == "The run continues. To cancel it: remit cancel abcde\n"
    assert remit("send", "last", " ").err.endswith("remit send RUN TEXT\n")
