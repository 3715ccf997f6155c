"""What is said is recorded only if the caller enables it, redacted like the journal and bounded."""

from __future__ import annotations

import json

import pytest
from tracebench import traced

import remit.observe.otel.content as content_module
from remit import Agent, FilePart, ImagePart, TextPart, run, tool
from remit.testing import ScriptedModel, call, fail, say

KEY = "sk-ant-api03-" + "Ab1_" * 24 + "AA"
"""Has the shape of a key."""

SAID = ("the instructions", "the task", "the argument", "the result", "the answer", "the provider said")


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks."""
    return f"the result, with {KEY}"


LEAD = Agent("lead", instructions="the instructions", tools=[look])


def model() -> ScriptedModel:
    return ScriptedModel(
        {
            "lead": [
                fail("the provider said no", "overloaded", retry_after=1),
                call("look", what=f"the argument {KEY} and hush-hush", said="the thought"),
                say("the answer"),
            ]
        }
    )


async def test_nothing_is_said_unless_enabled() -> None:
    """Without content, no span has a word of instructions, prompts, replies, arguments, results or errors."""
    with traced() as made:
        await run(LEAD, "the task", model=model())
    written = json.dumps([[s.name, s.why, {k: str(v) for k, v in s.attributes.items()}] for s in made.spans])
    assert made.spans.all("execute_tool look")
    assert not [one for one in (*SAID, "the thought", KEY) if one in written]


async def test_content_is_recorded_when_enabled() -> None:
    """With content, spans have the messages in the form of the conventions; a failure has its words."""
    with traced(content=True) as made:
        await run(LEAD, "the task", model=model())
    failed, first, second = made.spans.all("chat")
    assert failed.why == "the provider said no"
    assert json.loads(str(first["gen_ai.system_instructions"])) == [
        {"type": "text", "content": "the instructions"}
    ]
    (asked,) = json.loads(str(first["gen_ai.input.messages"]))
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "the task"}]}
    (replied,) = json.loads(str(first["gen_ai.output.messages"]))
    assert replied["finish_reason"] == "tool_call"
    assert [part["type"] for part in replied["parts"]] == ["text", "tool_call"]
    messages = json.loads(str(second["gen_ai.input.messages"]))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["parts"][0]["response"].startswith("the result")
    looked, lead = made.spans.one("execute_tool look"), made.spans.one("invoke_agent lead")
    assert json.loads(str(looked["gen_ai.tool.call.arguments"]))["what"].startswith("the argument")
    assert str(looked["gen_ai.tool.call.result"]).startswith("the result")
    assert "the task" in str(lead["gen_ai.input.messages"])
    assert "the answer" in str(lead["gen_ai.output.messages"])


async def test_content_is_redacted_like_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, values of the environment and secrets of the caller are in no span."""
    monkeypatch.setenv("MY_API_KEY", "value-of-the-environment-1")
    lead = Agent("lead", instructions="value-of-the-environment-1", tools=[look])
    with traced(content=True, secrets=["hush-hush"]) as made:
        await run(lead, f"the task {KEY}", model=model())
    written = str([span.attributes for span in made.spans])
    assert "the task" in written
    assert not [one for one in (KEY, "value-of-the-environment-1", "hush-hush") if one in written]


async def test_a_secret_is_not_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is redacted before it is cut."""
    monkeypatch.setattr(content_module, "MOST_TEXT", 100)
    with traced(content=True) as made:
        await run(Agent("lead"), f"{'x' * 80} {KEY} {'y' * 80}", model=ScriptedModel({"lead": [say("ok")]}))
    asked = str(made.spans.one("chat")["gen_ai.input.messages"])
    assert "more characters" in asked
    assert "sk-ant" not in asked


async def test_long_conversations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a conversation that is too long, the newest messages are kept, and how many are not is said."""
    monkeypatch.setattr(content_module, "MOST_MESSAGES", 3000)
    steps = [call("look", what=f"{n:04}") for n in range(20)]
    with traced(content=True) as made:
        await run(LEAD, "the task", model=ScriptedModel({"lead": [*steps, say("done")]}))
    messages = json.loads(str(made.spans.all("chat")[-1]["gen_ai.input.messages"]))
    assert 3 < len(messages) < 41
    assert messages[0]["parts"][0]["content"] == f"[{41 - (len(messages) - 1)} earlier messages omitted]"
    assert messages[-1]["role"] == "tool"


async def test_files_are_named_not_copied() -> None:
    """Images and documents are named with their type and size."""
    task = [
        TextPart("look"),
        ImagePart(data=b"12345"),
        FilePart(url="http://localhost/x", media_type="text/csv"),
    ]
    with traced(content=True) as made:
        await run(Agent("lead"), task, model=ScriptedModel({"lead": [say("ok")]}))
    (asked,) = json.loads(str(made.spans.one("chat")["gen_ai.input.messages"]))
    assert [part["content"] for part in asked["parts"]] == [
        "look",
        "[image/png, 5 bytes]",
        "[text/csv, by URL]",
    ]


async def test_a_childs_label_is_content() -> None:
    """A label is written by a model, so it is on the span only with content; delegating calls have their arguments."""
    scripts = {
        "lead": [call("task", agent="child", prompt="p", description="the label"), say("done")],
        "child": [say("ok")],
    }
    lead = Agent("lead", subagents=[Agent("child")])
    labels: list[object] = []
    for content in (False, True):
        with traced(content=content) as made:
            await run(lead, "go", model=ScriptedModel(scripts))
        labels.append(made.spans.one("invoke_agent child").attributes.get("remit.label"))
    assert labels == [None, "the label"]
    assert json.loads(str(made.spans.one("execute_tool task")["gen_ai.tool.call.arguments"]))["prompt"] == "p"
