"""`remit cancel`, `send`, `approve`, `deny`, `rm` and `trust`: effects and error messages."""

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


def test_cancel_stops_a_run_of_another_process(bench: Bench) -> None:
    """`cancel` returns once the run has stopped; the outcome has who cancelled and why, and the output how to resume."""
    with bench.running(Waiting(), called=True) as tree:
        code, out, err = remit("cancel", "abc", "changed", "my", "mind")
        outcome = tree.outcome()
    assert (code, out) == (0, "")
    assert err == "abcde was cancelled. Resume: remit resume abcde\n"
    assert outcome.status is Status.CANCELLED
    assert "changed my mind" in outcome.reason


def test_cancel_of_a_child_stops_only_that_child(bench: Bench) -> None:
    """With a child's id only that child is cancelled; its parent reads the result and continues."""
    child = Agent("slow", description="Is slow.", model=Waiting())
    model = ScriptedModel({"lead": [call("task", agent="slow", prompt="Wait"), say("Without it.")]})
    with bench.running(model, agent=Agent("lead", subagents=[child])) as tree:
        tree.wait_for(bench, TurnStarted, 2)
        code, _, err = remit("cancel", "abcde.1")
        outcome = tree.outcome()
    assert code == 0
    assert err == "abcde.1 was cancelled. Details: remit show abcde.1\n"
    assert outcome.text == "Without it."
    assert outcome.children[0].status is Status.CANCELLED


def test_cancel_with_no_wait(bench: Bench) -> None:
    """--no-wait returns at once."""
    with bench.running(Waiting()) as tree:
        assert remit("cancel", "abcde", "--no-wait").err == "Cancel sent to abcde.\n"
        assert tree.outcome().status is Status.CANCELLED


def test_an_ended_run_cannot_be_cancelled(bench: Bench) -> None:
    """Cancelling a run that has ended fails with exit code 1; a cancel of a run without a process is recorded."""
    bench.run(two_scouts())
    code, _, err = remit("cancel", "abcde")
    assert code == 1
    assert err == "abcde cannot be cancelled: it has already ended (completed). Details: remit show abcde\n"
    bench.interrupted(called=True)
    code, _, err = remit("cancel", "last")
    assert code == 0
    assert "which no process runs: it takes effect when the run is resumed." in err
    assert "remit resume mnpqr" in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "cancel",
            "abcde cannot be cancelled: it has already ended (completed). Details: remit show abcde\n",
        ),
        (
            "send",
            "abcde has ended (completed), so it cannot receive messages. Continue its conversation: remit resume abcde TEXT\n",
        ),
    ],
    ids=["cancel", "send"],
)
def test_cancel_of_a_run_that_ends_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    """A run that ends between the lookup and the request is reported as ended, not as a run without a process."""
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


def test_a_sent_message_is_read_in_the_next_turn(bench: Bench) -> None:
    """A message to a live run is in the conversation of its next model call."""
    slow, other = Waiting(), Waiting()
    agent = Agent(
        "lead", subagents=[Agent("slow", description="S.", model=slow), Agent("other", model=other)]
    )
    both = calls(call("task", agent="slow", prompt="Wait"), call("task", agent="other", prompt="Wait"))
    model = ScriptedModel({"lead": [both, lambda request: say(f"Told: {request.messages[-1].text}")]})
    with bench.running(model, agent=agent) as tree:
        tree.wait_for(bench, TurnStarted, 3)
        code, out, err = remit("send", "abcde", "be", "brief")
        # Commands are handled in order: once this one was handled, so was the first.
        remit("cancel", "abcde.2")
        slow.go.set()
        outcome = tree.outcome()
    assert (code, out) == (0, "")
    assert err == "Sent to abcde (lead), for its next turn.\n"
    assert outcome.text == "Told: be brief"


def test_a_message_is_redacted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sent message waits in the journal, so the secrets of the settings are redacted from it."""
    root, secret = bench.interrupted(), "acme_live_" + "0a1b2c3d" * 4
    monkeypatch.setenv("REMIT_TRUST", "1")
    for toml, kept in (("", True), ('[secrets.acme]\nprefix = "acme_live_"\n', False)):
        Path("remit.toml").write_text(toml, encoding="utf-8")
        remit("send", root, "use", secret)
        with closing(sqlite3.connect(bench.folder / "runs.db")) as journal, journal:
            (posted,) = journal.execute("SELECT data FROM remit_commands ORDER BY rowid DESC").fetchone()
        assert (secret in str(posted)) is kept


def test_a_message_to_a_run_that_is_not_running(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message to a completed run is rejected; a message to an interrupted run is stored until it is resumed."""
    bench.run(two_scouts())
    code, _, err = remit("send", "abcde", "hello")
    assert code == 1
    assert "has ended (completed), so it cannot receive messages" in err
    bench.interrupted()
    code, _, err = remit("send", "mnpqr", "hello")
    assert code == 0
    assert err.startswith("Stored: no process runs mnpqr")
    assert remit("send", "abcde").code == 2
    assert remit("send", "abcde", "  ").code == 2


# --- approve and deny -----------------------------------------------------------------------------


def test_approve_shows_the_request_and_confirms_the_answer(bench: Bench) -> None:
    """With one open request the run's id is enough; the request is printed, and the call then runs."""
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
    """A denied call is a failed result with the person's reason."""
    with bench.running(ScriptedModel([call("publish", page="news"), say("Then not.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        code, _, err = remit("deny", "abcde/1", "not", "on", "a", "Friday")
        outcome = tree.outcome()
    assert code == 0
    assert err.endswith("abcde/1: denied.\n")
    assert "not on a Friday" in outcome.messages[2].text


def test_approve_for_the_rest_of_the_run(bench: Bench) -> None:
    """--run allows the tool for the rest of that run without further requests."""
    model = ScriptedModel([call("publish", page="a"), call("publish", page="b"), say("Done.")])
    with bench.running(model) as tree:
        tree.wait_for(bench, ApprovalRequested)
        err = remit("approve", "abcde", "--run").err
        outcome = tree.outcome()
    assert err.endswith("abcde/1: allowed for the rest of the run.\n")
    assert [entry.success for entry in outcome.calls] == [True, True]


def test_with_several_open_requests_one_must_be_named(bench: Bench) -> None:
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
    assert several.err.startswith("abcde has 3 open requests. Name one of them, or add --all:\n")
    assert all(f"remit approve abcde/{number}\n" in several.err for number in (1, 2, 3))
    assert (one.code, one.err.splitlines()[-1]) == (0, "abcde/2: allowed.")
    assert sorted(rest.err.splitlines()[-2:]) == ["abcde/1: denied.", "abcde/3: denied."]
    assert [entry.success for entry in outcome.calls] == [False, True, False]


def test_an_answer_without_a_request(bench: Bench) -> None:
    """Answering a run without an open request exits with 1; an invalid request id exits with 2."""
    bench.run(ScriptedModel([say("Done.")]))
    assert remit("approve", "abcde") == (
        1,
        "",
        "abcde has no open request. Details: remit show abcde\n",
    )
    assert remit("deny", "abcde/3") == (1, "", "abcde/3 is not open: it was answered, or never asked.\n")
    assert remit("approve", "abcde/x").code == 2
    assert remit("approve", "--all").code == 2
    assert remit("approve", "abcde", "--run", "--tree").code == 2
    assert remit("deny").err == "No open approval requests.\n"


def test_an_answer_to_an_interrupted_run_is_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to a run without a process applies after a resume, and the message says so."""
    monkeypatch.setattr(approval_answers, "HEARD_S", 0.05)
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")]), called=True) as tree:
        tree.wait_for(bench, ApprovalRequested)
        asked = len(bench.events(tree.id))
    asyncio.run(bench.cut(tree.id, asked))
    code, _, err = remit("approve", "abcde")
    assert code == 0
    assert err.endswith(
        "Stored: no process runs abcde. The answer applies after a resume: remit resume abcde\n"
    )


# --- rm -------------------------------------------------------------------------------------------


def _left(bench: Bench) -> list[str]:
    async def read() -> list[str]:
        store = open_store(bench.url)
        found = [info.root for info in await store.trees()]
        await store.close()
        return found

    return asyncio.run(read())


def test_one_run_is_deleted(bench: Bench) -> None:
    """A named run is deleted, with -y without a question; a child cannot be deleted alone."""
    bench.run(two_scouts())
    bench.run(two_scouts())
    assert remit("rm", "abcde.1").code == 2
    assert remit("rm", "abcde", "-y") == (0, "", "Deleted 1 run.\n")
    assert _left(bench) == ["mnpqrstuvw"]


def test_several_runs_are_deleted_only_with_yes(bench: Bench) -> None:
    """Without a terminal, several runs are deleted only with --yes."""
    for _ in range(3):
        bench.run(ScriptedModel([say("Done.")]))
    code, _, err = remit("rm", "--keep", "1")
    assert code == 2
    assert err.endswith("Add --yes to delete 2 runs: mnpqr, abcde.\n")
    assert len(_left(bench)) == 3
    assert remit("rm", "--keep", "1", "--yes").err == "Deleted 2 runs.\n"
    assert _left(bench) == ["xyz2345678"]
    assert remit("rm", "--keep", "1", "--yes") == (0, "", "Nothing was deleted.\n")


def test_old_runs_are_deleted_by_their_last_event(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """--older-than selects runs without newer events; runs that could be resumed stay, unless --unfinished."""
    bench.run(ScriptedModel([say("Done.")]))
    bench.interrupted()
    assert remit("rm", "--older-than", "1h", "--yes").err == "Nothing was deleted.\n"
    later = time.time() + 7200
    monkeypatch.setattr(rm.time, "time", lambda: later)
    assert remit("rm", "--older-than", "1h", "--yes").err == "Deleted 1 run.\n"
    assert _left(bench) == ["mnpqrstuvw"]
    assert remit("rm", "--older-than", "1h", "--unfinished", "--yes").err == "Deleted 1 run.\n"


def test_a_live_run_is_never_deleted(bench: Bench) -> None:
    """Neither a name nor a rule deletes a running tree; naming one prints the reason, with exit code 1."""
    with bench.running(Waiting()):
        code, _, err = remit("rm", "abcde", "--yes")
        assert code == 1
        assert "is running (pid " in err
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
def test_wrong_use_of_rm_deletes_nothing(bench: Bench, args: tuple[str, ...]) -> None:
    """Wrong use of `rm` prints one sentence, exits with 2 and deletes nothing."""
    bench.run(ScriptedModel([say("Done.")]))
    code, out, err = remit("rm", *args, "--yes")
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err
    assert len(_left(bench)) == 1


# --- trust ----------------------------------------------------------------------------------------


def test_trust_shows_the_settings_that_need_trust(bench: Bench) -> None:
    """`trust --yes` trusts the current settings and prints those that need trust; --revoke undoes it."""
    Path(".git").mkdir()
    Path("below").mkdir()
    Path("remit.toml").write_text('[policy]\nallow = ["terminal"]\n')
    here = str(Path.cwd())
    assert remit("trust", "--list") == (
        0,
        "",
        "No project is trusted yet. To trust one, run `remit trust` in its folder.\n",
    )
    code, out, err = remit("trust", "--yes", "below")
    assert (code, out) == (0, "")
    shown = f'Settings of {here} (remit.toml) that need trust:\n  policy = "allow terminal"\n'
    assert shown + f"{here} is trusted now." in err
    assert "is already trusted" in remit("trust").err
    assert remit("trust", "--list").out == f"{here}\n"
    assert remit("trust", "--revoke").err == f"{here} is no longer trusted.\n"
    assert remit("trust", "--revoke").code == 1
    assert remit("trust", "--list").out == ""


def test_trust_without_a_terminal_needs_yes(bench: Bench) -> None:
    """Without a terminal `trust` prints one sentence, exits with 2 and trusts nothing; `--yes` prints the changes."""
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
def test_wrong_use_of_trust(bench: Bench, args: tuple[str, ...]) -> None:
    """Wrong use of `trust` prints one sentence, exits with 2 and changes nothing."""
    code, _, err = remit("trust", *args)
    assert code == 2
    assert "Traceback" not in err
    assert remit("trust", "--list").out == ""


def test_home_is_not_a_project(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home folder cannot be trusted as a project."""
    monkeypatch.chdir(bench.folder / "home")
    code, _, err = remit("trust", "--yes")
    assert code == 2
    assert "is not a project" in err


def test_hints_name_the_same_journal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suggested commands repeat --journal, without a password."""
    bench.interrupted(called=True)
    monkeypatch.delenv("REMIT_JOURNAL")
    said = remit("cancel", "abcde", "--journal", bench.url).err
    assert said.endswith(f"Resume: remit resume abcde --journal {bench.url}\n")
    with click.Context(cancel.command) as context:
        context.params["journal"] = "postgresql://me:secret@host/db"
        assert run_lookup.hint("runs") == "remit runs --journal 'postgresql://me:***@host/db'"


# --- Wrong use of all commands --------------------------------------------------------------------


@pytest.mark.parametrize("command", ["cancel", "send", "approve", "deny", "show", "watch", "rm"])
def test_an_unknown_run_is_a_usage_error(bench: Bench, command: str) -> None:
    """Every command prints one sentence with a hint for an unknown run, with exit code 2."""
    bench.run(ScriptedModel([say("Done.")]))
    code, out, err = remit(command, "zzzzz", *(["text"] if command == "send" else []))
    assert (code, out) == (2, "")
    assert err == "No run 'zzzzz' in the journal. `remit runs` lists all runs.\n"


@pytest.mark.parametrize(
    "command",
    ["runs", "show", "watch", "cancel", "send", "approve", "deny", "rm", "agents", "doctor", "trust"],
)
def test_an_unknown_option_is_a_usage_error(bench: Bench, command: str) -> None:
    """An unknown option prints a sentence and the usage line, exits with 2 and shows no traceback."""
    code, out, err = remit(command, "--bogus")
    assert (code, out) == (2, "")
    assert "--bogus" in err
    assert f"remit {command}" in err
    assert "Traceback" not in err


def test_every_tree_has_ended(bench: Bench) -> None:
    """Every tree of these tests has an end in the journal."""
    with bench.running(Waiting()):
        remit("cancel", "abcde")
    assert isinstance(bench.events("abcdefghjk")[-1], RunEnded)
