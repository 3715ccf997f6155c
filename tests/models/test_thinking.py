"""Thinking, signatures and ids are sent back to their provider unchanged and in order."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from asking import asking, results, said, stage
from wire_formats import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Talk
from wire_server import Answer

from remit.types.messages import AssistantMessage, Delta, Message, Reply, Thinking

pytestmark = pytest.mark.real_time

CALL = (("call_a", "look", {"what": "a door"}),)


def journalled(reply: Reply) -> AssistantMessage:
    """The message after the process died and the journal was read back."""
    return said(msgspec.json.decode(msgspec.json.encode(reply), type=Reply))


async def test_anthropic_gets_its_blocks_back() -> None:
    """Thinking with its signature and redacted thinking are sent back unchanged, before the call that they led to."""
    thoughts = (("Where is it? At the back.", "c2lnLTE="), ("", "cmVkYWN0ZWQ="))
    answers = [ANTHROPIC.answer(Talk("I look.", CALL, thoughts)), ANTHROPIC.answer(Talk("A door."))]
    async with stage(*answers) as on:
        reply, heard = await on.ask(ANTHROPIC, asking("Look."))
        await on.ask(ANTHROPIC, asking("Look.", journalled(reply), *results(reply)))
        sent = on.server.bodies[1]["messages"][1]["content"]
    assert reply.thinking == (
        Thinking("Where is it? At the back.", "c2lnLTE=", "anthropic"),
        Thinking("", "cmVkYWN0ZWQ=", "anthropic"),
    )
    assert "".join(piece.thinking for piece in heard) == "Where is it? At the back."
    assert sent == [
        {"type": "thinking", "thinking": "Where is it? At the back.", "signature": "c2lnLTE="},
        {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_a", "name": "look", "input": {"what": "a door"}},
    ]


def interleaved() -> Answer:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "One.", "signature": "czE="},
        {"type": "text", "text": "First."},
        {"type": "thinking", "thinking": "Two.", "signature": "czI="},
        {"type": "text", "text": "Second."},
        {"type": "tool_use", "id": "call_a", "name": "look", "input": {"what": "x"}},
    ]
    whole = ANTHROPIC.whole(Talk("", CALL)) | {"content": blocks}
    return Answer(json.dumps(whole).encode())


async def test_the_order_of_blocks_is_kept() -> None:
    """Thinking between two texts is sent back between them."""
    async with stage(interleaved(), ANTHROPIC.answer(Talk("Done."), streamed=False), stream=False) as on:
        reply, _ = await on.ask(ANTHROPIC, asking("Look."))
        await on.ask(ANTHROPIC, asking("Look.", journalled(reply), *results(reply)))
        sent = on.server.bodies[1]["messages"][1]["content"]
    assert reply.text == "First.\n\nSecond."
    assert [block.get("thinking") or block.get("text") or block["name"] for block in sent] == [
        "One.",
        "First.",
        "Two.",
        "Second.",
        "look",
    ]


async def test_openai_gets_its_reasoning_items_back() -> None:
    """Reasoning with its id, summary and encrypted content, and the ids of text and call, are sent back unchanged."""
    talk = Talk("I look.", CALL, (("Where is it?", "ZW5jcnlwdGVk"),))
    async with stage(RESPONSES.answer(talk), RESPONSES.answer(Talk("A door."))) as on:
        reply, heard = await on.ask(RESPONSES, asking("Look."))
        await on.ask(RESPONSES, asking("Look.", journalled(reply), *results(reply)))
        sent = on.server.bodies[1]["input"]
    reasoning, text, call = sent[1:4]
    assert reasoning == {
        "id": "rs_0",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Where is it?"}],
        "encrypted_content": "ZW5jcnlwdGVk",
    }
    assert (text["id"], text["content"][0]["text"]) == ("msg_1", "I look.")
    assert (call["id"], call["call_id"], json.loads(call["arguments"])) == (
        "fc_call_a",
        "call_a",
        {"what": "a door"},
    )
    assert "".join(piece.thinking for piece in heard) == "Where is it?"
    assert "reasoning.encrypted_content" in on.server.bodies[0]["include"]


async def test_google_gets_the_signature_of_a_call_back() -> None:
    """The signature of a call is sent back with that call only."""
    calls = (*CALL, ("call_b", "look", {"what": "b"}))
    talk = Talk("", calls, (("Where?", "c2lnbmF0dXJl"),))
    async with stage(GOOGLE.answer(talk), GOOGLE.answer(Talk("A door."))) as on:
        reply, heard = await on.ask(GOOGLE, asking("Look."))
        await on.ask(GOOGLE, asking("Look.", journalled(reply), *results(reply)))
        parts = on.server.bodies[1]["contents"][1]["parts"]
    signed = [part.get("thoughtSignature") for part in parts if "functionCall" in part]
    assert signed == ["c2lnbmF0dXJl", None]
    assert heard[0] == Delta(thinking="Where?")


async def test_another_provider_is_not_given_foreign_signatures() -> None:
    """A conversation can continue with another provider, which does not get the first provider's private data."""
    talk = Talk("I look.", CALL, (("Where is it?", "c2lnLTE="),))
    async with stage(
        ANTHROPIC.answer(talk), CHAT.answer(Talk("A door.")), RESPONSES.answer(Talk("Yes."))
    ) as on:
        reply, _ = await on.ask(ANTHROPIC, asking("Look."))
        so_far: list[Message | str] = ["Look.", said(reply), *results(reply)]
        await on.ask(CHAT, asking(*so_far))
        await on.ask(RESPONSES, asking(*so_far, run_id="other"))
        second, third = (seen.raw.decode() for seen in on.server.seen[1:])
    assert "c2lnLTE=" not in second + third
    assert "a door" in second
    assert "a door" in third


async def test_details_that_no_longer_fit_are_left_out() -> None:
    """A message whose text was changed later is sent with the new text and its calls, without its old details."""
    talk = Talk("I look.", CALL, (("Where?", "ZW5jcnlwdGVk"),))
    async with stage(RESPONSES.answer(talk), RESPONSES.answer(Talk("A door."))) as on:
        reply, _ = await on.ask(RESPONSES, asking("Look."))
        changed = msgspec.structs.replace(said(reply), text="[shortened]")
        await on.ask(RESPONSES, asking("Look.", changed, *results(reply)))
        raw = on.server.seen[1].raw.decode()
    assert "[shortened]" in raw
    assert "msg_1" not in raw
    assert '"call_id":"call_a"' in raw.replace(": ", ":")


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"parts": "x"},
        {"parts": [{"call": 9}]},
        {"parts": [{"text": "x"}]},
        {"parts": [None]},
        {"parts": [{"thinking": 0}], "provider": 7},
    ],
)
async def test_invalid_details_in_a_journal(details: dict[str, Any]) -> None:
    """Invalid details are ignored."""
    async with stage(ANTHROPIC.answer(Talk("Yes."))) as on:
        await on.ask(ANTHROPIC, asking("Hi.", AssistantMessage("Hello.", details=details), "And?"))
        sent = on.server.bodies[0]["messages"]
    assert sent[1] == {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
