"""Going on: `remit resume`, `remit run --continue` and `--resume`."""

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
    """The id of a run that met its limit of turns."""
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


def test_a_stopped_run_goes_on() -> None:
    """`remit resume RUN` goes on where it was stopped, with more of what it lacked; nothing is done twice."""
    root = stopped()
    assert f"Go on with it: remit resume {root[:5]}" in remit("show", root).out
    seen: list[list[str]] = []
    said = going_on("resume", root, "--max-turns", "5", seen=seen)
    assert (said.code, said.out) == (0, "All places seen.\n")
    assert seen[0][0] == "Look around"
    assert len(seen) == 1
    assert "listing" not in said.err
    assert "lead: goes on" in said.err
    assert "1 run · 0s/10m · 45 tokens · cost unknown · 3 model calls" in said.err, (
        "with what it had spent before"
    )


def test_a_beginning_of_the_id_is_enough() -> None:
    """RUN may be short, or `last`; a child, an unknown and an empty one are told apart."""
    root = stopped()
    assert going_on("resume", root[:6], "--max-turns", "5").code == 0
    assert going_on("resume", "last").code == 0
    wrong = going_on("resume", "zzzzzzzz")
    assert (wrong.code, "There is no run 'zzzzzzzz'" in wrong.err) == (exits.WRONG_USE, True)
    child = going_on("resume", f"{root}.1")
    assert child.code == exits.WRONG_USE
    assert "whole trees are resumed" in child.err


def test_a_completed_run_says_its_answer_again() -> None:
    """What has completed is not run again: its answer is printed, and how to go on. No model is needed for it."""
    said = run("Go", model=ScriptedModel([say("All is well.")]))
    again = remit("resume", said.run)
    assert (again.code, again.out) == (0, "All is well.\n")
    assert f"To go on with its conversation: remit resume {said.run} TEXT" in again.err


def test_a_conversation_goes_on() -> None:
    """With a text a new run begins, which knows what was said before."""
    first = run("My name is Ada.", model=ScriptedModel([say("Hello Ada.")]))
    seen: list[list[str]] = []
    second = going_on("resume", first.run, "What", "is", "my", "name?", seen=seen, answer="Ada.")
    assert second.out == "Ada.\n"
    assert seen == [["My name is Ada.", "Hello Ada.", "What is my name?"]]
    assert second.run != first.run


def test_continue_takes_the_newest_of_the_folder(folder: Path) -> None:
    """--continue goes on with the newest run of this folder, not of another."""
    run("Here", model=ScriptedModel([say("Here.")]))
    run("Elsewhere", "--workspace", "src", model=ScriptedModel([say("There.")]))
    seen: list[list[str]] = []
    going_on("run", "--continue", "And now?", seen=seen)
    assert seen == [["Here", "Here.", "And now?"]]
    assert going_on("run", "--continue").out == "All places seen.\n", "the newest one is the one just run"


def test_continue_without_a_past(folder: Path) -> None:
    """Where nothing was run yet, --continue is wrong use, and says how to begin."""
    said = going_on("run", "--continue")
    assert said.code == exits.WRONG_USE
    assert f"No run of {folder} is kept here" in said.err


def test_how_it_was_called_is_kept(folder: Path) -> None:
    """The agent, the rules, the sandbox and the folder of a run hold when it goes on, from wherever that is asked."""
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


def test_the_record_has_no_more_than_the_options(folder: Path) -> None:
    """What is kept is how the run was called, as JSON, and reads back as that."""
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


def test_a_tree_of_a_program_can_go_on_too(folder: Path) -> None:
    """A tree that was not started by the command line goes on with an agent of the same name."""

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


def test_a_folder_that_is_gone() -> None:
    """A run whose folder is not there any more says so, and how to name another."""
    place = Path("gone")
    place.mkdir()
    root = stopped("--workspace", "gone")
    place.rmdir()
    said = going_on("resume", root)
    assert said.code == exits.WRONG_USE
    assert "is not a folder any more. Name another: --workspace DIR" in said.err


def test_open_calls_are_answered_before_a_conversation_goes_on() -> None:
    """A provider takes no conversation in which a call has no result."""
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


def test_what_is_said_now_counts_more() -> None:
    """Options of a resumed run replace those that were kept; the rest stays."""
    kept = Options(agent="scout", model="a:b", limits="turns=1", yes=True, workspace="/x")
    assert Options(model="c:d").over(kept) == Options(
        agent="scout", model="c:d", limits="turns=1", yes=True, workspace="/x"
    )


def test_a_record_of_something_else_is_not_obeyed() -> None:
    """A record that is not one of ours is as good as none."""

    class Odd:
        async def load_artifact(self, root: str, name: str, start: int, length: int) -> str:
            return '{"yes": "certainly"}'

    assert asyncio.run(options.recall(Odd(), "r")) is None  # pyright: ignore[reportArgumentType]


async def test_a_run_that_is_running_is_not_resumed() -> None:
    """What another process runs is not resumed but watched, or told something."""
    async with start(Agent("lead", tools=["ls"]), "Go", model=_Hangs(), store="sqlite") as running:
        store = open_store("sqlite")
        while not await store.trees():  # noqa: ASYNC110 - it is written by a thread that tells nobody
            await asyncio.sleep(0.01)
        await store.close()
        said = await asyncio.to_thread(going_on, "resume", running.run_id)
        assert said.code == exits.FAILED
        assert f"remit watch {running.run_id}" in said.err
        assert f"remit send {running.run_id} TEXT" in said.err
