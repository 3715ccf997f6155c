"""`remit cancel`, `send`, `approve`, `deny`, `rm` and `trust`: what they do, and what they say when it cannot be done."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import click
import pytest
from commandbench import Bench, Waiting, make_bench, remit, two_scouts

import remit.cli.commands.cancel as cancel
import remit.cli.commands.rm as rm
import remit.cli.follow as following
import remit.cli.jobs.approval_answers as approval_answers
import remit.cli.run_lookup as run_lookup
import remit.remote as remote
from remit import Agent, Status
from remit.stores import open_store
from remit.testing import ScriptedModel, call, calls, say
from remit.types.events import ApprovalRequested, RunEnded, TurnStarted

pytestmark = pytest.mark.real_time


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(following, "LOOK_S", 0.1)
    monkeypatch.setattr(following, "POLL_S", 0.02)
    return make_bench(tmp_path, monkeypatch)


# --- cancel ---------------------------------------------------------------------------------------


def test_cancel_stops_a_run_of_somebody_else(bench: Bench) -> None:
    """`cancel` returns when the run has stopped; who asked and why is in its outcome, and how to go on is said."""
    with bench.running(Waiting(), called=True) as tree:
        code, out, err = remit("cancel", "abc", "changed", "my", "mind")
        outcome = tree.outcome()
    assert (code, out) == (0, "")
    assert err == "abcde was cancelled. To go on with it: remit resume abcde\n"
    assert outcome.status is Status.CANCELLED
    assert "changed my mind" in outcome.reason


def test_cancel_of_a_child_leaves_the_rest(bench: Bench) -> None:
    """With a child's id only that child is stopped; its parent reads of it and goes on."""
    child = Agent("slow", description="Is slow.", model=Waiting())
    model = ScriptedModel({"lead": [call("task", agent="slow", prompt="Wait"), say("Without it.")]})
    with bench.running(model, agent=Agent("lead", subagents=[child])) as tree:
        tree.wait_for(bench, TurnStarted, 2)
        code, _, err = remit("cancel", "abcde.1")
        outcome = tree.outcome()
    assert code == 0
    assert err == "abcde.1 was cancelled. See: remit show abcde.1\n"
    assert outcome.text == "Without it."
    assert outcome.children[0].status is Status.CANCELLED


def test_cancel_does_not_wait_if_told_so(bench: Bench) -> None:
    """--no-wait only asks."""
    with bench.running(Waiting()) as tree:
        assert remit("cancel", "abcde", "--no-wait").err == "abcde was asked to stop.\n"
        assert tree.outcome().status is Status.CANCELLED


def test_what_has_ended_cannot_be_cancelled(bench: Bench) -> None:
    """A run that has ended, or that nobody runs, is not cancelled: exit code 1, and why."""
    bench.run(two_scouts())
    code, _, err = remit("cancel", "abcde")
    assert code == 1
    assert err == "abcde cannot be cancelled: it ended before (completed). See: remit show abcde\n"
    bench.interrupted(called=True)
    code, _, err = remit("cancel", "last")
    assert code == 1
    assert "no process runs it" in err
    assert "remit resume mnpqr" in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cancel", "abcde cannot be cancelled: it ended before (completed). See: remit show abcde\n"),
        (
            "send",
            "abcde has ended (completed) and has no turn to come. To ask more: remit resume abcde TEXT\n",
        ),
    ],
    ids=["cancel", "send"],
)
def test_what_ends_while_it_is_looked_at_has_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    """A run that ends between the look at it and the asking is told as ended, not as one that nobody runs."""
    model = Waiting()
    with bench.running(model, called=True) as tree:
        ask = getattr(remote, command)

        async def late(*args: str) -> bool:
            model.go.set()
            tree.outcome()
            return await ask(*args)

        monkeypatch.setattr(remote, command, late)
        assert remit(command, "abcde", "enough") == (1, "", said)


# --- send -----------------------------------------------------------------------------------------


def test_what_is_sent_joins_the_next_turn(bench: Bench) -> None:
    """A message to a live run is in its conversation when its model is asked next."""
    slow, other = Waiting(), Waiting()
    agent = Agent(
        "lead", subagents=[Agent("slow", description="S.", model=slow), Agent("other", model=other)]
    )
    both = calls(call("task", agent="slow", prompt="Wait"), call("task", agent="other", prompt="Wait"))
    model = ScriptedModel({"lead": [both, lambda request: say(f"Told: {request.messages[-1].text}")]})
    with bench.running(model, agent=agent) as tree:
        tree.wait_for(bench, TurnStarted, 3)
        code, out, err = remit("send", "abcde", "be", "brief")
        # Commands are obeyed in order: once this one was, so was that one.
        remit("cancel", "abcde.2")
        slow.go.set()
        outcome = tree.outcome()
    assert (code, out) == (0, "")
    assert err == "Sent: it joins the next turn of abcde (lead).\n"
    assert outcome.text == "Told: be brief"


def test_a_message_leaves_out_the_secrets_of_the_settings(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent waits in the journal, so it is redacted like everything there."""
    root, secret = bench.interrupted(), "acme_live_" + "0a1b2c3d" * 4
    monkeypatch.setenv("REMIT_TRUST", "1")
    for toml, kept in (("", True), ('[secrets.acme]\nprefix = "acme_live_"\n', False)):
        Path("remit.toml").write_text(toml, encoding="utf-8")
        remit("send", root, "use", secret)
        with closing(sqlite3.connect(bench.folder / "runs.db")) as journal, journal:
            (posted,) = journal.execute("SELECT data FROM remit_commands ORDER BY rowid DESC").fetchone()
        assert (secret in str(posted)) is kept


def test_a_message_to_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message to a run that has completed is refused; one to an interrupted run is kept until it goes on."""
    bench.run(two_scouts())
    code, _, err = remit("send", "abcde", "hello")
    assert code == 1
    assert "has ended (completed) and has no turn to come" in err
    bench.interrupted()
    code, _, err = remit("send", "mnpqr", "hello")
    assert code == 0
    assert err.startswith("Kept: no process runs mnpqr")
    assert remit("send", "abcde").code == 2
    assert remit("send", "abcde", "  ").code == 2


# --- approve and deny -----------------------------------------------------------------------------


def test_approve_shows_what_it_allows_and_that_it_was_heard(bench: Bench) -> None:
    """With one request waiting the run's id is enough; what is allowed is shown, and the call then runs."""
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        listed = remit("approve")
        code, out, err = remit("approve", "abcde")
        outcome = tree.outcome()
    assert listed.code == 0
    assert "abcde/1\nlead › publish asks:\n  page: news\n" in listed.out
    assert (code, out) == (0, "")
    assert err.startswith("lead › publish asks:\n  page: news\nTask: Look around\n")
    assert err.endswith("abcde/1: allowed.\n")
    assert outcome.calls[0].success


def test_deny_gives_the_model_the_reason(bench: Bench) -> None:
    """A denied call is a failed result that has the person's words."""
    with bench.running(ScriptedModel([call("publish", page="news"), say("Then not.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        code, _, err = remit("deny", "abcde/1", "not", "on", "a", "Friday")
        outcome = tree.outcome()
    assert code == 0
    assert err.endswith("abcde/1: denied.\n")
    assert "not on a Friday" in outcome.messages[2].text


def test_one_yes_for_the_rest_of_the_run(bench: Bench) -> None:
    """--run allows the tool for the rest of that run, so that nobody is asked again."""
    model = ScriptedModel([call("publish", page="a"), call("publish", page="b"), say("Done.")])
    with bench.running(model) as tree:
        tree.wait_for(bench, ApprovalRequested)
        err = remit("approve", "abcde", "--run").err
        outcome = tree.outcome()
    assert err.endswith("abcde/1: allowed for the rest of the run.\n")
    assert [entry.success for entry in outcome.calls] == [True, True]


def test_with_several_waiting_one_has_to_be_named(bench: Bench) -> None:
    """Several requests are listed with the command for each; --all answers them all."""
    pages = ("a", "b", "c")
    model = ScriptedModel([calls(*(call("publish", page=page) for page in pages)), say("Done.")])
    with bench.running(model) as tree:
        tree.wait_for(bench, ApprovalRequested, 3)
        several = remit("approve", "abcde")
        one = remit("approve", "abcde/2")
        rest = remit("deny", "abcde", "--all")
        outcome = tree.outcome()
    assert several.code == 2
    assert several.err.startswith("abcde waits for 3 answers. Say which one, or --all:\n")
    assert all(f"remit approve abcde/{number}\n" in several.err for number in (1, 2, 3))
    assert (one.code, one.err.splitlines()[-1]) == (0, "abcde/2: allowed.")
    assert sorted(rest.err.splitlines()[-2:]) == ["abcde/1: denied.", "abcde/3: denied."]
    assert [entry.success for entry in outcome.calls] == [False, True, False]


def test_an_answer_without_a_question(bench: Bench) -> None:
    """What waits for nothing cannot be answered: exit code 1; what is no request at all: 2."""
    bench.run(ScriptedModel([say("Done.")]))
    assert remit("approve", "abcde") == (
        1,
        "",
        "abcde waits for no answer. `remit show abcde` says how it is.\n",
    )
    assert remit("deny", "abcde/3") == (1, "", "abcde/3 waits for no answer any more.\n")
    assert remit("approve", "abcde/x").code == 2
    assert remit("approve", "--all").code == 2
    assert remit("approve", "abcde", "--run", "--tree").code == 2
    assert remit("deny").err == "No running tree waits for an answer.\n"


def test_an_answer_to_a_dead_run_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to a run that nobody runs counts when it goes on, and that is said."""
    monkeypatch.setattr(approval_answers, "HEARD_S", 0.05)
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")]), called=True) as tree:
        tree.wait_for(bench, ApprovalRequested)
        asked = len(bench.events(tree.id))
    asyncio.run(bench.cut(tree.id, asked))
    code, _, err = remit("approve", "abcde")
    assert code == 0
    assert err.endswith("Kept: no process runs abcde; it counts when the run goes on: remit resume abcde\n")


# --- rm -------------------------------------------------------------------------------------------


def _left(bench: Bench) -> list[str]:
    async def read() -> list[str]:
        store = open_store(bench.url)
        found = [info.root for info in await store.trees()]
        await store.close()
        return found

    return asyncio.run(read())


def test_one_run_is_deleted(bench: Bench) -> None:
    """A run that is named is deleted, with -y without a question; a part of a tree cannot be."""
    bench.run(two_scouts())
    bench.run(two_scouts())
    assert remit("rm", "abcde.1").code == 2
    assert remit("rm", "abcde", "-y") == (0, "", "Deleted 1 run.\n")
    assert _left(bench) == ["mnpqrstuvw"]


def test_several_are_deleted_only_when_meant(bench: Bench) -> None:
    """Without a terminal to ask at, several are deleted only with --yes."""
    for _ in range(3):
        bench.run(ScriptedModel([say("Done.")]))
    code, _, err = remit("rm", "--keep", "1")
    assert code == 2
    assert err.endswith("`remit rm` needs --yes. It would delete 2 runs: mnpqr, abcde.\n")
    assert len(_left(bench)) == 3
    assert remit("rm", "--keep", "1", "--yes").err == "Deleted 2 runs.\n"
    assert _left(bench) == ["xyz2345678"]
    assert remit("rm", "--keep", "1", "--yes") == (0, "", "Nothing was deleted.\n")


def test_old_ones_are_deleted_by_their_last_event(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """--older-than takes those that were quiet for longer; those that could go on stay unless --unfinished."""
    bench.run(ScriptedModel([say("Done.")]))
    bench.interrupted()
    assert remit("rm", "--older-than", "1h", "--yes").err == "Nothing was deleted.\n"
    later = time.time() + 7200
    monkeypatch.setattr(rm.time, "time", lambda: later)
    assert remit("rm", "--older-than", "1h", "--yes").err == "Deleted 1 run.\n"
    assert _left(bench) == ["mnpqrstuvw"]
    assert remit("rm", "--older-than", "1h", "--unfinished", "--yes").err == "Deleted 1 run.\n"


def test_a_live_run_is_never_deleted(bench: Bench) -> None:
    """Neither a name nor a rule deletes what a process works on; a name says why, with exit code 1."""
    with bench.running(Waiting()):
        code, _, err = remit("rm", "abcde", "--yes")
        assert code == 1
        assert "is being run (pid " in err
        assert "remit cancel abcde" in err
        assert remit("rm", "--keep", "0", "--unfinished", "--yes").code == 0
        assert _left(bench) == ["abcdefghjk"]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("abcde", "--keep", "1"),
        ("--keep", "-1"),
        ("--older-than", "soon"),
        ("--older-than", ""),
        ("nothing",),
    ],
)
def test_rm_used_wrongly_deletes_nothing(bench: Bench, args: tuple[str, ...]) -> None:
    """Wrong use of `rm` is one sentence, exit code 2, and nothing is gone."""
    bench.run(ScriptedModel([say("Done.")]))
    code, out, err = remit("rm", *args, "--yes")
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err
    assert len(_left(bench)) == 1


# --- trust ----------------------------------------------------------------------------------------


def test_trust_shows_what_is_followed_from_now_on(bench: Bench) -> None:
    """`trust --yes` trusts the repository as it is, says what it asks for, and takes it back with --revoke."""
    Path(".git").mkdir()
    Path("below").mkdir()
    Path("remit.toml").write_text('[policy]\nallow = ["terminal"]\n')
    here = str(Path.cwd())
    assert remit("trust", "--list") == (0, "", "No project is trusted yet. In its folder: remit trust\n")
    code, out, err = remit("trust", "--yes", "below")
    assert (code, out) == (0, "")
    assert f'{here} (remit.toml) asks for:\n  policy = "allow terminal"\n{here} is trusted now.' in err
    assert "is trusted already" in remit("trust").err
    assert remit("trust", "--list").out == f"{here}\n"
    assert remit("trust", "--revoke").err == f"{here} is no longer trusted.\n"
    assert remit("trust", "--revoke").code == 1
    assert remit("trust", "--list").out == ""


def test_trust_without_a_terminal_needs_a_yes(bench: Bench) -> None:
    """Without a terminal `trust` is one sentence and exit code 2, and trusts nothing; `--yes` shows what changed."""
    Path("remit.toml").write_text('sandbox = "read-only"\n')
    code, out, err = remit("trust")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "remit trust --yes" in err
    assert remit("trust", "--list").out == ""
    assert remit("trust", "--yes").code == 0
    Path("remit.toml").write_text('sandbox = "open"\n')
    assert '\n  - sandbox = "read-only"\n  + sandbox = "open"\n' in remit("trust", "--yes").err


@pytest.mark.parametrize(
    "args", [("nowhere",), ("--list", "--revoke"), ("--list", "."), ("--yes", "--revoke")]
)
def test_trust_used_wrongly(bench: Bench, args: tuple[str, ...]) -> None:
    """Wrong use of `trust`: one sentence, exit code 2, the list unchanged."""
    code, _, err = remit("trust", *args)
    assert code == 2
    assert "Traceback" not in err
    assert remit("trust", "--list").out == ""


def test_home_is_no_project(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home folder cannot be trusted as a whole."""
    monkeypatch.chdir(bench.folder / "home")
    code, _, err = remit("trust", "--yes")
    assert code == 2
    assert "is not a project" in err


def test_the_next_command_is_about_the_same_journal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are suggested name the journal that was named, without a password."""
    bench.interrupted(called=True)
    monkeypatch.delenv("REMIT_JOURNAL")
    said = remit("cancel", "abcde", "--journal", bench.url).err
    assert said.endswith(f"To go on with it: remit resume abcde --journal {bench.url}\n")
    with click.Context(cancel.command) as context:
        context.params["journal"] = "postgresql://me:secret@host/db"
        assert run_lookup.hint("runs") == "remit runs --journal 'postgresql://me:***@host/db'"


# --- Wrong use of all of them ---------------------------------------------------------------------


@pytest.mark.parametrize("command", ["cancel", "send", "approve", "deny", "show", "watch", "rm"])
def test_an_unknown_run_is_wrong_use(bench: Bench, command: str) -> None:
    """Every command says of an unknown run in one sentence what to do, with exit code 2."""
    bench.run(ScriptedModel([say("Done.")]))
    code, out, err = remit(command, "zzzzz", *(["text"] if command == "send" else []))
    assert (code, out) == (2, "")
    assert err == "There is no run 'zzzzz'. `remit runs` lists those there are.\n"


@pytest.mark.parametrize(
    "command",
    ["runs", "show", "watch", "cancel", "send", "approve", "deny", "rm", "agents", "doctor", "trust"],
)
def test_an_unknown_option_is_wrong_use(bench: Bench, command: str) -> None:
    """An option that there is not: a sentence and the right form, exit code 2, no traceback."""
    code, out, err = remit(command, "--bogus")
    assert (code, out) == (2, "")
    assert "--bogus" in err
    assert f"remit {command}" in err
    assert "Traceback" not in err


def test_everything_ends(bench: Bench) -> None:
    """A tree that was run by these tests has an end in the journal."""
    with bench.running(Waiting()):
        remit("cancel", "abcde")
    assert isinstance(bench.events("abcdefghjk")[-1], RunEnded)
