"""One reply through each provider's client: the request on the wire, and the parsed reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import LOOK, asking, said, stage
from wire_formats import ANTHROPIC, CHAT, FORMATS, GOOGLE, RESPONSES, Format, Talk
from wire_server import Seen

from remit import ModelError, UsageError
from remit.types.limits import Usage
from remit.types.messages import (
    AssistantMessage,
    Call,
    Delta,
    FilePart,
    ImagePart,
    Stop,
    TextPart,
    ToolMessage,
    UserMessage,
)

pytestmark = pytest.mark.real_time

each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda f: type(f).__name__)
HOW = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])

TWO = (("call_a", "look", {"what": "a door"}), ("call_b", "put", {"n": 2}))
PNG = b"\x89PNG\r\n\x1a\nnot much of a picture"
PDF = b"%PDF-1.4 not much of a document"


@HOW
@each_format
async def test_a_reply_comes_back(form: Format, streamed: bool) -> None:
    """Text, model, and exact usage with cache counts; in a stream each piece is emitted as it arrives."""
    talk = Talk("Good morning.", fresh=7, read=1200, write=30 if form is ANTHROPIC else 0, output=11)
    async with stage(form.answer(talk, streamed=streamed), stream=streamed) as on:
        reply, heard = await on.ask(form, asking())
        assert on.server.bodies[0].get("stream", streamed) is streamed
    assert (reply.text, reply.calls, reply.stop, reply.model) == ("Good morning.", (), "end", form.answers_as)
    used = reply.usage
    assert used is not None
    assert used == Usage(1, talk.input, 11, 1200, talk.write, usd=used.usd)
    assert used.usd is not None
    assert heard == ([Delta(text="Good m"), Delta(text="orning.")] if streamed else [])


@HOW
@each_format
async def test_parallel_calls_come_whole_and_in_order(form: Format, streamed: bool) -> None:
    """Every call has its id, name and arguments; no part of a call is emitted before it is complete."""
    async with stage(form.answer(Talk("Both.", TWO), streamed=streamed), stream=streamed) as on:
        reply, heard = await on.ask(form, asking())
    assert reply.stop == "calls"
    assert reply.calls == (Call("call_a", "look", {"what": "a door"}), Call("call_b", "put", {"n": 2}))
    assert "".join(piece.text for piece in heard) == ("Both." if streamed else "")


@each_format
@pytest.mark.parametrize("stop", ["length", "refusal"])
async def test_why_it_stopped(form: Format, stop: Stop) -> None:
    """A truncated reply and a refused reply are not treated as finished."""
    async with stage(form.answer(Talk("I will not", stop=stop))) as on:
        reply, _ = await on.ask(form, asking())
    assert reply.stop == stop
    assert reply.text == "I will not"
    assert reply.usage is not None


async def test_a_separate_refusal_text() -> None:
    """The text of a refusal, which OpenAI sends separately, becomes the reply's text."""
    chunks = [
        {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "refusal": "Not that."}, "finish_reason": None}
            ]
        },
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    pieces = [f"data: {json.dumps(base | chunk)}\n\n".encode() for chunk in chunks]
    answer = CHAT.answer(Talk())
    answer.pieces = [*pieces, b"data: [DONE]\n\n"]
    async with stage(answer) as on:
        reply, _ = await on.ask(CHAT, asking())
    assert (reply.stop, reply.text, reply.usage) == ("refusal", "Not that.", None)


def _system(form: Format, body: dict[str, Any]) -> object:
    if form is ANTHROPIC:
        return body["system"][0]["text"]
    if form is CHAT:
        return body["messages"][0]["content"]
    return body["instructions"] if form is RESPONSES else body["systemInstruction"]["parts"][0]["text"]


def _most(form: Format, body: dict[str, Any]) -> object:
    if form is GOOGLE:
        return body["generationConfig"]["maxOutputTokens"]
    return body[
        {ANTHROPIC: "max_tokens", CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens"}[form]
    ]


def _tools(form: Format, body: dict[str, Any]) -> list[str]:
    if form is GOOGLE:
        return [tool["name"] for tool in body["tools"][0]["functionDeclarations"]]
    return [(tool.get("function") or tool)["name"] for tool in body["tools"]]


def _choice(form: Format, body: dict[str, Any]) -> object:
    if form is GOOGLE:
        return body["toolConfig"]["functionCallingConfig"]["mode"].lower()
    choice = body["tool_choice"]
    return choice["type"] if isinstance(choice, dict) else choice


@each_format
async def test_the_content_of_a_request(form: Format) -> None:
    """Instructions, output limit, tools and settings are in the request; with "none" the tools stay in it."""
    answers = [form.answer(Talk("Yes.")) for _ in range(2)]
    async with stage(*answers) as on:
        await on.ask(form, asking(settings={"temperature": 0.5} if form is not RESPONSES else {}))
        await on.ask(form, asking(tool_choice="none"))
        first, second = on.server.bodies
    assert _system(form, first) == "Be brief."
    assert _most(form, first) == 321
    assert _tools(form, first) == _tools(form, second) == ["look", "put"]
    assert _choice(form, first) != "none"
    assert _choice(form, second) == "none"
    if form is not RESPONSES:
        assert first.get("generationConfig", first)["temperature"] == 0.5


@each_format
async def test_results_follow_their_calls(form: Format) -> None:
    """Calls and results pair by id, consecutive results are grouped, and later messages follow."""
    answers = [form.answer(Talk("", TWO)), form.answer(Talk("Done."))]
    async with stage(*answers) as on:
        reply, _ = await on.ask(form, asking("Go."))
        failed = ToolMessage("call_b", "put", "no room", ok=False, note="[remit] 3 turns left")
        talk = ["Go.", said(reply), ToolMessage("call_a", "look", "it is open"), failed, "And be quick."]
        await on.ask(form, asking(*talk))
        raw, body = on.server.seen[1].raw.decode(), on.server.bodies[1]
    order = [raw.index(word) for word in ("it is open", "no room", "[remit] 3 turns left", "And be quick.")]
    assert order == sorted(order)
    if form is ANTHROPIC:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant", "user"]
        blocks = body["messages"][2]["content"]
        assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text"]
        assert [block.get("is_error") for block in blocks[:2]] == [False, True]
        assert [block["tool_use_id"] for block in blocks[:2]] == ["call_a", "call_b"]
    elif form is CHAT:
        assert [m["role"] for m in body["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]
        assert [m["tool_call_id"] for m in body["messages"][3:5]] == ["call_a", "call_b"]
    elif form is RESPONSES:
        outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
        assert [item["call_id"] for item in outputs] == ["call_a", "call_b"]
    else:
        parts = body["contents"][2]["parts"]
        assert [part["functionResponse"]["id"] for part in parts[:2]] == ["call_a", "call_b"]


async def test_arguments_that_are_not_json() -> None:
    """Arguments that are not JSON are kept unchanged and can be sent back."""
    chunk = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "look"}}]}
    chunk["tool_calls"][0]["function"]["arguments"] = '{"what": '
    answer = CHAT.answer(Talk("", TWO))
    bad = CHAT._chunk(Talk(), chunk, None)
    answer.pieces = [f"data: {json.dumps(bad)}\n\n".encode(), *CHAT.pieces(Talk("", stop="length"))]
    async with stage(answer, CHAT.answer(Talk("Sorry."))) as on:
        reply, _ = await on.ask(CHAT, asking())
        await on.ask(
            CHAT, asking("Hello?", said(reply), ToolMessage("c1", "look", "bad arguments", ok=False))
        )
        sent = on.server.bodies[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert (reply.stop, reply.calls) == ("length", (Call("c1", "look", '{"what": '),))
    assert '{\\"what\\": ' in sent


def _picture(form: Format) -> UserMessage:
    image = ImagePart("image/png", PNG)
    parts = (TextPart("What is this?"), image, FilePart("paper.pdf", data=PDF))
    return UserMessage(parts)


@each_format
async def test_images_and_documents(form: Format) -> None:
    """Bytes are sent in user messages and tool results, each with its media type."""
    async with stage(form.answer(Talk("", TWO[:1])), form.answer(Talk("A door."))) as on:
        reply, _ = await on.ask(form, asking(_picture(form)))
        result = ToolMessage("call_a", "look", "a photo", parts=(ImagePart("image/png", PNG),))
        await on.ask(form, asking(_picture(form), said(reply), result))
        first, second = (seen.raw.decode() for seen in on.server.seen)
    picture, paper = "iVBORw0KGgpub3QgbXVjaCBvZiBhIHBpY3R1cmU=", "JVBERi0xLjQgbm90IG11Y2g"
    assert (first.count(picture), second.count(picture)) == (1, 2)
    assert first.count(paper) == 1
    assert "image/png" in first
    assert "application/pdf" in first
    assert second.index("a photo") > 0


async def test_images_by_address() -> None:
    """An address is passed to the provider; remit fetches nothing."""
    image = UserMessage(
        (ImagePart(url="https://example.com/a.png"), FilePart(url="https://example.com/a.pdf"))
    )
    async with stage(ANTHROPIC.answer(Talk("Fine."))) as on:
        await on.ask(ANTHROPIC, asking(image))
        blocks = on.server.bodies[0]["messages"][0]["content"]
    assert [block["source"]["url"] for block in blocks] == [
        "https://example.com/a.png",
        "https://example.com/a.pdf",
    ]


CLOSED = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"by_name": {"type": "object", "additionalProperties": True}}}


def _schema(form: Format, body: dict[str, Any]) -> object:
    if form is ANTHROPIC:
        return (body.get("output_config") or {}).get("format", {}).get("schema")
    if form is CHAT:
        return (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if form is RESPONSES:
        return (body.get("text") or {}).get("format", {}).get("schema")
    config = body["generationConfig"]
    return (
        config.get("responseJsonSchema") or config.get("responseSchema") or config.get("response_json_schema")
    )


@each_format
async def test_an_answer_with_a_schema(form: Format) -> None:
    """The schema uses the provider's own feature; a schema that the provider does not support goes into the
    instructions.
    """
    answers = [form.answer(Talk('{"score": 3}')) for _ in range(2)]
    async with stage(*answers) as on:
        reply, _ = await on.ask(form, asking(output_schema=CLOSED, tools=()))
        await on.ask(form, asking(output_schema=OPEN))
        first, second = on.server.bodies
    assert reply.text == '{"score": 3}'
    schema = _schema(form, first)
    assert isinstance(schema, dict)
    assert schema["properties"]["score"]["type"] == "integer"
    assert _schema(form, second) is None
    assert "by_name" in json.dumps(second)


async def test_servers_by_address_and_ollama() -> None:
    """A server named by its address is called by Chat Completions and never gets the OpenAI key."""
    play = _chat
    async with stage(play=play) as on:
        for name in (f"{on.server.url}/v1#my-model", "ollama:my-model"):
            reply, _ = await on.ask(name, asking())
            assert reply.text == "Served."
            assert reply.model == name.replace("my-model", "model-that-answered")
            assert reply.usage is not None
            assert reply.usage.usd is None
        seen = on.server.seen
    assert [each.path for each in seen] == ["/v1/chat/completions"] * 2
    assert all("key-of-the-tests" not in each.headers["authorization"] for each in seen)
    assert {each.body["model"] for each in seen} == {"my-model"}


def _chat(seen: Seen) -> Any:
    return CHAT.answer(Talk("Served."))


async def test_unknown_settings_are_named() -> None:
    """An unknown setting is an error that names it; a setting of another provider is left out."""
    async with stage(CHAT.answer(Talk("Yes."))) as on:
        model = on.shelf.find(CHAT.name)
        with pytest.raises(
            ModelError, match=r"no setting 'temprature'\. Did you mean 'temperature'"
        ) as caught:
            await model.reply(asking(settings={"temprature": 1}), print)
        assert (caught.value.kind, caught.value.retryable) == ("invalid", False)
        with pytest.raises(
            UsageError, match=r"'max_tokens' .* is reserved: remit sets it\. Use max_output_tokens"
        ):
            model.check_settings({"max_tokens": 5})
        await on.ask(
            CHAT,
            asking(settings={"anthropic_effort": "low", "seed": 7, "max_output_tokens": 9}, tools=(LOOK,)),
        )
        assert len(on.server.seen) == 1
        assert on.server.bodies[0]["seed"] == 7
        assert "effort" not in on.server.seen[0].raw.decode()


async def test_ids_that_are_too_long_for_a_model() -> None:
    """If a model accepts only short ids, a call and its result get the same short id."""
    long_id = "call_of_another_provider_0123456789"
    talk = asking(
        "Go.",
        AssistantMessage("", (Call(long_id, "look", {}),)),
        ToolMessage(long_id, "look", "seen"),
        tools=(LOOK,),
    )
    async with stage(CHAT.answer(Talk("Yes."))) as on:
        await on.ask(f"{on.server.url}/v1#mistralai/mistral-large", talk)
        _, _, call, result = on.server.bodies[0]["messages"]
    short = call["tool_calls"][0]["id"]
    assert len(short) == 9
    assert result["tool_call_id"] == short


async def test_progress_while_a_call_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long call is not emitted in pieces, but its progress is, so that it does not look stalled."""
    monkeypatch.setattr("remit.models.provider_model.ALIVE_S", 0.0)
    heard: list[object] = []
    async with stage(CHAT.answer(Talk("", TWO))) as on:
        reply = await on.shelf.find(CHAT.name).reply(asking(), heard.append)
    assert len(reply.calls) == 2
    assert len(heard) >= 4
    assert set(heard) == {Delta()}
