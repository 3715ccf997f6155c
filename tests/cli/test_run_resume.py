"""Resuming: `remit resume`, `remit run --continue` and `--resume`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from runbench import Said, project, remit, run

import remit.cli.exits as exits
import remit.cli.options as options
from remit import Agent, Reply, Request, start
from remit.cli.jobs.launch import conversation
from remit.cli.options import Options
from remit.stores import open_store
from remit.testing import ScriptedModel, call, say, wrapped
from remit.testing.scripted import Answer
from remit.types.messages import AssistantMessage, Call, ToolMessage, user
from remit.types.outcome import Outcome, Status
from remit.types.ports import Emit

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


def stopped(*flags: str) -> str:
    """The id of a run that reached its turn limit."""
    model = ScriptedModel([call("ls", said="Looked."), wrapped("One place seen.")])
    said = run("Look around", "--max-turns", "1", *flags, model=model)
    assert said.code == exits.INCOMPLETE, said.err
    return said.err.split("remit resume ")[1].split()[0]


def texts(request: Request) -> list[str]:
    return [message.text for message in request.messages]


def going_on(*args: str, seen: list[list[str]] | None = None, answer: str = "All places seen.") -> Said:
    def answers(request: Request) -> Answer:
        if seen is not None:
            seen.append(texts(request))
        return say(answer)

    return remit(*args, model=ScriptedModel(answers))


def test_a_stopped_run_is_resumed() -> None:
    """`remit resume RUN` continues where the run stopped, with a raised limit; nothing is done twice."""
    root = stopped()
    assert f"Resume: remit resume {root[:5]}" in remit("show", root).out
    seen: list[list[str]] = []
    said = going_on("resume", root, "--max-turns", "5", seen=seen)
    assert (said.code, said.out) == (0, "All places seen.\n")
    assert seen[0][0] == "Look around"
    assert len(seen) == 1
    assert "listing" not in said.err
    assert "lead: resumed" in said.err
    assert "1 run · 0s/10m · 45 tokens · cost unknown · 3 model calls" in said.err, (
        "with what it had spent before"
    )


def test_a_prefix_of_the_id_is_enough() -> None:
    """RUN may be a prefix or `last`; a child, an unknown id and an empty id have different messages."""
    root = stopped()
    assert going_on("resume", root[:6], "--max-turns", "5").code == 0
    assert going_on("resume", "last").code == 0
    wrong = going_on("resume", "zzzzzzzz")
    assert (wrong.code, "No run 'zzzzzzzz' in the journal" in wrong.err) == (exits.WRONG_USE, True)
    child = going_on("resume", f"{root}.1")
    assert child.code == exits.WRONG_USE
    assert "Resume its whole tree" in child.err


def test_a_completed_run_prints_its_answer_again() -> None:
    """A completed run is not run again: its answer is printed with how to continue. This needs no model."""
    said = run("Go", model=ScriptedModel([say("All is well.")]))
    again = remit("resume", said.run)
    assert (again.code, again.out) == (0, "All is well.\n")
    assert f"Continue its conversation: remit resume {said.run} TEXT" in again.err


def test_a_conversation_is_continued() -> None:
    """With a text, a new run starts that has the earlier conversation."""
    first = run("My name is Ada.", model=ScriptedModel([say("Hello Ada.")]))
    seen: list[list[str]] = []
    second = going_on("resume", first.run, "What", "is", "my", "name?", seen=seen, answer="Ada.")
    assert second.out == "Ada.\n"
    assert seen == [["My name is Ada.", "Hello Ada.", "What is my name?"]]
    assert second.run != first.run


def test_continue_takes_the_newest_run_of_the_folder(folder: Path) -> None:
    """--continue resumes the newest run of this folder, not of another."""
    run("Here", model=ScriptedModel([say("Here.")]))
    run("Elsewhere", "--workspace", "src", model=ScriptedModel([say("There.")]))
    seen: list[list[str]] = []
    going_on("run", "--continue", "And now?", seen=seen)
    assert seen == [["Here", "Here.", "And now?"]]
    assert going_on("run", "--continue").out == "All places seen.\n", "the newest one is the one just run"


def test_continue_without_a_run(folder: Path) -> None:
    """Without an earlier run, --continue is a usage error that says how to start one."""
    said = going_on("run", "--continue")
    assert said.code == exits.WRONG_USE
    assert f"The journal has no run of {folder}." in said.err


def test_the_options_of_a_run_are_stored(folder: Path) -> None:
    """Agent, rules, sandbox and folder of a run apply after a resume from any folder."""
    agents = folder / "team"
    agents.mkdir()
    (agents / "scribe.md").write_text(
        "---\nname: scribe\ndescription: Writes.\ntools: write, ls\n---\nWrite.\n", encoding="utf-8"
    )
    root = stopped(
        "--agent", "scribe", "--agents", "team", "--allow", "write", "--sandbox", "workspace-write+network"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        model = ScriptedModel([call("write", path="a.txt", content="x"), say("Written.")])
        said = remit("resume", root, "--max-turns", "5", model=model)
    assert (said.code, said.out) == (0, "Written.\n"), said.err
    assert (folder / "a.txt").exists()


def test_the_record_has_only_the_options(folder: Path) -> None:
    """The stored record is the options as JSON, and can be read back."""
    root = stopped("--deny", "write", "--read-only")

    async def read() -> tuple[str | None, Options | None]:
        store = open_store("sqlite")
        try:
            return await store.load_artifact(root, f"{root}/cli", 0, 10_000), await options.recall(
                store, root
            )
        finally:
            await store.close()

    text, found = asyncio.run(read())
    assert text is not None
    assert found == Options(
        model="scripted", limits="turns=1", deny=("write",), read_only=True, workspace=str(folder)
    )


def test_a_tree_of_a_program_can_be_resumed(folder: Path) -> None:
    """A tree that another program started can be resumed with an agent of the same name."""

    async def begin() -> str:
        async with start(Agent("lead", tools=["ls"]), "Go", model=_Hangs(), store="sqlite") as running:
            return running.run_id

    root = asyncio.run(begin())
    said = going_on("resume", root, "--model", "scripted")
    assert (said.code, said.out) == (0, "All places seen.\n"), said.err


class _Hangs:
    name = "scripted"

    async def reply(self, request: Request, emit: Emit) -> Reply:
        await asyncio.sleep(3600)
        return Reply()


def test_a_deleted_workspace() -> None:
    """Resuming a run whose folder is gone says so, and how to name another."""
    place = Path("gone")
    place.mkdir()
    root = stopped("--workspace", "gone")
    place.rmdir()
    said = going_on("resume", root)
    assert said.code == exits.WRONG_USE
    assert "no longer exists. Name another: --workspace DIR" in said.err


def test_open_calls_get_results_before_a_conversation_continues() -> None:
    """Providers reject a conversation in which a call has no result."""
    asked = AssistantMessage("", (Call("a", "ls"), Call("b", "grep")))
    outcome = Outcome(
        status=Status.INTERRUPTED,
        agent="lead",
        run_id="r",
        messages=(user("Go"), asked, ToolMessage("a", "ls", "x")),
    )
    *_, first, second = conversation(outcome)
    assert isinstance(first, ToolMessage)
    assert isinstance(second, ToolMessage)
    assert (first.call_id, first.ok) == ("a", True)
    assert (second.call_id, second.ok) == ("b", False)


def test_new_options_replace_stored_ones() -> None:
    """Options of a resume replace the stored ones; the others stay."""
    kept = Options(agent="scout", model="a:b", limits="turns=1", yes=True, workspace="/x")
    assert Options(model="c:d").over(kept) == Options(
        agent="scout", model="c:d", limits="turns=1", yes=True, workspace="/x"
    )


def test_an_invalid_record_is_ignored() -> None:
    """A record that cannot be decoded counts as missing."""

    class Odd:
        async def load_artifact(self, root: str, name: str, start: int, length: int) -> str:
            return '{"yes": "certainly"}'

    assert asyncio.run(options.recall(Odd(), "r")) is None  # pyright: ignore[reportArgumentType]


async def test_a_running_run_is_not_resumed() -> None:
    """A run of another process is not resumed; the message suggests `watch` and `send`."""
    async with start(Agent("lead", tools=["ls"]), "Go", model=_Hangs(), store="sqlite") as running:
        store = open_store("sqlite")
        while not await store.trees():  # noqa: ASYNC110 - a thread writes it, without an event
            await asyncio.sleep(0.01)
        await store.close()
        said = await asyncio.to_thread(going_on, "resume", running.run_id)
        assert said.code == exits.FAILED
        assert f"remit watch {running.run_id}" in said.err
        assert f"remit send {running.run_id} TEXT" in said.err
