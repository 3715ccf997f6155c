"""The HTTP API under the page: what can be done. Everything but starting goes through the journal, as `remit cancel` does."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

import remit.remote as remote
from remit.observe.page.api import site_of
from remit.observe.page.errors import Refused, answer
from remit.observe.page.hosting import Wish

T = TypeVar("T")

MOST_BYTES = 1_000_000
"""Of the body of a request."""
TEXT_CHARS = 200_000

BY = "the page"


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is stopped."""

    reason: str = ""


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to a run; it joins the run's next turn."""

    text: str


class Approval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Yes: to this call, to the tool for the rest of the run, or of the tree."""

    request: str
    scope: Literal["once", "run", "tree"] = "once"


class Denial(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No; the model reads the reason."""

    request: str
    reason: str = ""


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


class Done(Struct, frozen=True, kw_only=True):
    """The result of an act."""

    done: bool
    """False if the act has no effect: the run has ended, or another person acted first."""
    message: str


class Started(Struct, frozen=True, kw_only=True):
    run: str


async def body(request: Request, kind: type[T]) -> T:
    """The body of a request. Raises Refused for one that is too long, or is something else."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "The body must be JSON, with Content-Type: application/json.")
    given = request.headers.get("content-length", "")
    if given.isdecimal() and int(given[:18]) > MOST_BYTES:
        raise Refused(413, f"The body has more than {MOST_BYTES:,} bytes.")
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BYTES:
            raise Refused(413, f"The body has more than {MOST_BYTES:,} bytes.")
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused(400, f"The body cannot be read: {error}") from None


async def cancel(request: Request) -> Response:
    """Stop a run and everything below it."""
    said = await body(request, Reason)
    site, run = site_of(request), request.path_params["run"]
    await site.hub.tree(run)
    return await _done(
        remote.cancel(site.store, run, said.reason[:2000], by=BY),
        "Asked to stop. The work so far is kept.",
        "Nothing to stop: it has ended, or no process runs it.",
    )


async def send(request: Request) -> Response:
    said = await body(request, Message)
    site, run = site_of(request), request.path_params["run"]
    if len(said.text) > TEXT_CHARS:
        raise Refused(413, f"A message has at most {TEXT_CHARS:,} characters.")
    await site.hub.tree(run)
    return await _done(
        remote.send(site.store, run, said.text, by=BY),
        "Sent. The message joins the run's next turn.",
        "Not sent: the run has ended and cannot be resumed.",
    )


async def approve(request: Request) -> Response:
    said = await body(request, Approval)
    await _check_request(request, said.request)
    return await _done(
        remote.approve(site_of(request).store, said.request, scope=said.scope, by=BY), "Allowed.", _ANSWERED
    )


async def deny(request: Request) -> Response:
    said = await body(request, Denial)
    await _check_request(request, said.request)
    return await _done(
        remote.refuse(site_of(request).store, said.request, said.reason[:2000], by=BY), "Denied.", _ANSWERED
    )


_ANSWERED = "No longer asked: it was answered, or the run was stopped."


async def start(request: Request) -> Response:
    wish = await body(request, Wish)
    site = site_of(request)
    if site.hosting.starter is None:
        raise Refused(403, "This server starts no runs. Start it with: remit serve --allow-start")
    if not wish.prompt.strip():
        raise Refused(400, "Write the task.")
    return answer(Started(run=await site.hosting.start(wish)), 201)


async def resume(request: Request) -> Response:
    await body(request, Nothing)
    site = site_of(request)
    watched = await site.hub.tree(request.path_params["run"])
    if watched.root != request.path_params["run"]:
        raise Refused(400, f"Whole trees are resumed: {watched.root}.")
    if site.hosting.starter is None:
        raise Refused(403, "This server starts no runs. Start it with: remit serve --allow-start")
    if watched.info.live:
        raise Refused(409, f"It is running already: {watched.info.owner}.")
    run = await site.hosting.resume(watched.root)
    return answer(Started(run=run), 201)


async def _check_request(request: Request, asked: str) -> None:
    """Raises Refused unless the question belongs to the tree in the address."""
    watched = await site_of(request).hub.tree(request.path_params["run"])
    if asked.partition("/")[0] != watched.root or "/" not in asked:
        raise Refused(400, f"{asked[:80]!r} is not a question of this tree.")


async def _done(work: Awaitable[bool], words: str, in_vain: str) -> Response:
    done = await work
    return answer(Done(done=done, message=words if done else in_vain), 200 if done else 409)
