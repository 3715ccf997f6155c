"""Every failure of a provider is one error with a kind and a clear sentence."""

from __future__ import annotations

import asyncio
import email.utils
import os
import socket
import time
from unittest.mock import patch

import pytest
from asking import asking, places, stage
from wire_formats import ANTHROPIC, CHAT, FORMATS, GOOGLE, RESPONSES, Format, Talk
from wire_server import Answer, failing

from remit import ModelError
from remit.errors import ModelErrorKind
from remit.models import Shelf
from remit.types.limits import Usage

pytestmark = pytest.mark.real_time

each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda f: type(f).__name__)


def body_of(form: Format, kind: str, message: str, status: int, code: str | None = None) -> object:
    """An error body in each provider's format."""
    if form is ANTHROPIC:
        return {"type": "error", "error": {"type": kind, "message": message}}
    if form is GOOGLE:
        return {"error": {"code": status, "message": message, "status": kind.upper()}}
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


async def fail(form: Format, *answers: Answer) -> ModelError:
    async with stage(*answers) as on:
        with pytest.raises(ModelError) as caught:
            await on.ask(form, asking())
        assert len(on.server.seen) == 1, "one reply is one request"
    return caught.value


CASES: list[tuple[int, str, str, ModelErrorKind, bool]] = [
    (429, "rate_limit_error", "slow down", "rate_limit", True),
    (500, "api_error", "something broke", "server", True),
    (502, "api_error", "bad gateway", "server", True),
    (503, "unavailable", "try later", "overloaded", True),
    (504, "api_error", "took too long", "server", True),
    (408, "timeout_error", "too slow", "timeout", True),
    (409, "conflict", "once more", "server", True),
    (401, "authentication_error", "no such key", "auth", False),
    (403, "permission_error", "not for you", "auth", False),
    (402, "billing_error", "pay first", "quota", False),
    (404, "not_found_error", "no such model", "not_found", False),
    (400, "invalid_request_error", "bad field", "invalid", False),
    (413, "request_too_large", "too big", "context", False),
]


@each_format
async def test_each_status_has_its_kind(form: Format) -> None:
    """Each status has a kind, a retryable flag and one sentence; one request each, no retries."""
    answers = [failing(status, body_of(form, word, message, status)) for status, word, message, _, _ in CASES]
    async with stage(*answers) as on:
        for number, (status, _, message, kind, again) in enumerate(CASES, 1):
            with pytest.raises(ModelError) as caught:
                await on.ask(form, asking())
            error = caught.value
            assert (status, error.kind, error.retryable, error.retry_after) == (status, kind, again, None)
            for part in (form.name, f"status {status}", message):
                assert part in str(error)
            assert "\n" not in str(error)
            assert len(on.server.seen) == number


Special = tuple[Format, int, str, str, str | None, ModelErrorKind]
SPECIAL: list[Special] = [
    (ANTHROPIC, 529, "overloaded_error", "Overloaded", None, "overloaded"),
    (ANTHROPIC, 400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000", None, "context"),
    (ANTHROPIC, 400, "invalid_request_error", "Your credit balance is too low", None, "quota"),
    (CHAT, 429, "insufficient_quota", "You exceeded your quota", "insufficient_quota", "quota"),
    (CHAT, 400, "invalid_request_error", "Too long", "context_length_exceeded", "context"),
    (CHAT, 400, "invalid_request_error", "Filtered", "content_filter", "filter"),
    (CHAT, 404, "invalid_request_error", "No such model", "model_not_found", "not_found"),
    (RESPONSES, 400, "invalid_request_error", "Too long", "context_length_exceeded", "context"),
    (RESPONSES, 400, "invalid_request_error", "No such model", "model_not_found", "not_found"),
    (GOOGLE, 400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum", None, "context"),
]


@pytest.mark.parametrize("case", SPECIAL, ids=lambda case: f"{type(case[0]).__name__}-{case[5]}")
async def test_kinds_recognised_by_the_providers_text(case: Special) -> None:
    """Overload, a full context, an empty account and a filter are recognised by the provider's text."""
    form, status, word, message, code, kind = case
    error = await fail(form, failing(status, body_of(form, word, message, status, code)))
    assert (error.kind, error.retryable) == (kind, kind == "overloaded")


async def test_a_prompt_that_google_blocks() -> None:
    """A prompt that is blocked before any answer is a refusal."""
    body = b'{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}'
    async with stage(Answer(pieces=[b"data: " + body + b"\n\n"])) as on:
        reply, _ = await on.ask(GOOGLE, asking())
    assert (reply.stop, reply.text) == ("refusal", "")


@pytest.mark.parametrize("form", [ANTHROPIC, CHAT], ids=["Anthropic", "Chat"])
async def test_how_long_to_wait(form: Format) -> None:
    """Retry-After is read as seconds, as milliseconds and as a date."""
    body = body_of(form, "rate_limit_error", "slow down", 429)
    assert (await fail(form, failing(429, body, retry_after="17"))).retry_after == 17
    assert (await fail(form, failing(429, body, retry_after_ms="1500"))).retry_after == 1.5
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    after = (await fail(form, failing(429, body, retry_after=date))).retry_after
    assert after is not None
    assert 3000 < after <= 3600
    assert (await fail(form, failing(429, body, retry_after="soon"))).retry_after is None


async def test_how_long_to_wait_for_google() -> None:
    """Google sends the delay in the body."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13.5s"}
    body = {"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED", "details": [info]}}
    assert (await fail(GOOGLE, failing(429, body))).retry_after == 13.5


async def test_messages_say_what_to_do() -> None:
    """A bad key names its variable, a misspelled model the nearest name, an unreachable server its address."""
    error = await fail(
        ANTHROPIC, failing(401, body_of(ANTHROPIC, "authentication_error", "invalid x-api-key", 401))
    )
    assert str(error) == (
        "anthropic:claude-sonnet-4-6 rejected the API key (status 401): invalid x-api-key."
        " Check the key in ANTHROPIC_API_KEY."
    )
    missing = body_of(ANTHROPIC, "not_found_error", "model: claude-sonet-4-6", 404)
    async with stage(failing(404, missing)) as on:
        with pytest.raises(ModelError, match=r"Did you mean 'anthropic:claude-sonnet-4-6'\?") as caught:
            await on.ask("anthropic:claude-sonet-4-6", asking())
    assert "does not know this model (status 404): model: claude-sonet-4-6." in str(caught.value)


@each_format
async def test_an_unreachable_server(form: Format) -> None:
    """A wrong base URL is a failed connection that names the address."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        with patch.dict(os.environ, places(url)):
            shelf = Shelf()
            with pytest.raises(ModelError) as caught:
                await shelf.find(form.name).reply(asking(), print)
            await shelf.close()
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)
    assert f"Check that {url}" in str(caught.value)
    assert caught.value.usage == Usage(1, usd=0.0), "nothing was sent, so nothing was used"


async def test_invalid_answers() -> None:
    """An HTML page with status 500, and a 200 that is not JSON, are failures of the server."""
    error = await fail(CHAT, failing(500, "<html><h1>Sorry</h1>" + "x" * 5000))
    assert error.kind == "server"
    assert len(str(error)) < 500
    async with stage(Answer(b"<html>", headers={"x": "y"}), stream=False) as on:
        with pytest.raises(ModelError) as caught:
            await on.ask(CHAT, asking())
    assert (caught.value.kind, caught.value.retryable) == ("server", True)


@pytest.mark.parametrize("form", [ANTHROPIC, RESPONSES], ids=["Anthropic", "Responses"])
async def test_an_error_inside_a_stream(form: Format) -> None:
    """An error reported after the answer began has the same kind as before it."""
    pieces = form.pieces(Talk("Good morning."))[:4]
    if form is ANTHROPIC:
        event = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    else:
        event = b'event: error\ndata: {"type":"error","code":"server_is_overloaded","message":"busy","sequence_number":9}\n\n'
    error = await fail(form, Answer(pieces=[*pieces, event]))
    assert (error.kind, error.retryable) == ("overloaded", True)


@each_format
async def test_a_connection_that_breaks_mid_stream(form: Format) -> None:
    """It is a failed connection that can be retried; the received pieces were emitted, and their usage is kept."""
    pieces = form.pieces(Talk("Good morning, and some more.", fresh=40, read=2))
    cut = next(
        n
        for n, piece in enumerate(pieces)
        if b"and some" in piece or b"morning," in piece or b" and" in piece
    )
    async with stage(Answer(pieces=pieces[: cut + 1], then="cut")) as on:
        heard: list[object] = []
        with pytest.raises(ModelError) as caught:
            await on.shelf.find(form.name).reply(asking(), heard.append)
        assert len(on.server.seen) == 1
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)
    assert heard
    used = caught.value.usage
    if form is ANTHROPIC:
        assert used is not None
        assert (used.input_tokens, used.estimated) == (42, True)
        assert used.output_tokens > 1


@pytest.mark.parametrize("form", [ANTHROPIC, RESPONSES], ids=["Anthropic", "Responses"])
async def test_a_stream_that_ends_too_soon(form: Format) -> None:
    """A stream that is closed properly before the reply is complete is not accepted as a reply."""
    error = await fail(form, Answer(pieces=form.pieces(Talk("Good morning."))[:-2]))
    assert (error.kind, error.retryable) == ("connection", True)


@each_format
async def test_cancelling_closes_the_connection(form: Format) -> None:
    """If a call is cancelled during a stream, the server sees the connection close."""
    talk = Talk("Good morning.", thinking=())
    hanging = Answer(pieces=form.pieces(talk)[:-2] or form.pieces(talk)[:1], then="hang")
    async with stage(hanging) as on:
        begun = asyncio.Event()
        task = asyncio.create_task(on.shelf.find(form.name).reply(asking(), lambda _: begun.set()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(on.server.seen[0].gone.wait(), 30)
        assert on.server.busy == 0


@each_format
async def test_a_server_that_never_answers(form: Format) -> None:
    """No internal timeout ends the call, and a cancel closes the connection."""
    async with stage(Answer(then="hang")) as on:
        task = asyncio.create_task(on.shelf.find(form.name).reply(asking(), print))
        await on.server.asked.wait()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(on.server.seen[0].gone.wait(), 30)
