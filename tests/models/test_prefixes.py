"""Prompt caching: cache marks where providers need them, and byte-identical prefixes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from asking import asking, results, said, stage
from wire_formats import ANTHROPIC, CHAT, FORMATS, GOOGLE, RESPONSES, Format, Talk

import remit.models.clients as clients
from remit.models.conversation import MOST_RUNS, Conversations
from remit.types.messages import (
    AssistantMessage,
    Call,
    ImagePart,
    Message,
    TextPart,
    ToolMessage,
    UserMessage,
    user,
)

each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda f: type(f).__name__)

CALLS = (("call_a", "look", {"what": "a door"}), ("call_b", "put", {"n": 2}))


def conversation(form: Format, body: dict[str, Any]) -> str:
    """The growing part of a request as sent, without its closing bracket."""
    key = {ANTHROPIC: "messages", CHAT: "messages", RESPONSES: "input", GOOGLE: "contents"}[form]
    return json.dumps(body[key], ensure_ascii=False)[:-1]


def standing(form: Format, body: dict[str, Any]) -> str:
    """The constant part of a request as sent."""
    keys = {"tools", "system", "instructions", "systemInstruction", "model", "cache_control"}
    return json.dumps({key: value for key, value in body.items() if key in keys})


@pytest.mark.real_time
@each_format
async def test_prefixes_stay_the_same(form: Format) -> None:
    """Each turn begins with the bytes of the turn before, including the wrap-up, and siblings share the constant part."""
    thoughts = (("Hmm.", "c2ln"),)
    answers = [form.answer(Talk(f"Turn {n}.", CALLS, thoughts)) for n in range(3)]
    async with stage(*answers, *(form.answer(Talk("Done.")) for _ in range(2))) as on:
        talk: list[Message | str] = [user("Go.")]
        for turn in range(3):
            reply, _ = await on.ask(form, asking(*talk))
            talk += [said(reply), *results(reply, f"result of {turn}")]
        await on.ask(form, asking(*talk, user("Wrap up."), tool_choice="none"))
        await on.ask(form, asking("Another task.", run_id="sibling"))
        bodies = on.server.bodies
    grown = [conversation(form, body) for body in bodies[:4]]
    # An addition to the last message goes inside that message.
    closers = "]}"
    for before, after in pairwise(grown):
        assert after.startswith(before.rstrip(closers))
        assert len(after) > len(before)
    assert len({standing(form, body) for body in bodies}) == 1


@pytest.mark.real_time
async def test_anthropic_requests_have_cache_marks() -> None:
    """Tools, instructions and the conversation are marked alike in every request; a setting turns this off."""
    async with stage(*(ANTHROPIC.answer(Talk("Yes.")) for _ in range(2))) as on:
        await on.ask(ANTHROPIC, asking())
        await on.ask(ANTHROPIC, asking(settings={"cache": False}))
        first, second = on.server.bodies
    assert first["tools"][-1]["cache_control"]["type"] == "ephemeral"
    assert "cache_control" not in first["tools"][0]
    assert first["system"][-1]["cache_control"]["type"] == "ephemeral"
    assert first["cache_control"]["type"] == "ephemeral"
    assert "cache_control" not in json.dumps(second)


def long_talk(turns: int) -> list[Message]:
    talk: list[Message] = [user("Go.")]
    for n in range(turns):
        talk.append(AssistantMessage(f"Turn {n}.", (Call(f"c{n}", "look", {"what": n}),)))
        talk.append(ToolMessage(f"c{n}", "look", f"result {n}"))
    return talk


def test_only_what_is_new_is_converted() -> None:
    """A turn converts only its own messages; the objects of earlier turns are reused."""
    kept, talk = Conversations(), long_talk(40)
    first = kept.convert("run", talk[:-2])
    second = kept.convert("run", talk)
    assert len(second) == len(first) + 2
    assert all(map(lambda one, other: one is other, first, second))


def test_a_message_after_a_result_joins_it() -> None:
    """A message after results joins the same request; earlier messages do not change."""
    kept, talk = Conversations(), long_talk(1)
    first = kept.convert("run", talk)
    second = kept.convert("run", [*talk, user("Wrap up.")])
    assert [len(message.parts) for message in first] == [1, 2, 1]
    assert [len(message.parts) for message in second] == [1, 2, 2]


def test_a_changed_conversation_is_converted_anew() -> None:
    """A replaced message, or a conversation that became shorter, is sent in its current form."""
    kept, talk = Conversations(), long_talk(3)
    kept.convert("run", talk)
    talk[2] = msgspec.structs.replace(talk[2], content="[shortened]")
    assert "[shortened]" in str(kept.convert("run", talk))
    assert len(kept.convert("run", talk[:3])) == 3
    assert len(kept.convert("run", talk)) == len(talk)


def test_conversations_are_evicted() -> None:
    """The least recently used conversations are evicted; an ended one can be released at once. Each is still converted."""
    kept = Conversations()
    talk = long_talk(2)
    for number in range(MOST_RUNS + 20):
        kept.convert(f"run{number}", talk)
    assert len(kept._runs) == MOST_RUNS
    kept.forget(f"run{MOST_RUNS + 19}")
    kept.forget("nobody")
    assert len(kept._runs) == MOST_RUNS - 1
    assert len(kept.convert("run0", talk)) == len(talk)


def test_an_empty_reply_is_not_sent() -> None:
    """An empty reply leaves nothing that a provider would refuse; the messages around it are one request."""
    made = Conversations().convert("run", [user("Go."), AssistantMessage(), user("Well?")])
    assert [len(message.parts) for message in made] == [2]


@pytest.mark.real_time
@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=["Chat", "Responses"])
async def test_the_shortcut_changes_nothing(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcut around OpenAI's slow conversion sends the same bytes, including the user's extra fields."""
    picture = UserMessage((TextPart("What is it?"), ImagePart("image/png", b"picture")))
    thoughts = (("Hmm.", "c2ln"),)
    bodies: list[dict[str, Any]] = []
    for walked in (False, True):
        if walked:
            monkeypatch.setattr(clients, "skip_conversion", lambda _: None)
        async with stage(form.answer(Talk("I look.", CALLS, thoughts)), form.answer(Talk("A door."))) as on:
            reply, _ = await on.ask(form, asking(picture))
            extra = {"extra_body": {"user": "somebody"}}
            await on.ask(form, asking(picture, said(reply), *results(reply), "And?", settings=extra))
            bodies += [json.loads(seen.raw) for seen in on.server.seen]
    assert bodies[:2] == bodies[2:]
    assert bodies[1]["user"] == "somebody"
    assert len(conversation(form, bodies[1])) > len(conversation(form, bodies[0])) > 50
