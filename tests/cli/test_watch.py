"""`remit watch`: shows a run from its first event to its end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from commandbench import Bench, Waiting, make_bench, remit, two_scouts

import remit.cli.commands.watch as watch
import remit.cli.follow as following
import remit.engine.terminal_prompt as asking
import remit.remote as remote
from remit import Agent, ApprovalRequest, Limits
from remit.cli.run_lookup import NamedRun, find
from remit.stores import open_store
from remit.testing import ScriptedModel, call, calls, crash, refuse, say, wrapped
from remit.types.events import ApprovalRequested, Event, RunEnded

pytestmark = pytest.mark.real_time


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(following, "LOOK_S", 0.1)
    monkeypatch.setattr(following, "POLL_S", 0.02)
    return make_bench(tmp_path, monkeypatch)


def test_an_ended_run_is_shown_from_the_journal(bench: Bench) -> None:
    """Events and the totals go to standard error; only the answer goes to standard output."""
    bench.run(two_scouts())
    code, out, err = remit("watch", "abcde")
    lines = err.splitlines()
    assert (code, out) == (0, "All is well.\n")
    assert "lead: started: Look around" in lines[0]
    for number in (1, 2):
        assert sum(f"lead › scout ({number}): completed" in line for line in lines) == 1
    assert lines[-1].startswith("3 runs")
    assert "90 tokens" in lines[-1]


@pytest.mark.parametrize(
    ("model", "limits", "code"),
    [
        (ScriptedModel([crash("a bug")]), None, 1),
        (ScriptedModel([refuse("No.")]), None, 3),
        (ScriptedModel([call("look", path="x"), wrapped("Half.")]), Limits(turns=1), 4),
        (ScriptedModel([call("look", path="x")]), Limits(requests=1), 5),
    ],
)
def test_the_exit_code_is_the_runs(
    bench: Bench, model: ScriptedModel, limits: Limits | None, code: int
) -> None:
    """The exit code of `watch` is the one of `remit run`, for every status."""
    bench.run(model, limits=limits)
    assert remit("watch").code == code


def test_a_live_run_is_followed_to_its_end(bench: Bench) -> None:
    """Following a live run returns the past events, then the new ones, and ends when the run does."""
    model = Waiting()
    heard: list[Event] = []

    async def follow() -> None:
        store = open_store(bench.url)
        found = find(await store.trees(), "abc")

        def hear(event: Event) -> None:
            heard.append(event)
            # It continues only once the reader has seen an event.
            model.go.set()

        tree = await following.follow(store, found, hear)
        assert tree.outcome().text == "Heard: Look around"
        await store.close()

    with bench.running(model):
        asyncio.run(follow())
    assert heard == bench.events("abcdefghjk")
    assert isinstance(heard[-1], RunEnded)


def test_a_dead_run_ends_watch(bench: Bench) -> None:
    """`watch` does not wait for a run whose process is gone: exit code 7, and how to resume it."""
    bench.interrupted(called=True)
    code, _, err = remit("watch")
    assert code == 7
    assert "No process runs abcde any more. Resume: remit resume abcde" in err


def test_open_requests_are_shown_with_the_commands(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open request is shown whole, once, with the commands that answer it."""
    shown = threading.Event()

    def in_words(request: ApprovalRequest) -> str:
        shown.set()
        return asking.in_words(request)

    def answer() -> None:
        assert shown.wait(20)
        asyncio.run(remote.approve(bench.url, "abcdefghjk/approval1"))

    monkeypatch.setattr(watch, "in_words", in_words)
    other = threading.Thread(target=answer)
    other.start()
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        code, out, err = remit("watch")
    other.join(20)
    assert (code, out) == (0, "Done.\n")
    assert err.count("lead › publish asks:\n  page: news\nTask: Look around\n") == 1
    assert err.count("Answer: remit approve abcde/1, or remit deny abcde/1 REASON") == 1


def test_a_child_is_watched_to_its_own_end(bench: Bench) -> None:
    """With a child's id `watch` ends with that child and prints its answer, while its parent continues."""
    patient = Agent("lead", subagents=[Agent("scout", description="Looks."), Agent("slow", model=Waiting())])
    both = calls(call("task", agent="scout", prompt="Look"), call("task", agent="slow", prompt="Wait"))
    model = ScriptedModel({"lead": [both], "scout": [say("Seen.")]})
    with bench.running(model, agent=patient) as tree:
        tree.wait_for(bench, RunEnded)
        assert remit("watch", "abcde.1")[:2] == (0, "Seen.\n")
        assert remit("watch", "abcde.9").code == 2


def test_a_run_that_is_deleted_while_watched(bench: Bench) -> None:
    """`watch` reports that the run was deleted, and ends."""
    bench.run(two_scouts())
    found = asyncio.run(_find(bench))
    assert remit("rm", "abcde", "--yes").code == 0

    async def follow() -> None:
        store = open_store(bench.url)
        assert not (await following.follow(store, found)).runs
        await store.close()

    asyncio.run(follow())


async def _find(bench: Bench) -> NamedRun:
    store = open_store(bench.url)
    found = find(await store.trees(), "abcde")
    await store.close()
    return found


def test_events_cannot_control_the_terminal(bench: Bench) -> None:
    """Lines and answer have control characters escaped."""
    bench.run(ScriptedModel([say("\x1b[2Jbye\u202e")]), "\x1b]0;owned\x07")
    code, out, err = remit("watch")
    assert code == 0
    assert out == "\\x1b[2Jbye\\u202e\n"
    assert "\x1b" not in err


def test_quiet_prints_only_the_answer(bench: Bench) -> None:
    """--quiet prints only the answer of the run."""
    bench.run(two_scouts())
    assert remit("watch", "--quiet") == (0, "All is well.\n", "")
