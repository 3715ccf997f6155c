"""Outcomes in files, and messages as JSON: written, read back, and refused with a reason."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from remit import (
    Agent,
    AssistantMessage,
    Call,
    FilePart,
    ImagePart,
    Outcome,
    Status,
    TextPart,
    ToolMessage,
    UsageError,
    UserMessage,
    messages_from_json,
    messages_to_json,
    run,
    tool,
)
from remit.testing import ScriptedModel, call, calls, say
from remit.types.messages import Thinking


class Report(BaseModel):
    files: list[str]


@tool(tier="observe")
async def look(path: str) -> str:
    """Look at a place."""
    return f"{path}: fine"


async def finished() -> Outcome:
    scout = Agent("scout", description="Looks.", tools=[look])
    lead = Agent("lead", subagents=[scout], output=Report)
    two = calls(call("task", agent="scout", prompt="a"), call("task", agent="scout", prompt="b"))
    model = ScriptedModel(
        {"lead": [two, say('{"files": ["a", "b"]}')], "scout": [call("look", path="x"), say("Fine.")]}
    )
    return await run(lead, "Look around ☃", model=model)


async def test_an_outcome_is_the_same_after_a_file(tmp_path: Path) -> None:
    """`Outcome.load` returns what `save` wrote: conversations, calls, children in order, usage; output as plain JSON."""
    outcome = await finished()
    outcome.save(tmp_path / "one.json")
    loaded = Outcome.load(str(tmp_path / "one.json"))
    assert loaded == msgspec.structs.replace(outcome, output={"files": ["a", "b"]})
    assert [child.run_id for child in loaded.children] == [child.run_id for child in outcome.children]
    assert isinstance(outcome.output, Report)


def test_a_deep_tree_is_saved(tmp_path: Path) -> None:
    """The depth of a tree is not limited by Python's recursion limit."""
    outcome = Outcome(Status.COMPLETED, "leaf", "r0", text="x")
    for n in range(1, 3000):
        outcome = Outcome(Status.COMPLETED, "a", f"r{n}", text="x", children=(outcome,))
    outcome.save(tmp_path / "deep.json")
    depth, one = 0, Outcome.load(tmp_path / "deep.json")
    while one.children:
        depth, one = depth + 1, one.children[0]
    assert (depth, one.agent) == (2999, "leaf")


def test_only_the_user_can_read_a_saved_outcome(tmp_path: Path) -> None:
    """The file has mode 0600, replaces an older file as a whole, and leaves no other file behind."""
    file = tmp_path / "one.json"
    file.write_text("old")
    file.chmod(0o644)
    Outcome(Status.COMPLETED, "a", "r").save(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"format": "remit outcome", "version": 1}',
        '{"format": "remit outcome", "version": 1, "runs": []}',
        '{"format": "remit outcome", "version": 1, "runs": [{"children": 2, "outcome": {"status": "completed", "agent": "a", "run_id": "r"}}]}',
        "[" * 100_000,
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    """A file that `save` did not write gives a UsageError that names the file."""
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"other\.json' is not an outcome that Outcome\.save wrote"):
        Outcome.load(file)


async def test_a_later_version_is_refused_with_its_number(tmp_path: Path) -> None:
    """A file of a later version is not misread."""
    file = tmp_path / "later.json"
    (await finished()).save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 7}))
    with pytest.raises(UsageError, match="has version 7 of the format; this remit reads version 1"):
        Outcome.load(file)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    """A file that does not exist raises what `open` raises."""
    with pytest.raises(FileNotFoundError):
        Outcome.load(tmp_path / "none.json")


def test_messages_are_the_same_after_json() -> None:
    """Every kind of message and part comes back equal."""
    messages = (
        UserMessage(
            (
                TextPart("Hello ☃"),
                ImagePart(data=b"\x00\xff"),
                FilePart(name="a.pdf", url="https://example.org/a"),
            )
        ),
        AssistantMessage(
            "Thinking", (Call("c1", "look", {"path": "x"}),), (Thinking("hm", "s"),), {"a": [1]}
        ),
        AssistantMessage(calls=(Call("c2", "look", "not JSON"),)),
        ToolMessage("c1", "look", "fine", ok=False, note="[remit] cut", parts=(ImagePart(data=b"1"),)),
    )
    assert messages_from_json(messages_to_json(messages)) == messages
    assert messages_from_json(messages_to_json([])) == ()


async def test_a_conversation_continues_from_json() -> None:
    """`run(history=messages_from_json(...))` continues a conversation that was kept as JSON."""
    first = await run(Agent("lead"), "One", model=ScriptedModel([say("1")]))
    kept = messages_to_json(first.messages)
    model = ScriptedModel([lambda request: say(" ".join(m.text for m in request.messages))])
    second = await run(Agent("lead"), "Two", model=model, history=messages_from_json(kept))
    assert second.text == "One 1 Two"


@pytest.mark.parametrize("text", ["", "{}", '[{"role": "robot"}]', '["a"]', "[" * 100_000])
def test_other_json_is_not_a_conversation(text: str) -> None:
    """Text that is not a list of messages gives a UsageError."""
    with pytest.raises(UsageError, match="is not a conversation that messages_to_json wrote"):
        messages_from_json(text)


def test_only_messages_become_json() -> None:
    """An item that is not a message is named, with its place."""
    with pytest.raises(UsageError, match=r"item 1 is not a message: 'hello'"):
        messages_to_json([UserMessage((TextPart("a"),)), "hello"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        messages_to_json([UserMessage((TextPart("\ud800"),))])
