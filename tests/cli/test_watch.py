"""`remit watch`: what was done, then what is done, up to the end."""

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


def test_a_run_that_has_ended_is_told_from_the_journal(bench: Bench) -> None:
    """What happened goes to standard error, the tree's sum last; the answer alone goes to standard output."""
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
    """However the run ended, the exit code of watching it is the one that `remit run` had."""
    bench.run(model, limits=limits)
    assert remit("watch").code == code


def test_a_live_run_is_followed_to_its_end(bench: Bench) -> None:
    """Following a run that is under way gives what was there, then what is added, and ends when the run does."""
    model = Waiting()
    heard: list[Event] = []

    async def follow() -> None:
        store = open_store(bench.url)
        found = find(await store.trees(), "abc")

        def hear(event: Event) -> None:
            heard.append(event)
            # It goes on only once somebody has heard of it.
            model.go.set()

        tree = await following.follow(store, found, hear)
        assert tree.outcome().text == "Heard: Look around"
        await store.close()

    with bench.running(model):
        asyncio.run(follow())
    assert heard == bench.events("abcdefghjk")
    assert isinstance(heard[-1], RunEnded)


def test_a_dead_run_is_said_to_be_dead(bench: Bench) -> None:
    """Nobody waits for ever for a run whose process is gone: exit code 7, and how to go on with it."""
    bench.interrupted(called=True)
    code, _, err = remit("watch")
    assert code == 7
    assert "No process runs abcde any more. To go on with it: remit resume abcde" in err


def test_what_is_asked_is_shown_with_how_to_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits is shown whole, once, with the commands that answer it."""
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
    """With a child's id the watching ends with that child, with its answer, while its parent goes on."""
    patient = Agent("lead", subagents=[Agent("scout", description="Looks."), Agent("slow", model=Waiting())])
    both = calls(call("task", agent="scout", prompt="Look"), call("task", agent="slow", prompt="Wait"))
    model = ScriptedModel({"lead": [both], "scout": [say("Seen.")]})
    with bench.running(model, agent=patient) as tree:
        tree.wait_for(bench, RunEnded)
        assert remit("watch", "abcde.1")[:2] == (0, "Seen.\n")
        assert remit("watch", "abcde.9").code == 2


def test_a_run_that_is_deleted_meanwhile(bench: Bench) -> None:
    """Somebody who watches a run that another deletes is told so, and does not wait for ever."""
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


def test_what_was_said_cannot_drive_the_terminal(bench: Bench) -> None:
    """Lines and answer show control characters as escapes."""
    bench.run(ScriptedModel([say("\x1b[2Jbye\u202e")]), "\x1b]0;owned\x07")
    code, out, err = remit("watch")
    assert code == 0
    assert out == "\\x1b[2Jbye\\u202e\n"
    assert "\x1b" not in err


def test_quiet_is_the_answer_alone(bench: Bench) -> None:
    """--quiet prints what the run answered and nothing else."""
    bench.run(two_scouts())
    assert remit("watch", "--quiet") == (0, "All is well.\n", "")
