"""Connections: shared by a tree, one set per event loop, closed at the end."""

from __future__ import annotations

import asyncio
import os
import socket
from unittest.mock import patch

import anyio
import pytest
from asking import asking, places, stage
from wire_formats import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Format, Talk, format_of
from wire_server import Answer, Seen, Server

from remit import ModelError
from remit.models import Shelf
from remit.types.messages import Delta


def answer(seen: Seen) -> Answer:
    return format_of(seen).answer(Talk("Yes."))


def hush(piece: str | Delta) -> None:
    """Ignores every event."""


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("form", "many"),
    [(ANTHROPIC, 50), (CHAT, 50), (RESPONSES, 10), (GOOGLE, 10)],
    ids=lambda v: type(v).__name__,
)
async def test_one_client_for_all_runs(form: Format, many: int) -> None:
    """Simultaneous replies are as many requests; their connections are reused, and closed at the end."""
    async with stage(play=answer, together=many) as on:
        model = on.shelf.find(form.name)

        async def ask(number: int) -> None:
            reply = await model.reply(asking(run_id=f"run{number}"), hush)
            assert reply.text == "Yes."

        for _ in range(2):
            async with anyio.create_task_group() as group:
                for number in range(many):
                    group.start_soon(ask, number)
        assert len(on.server.seen) == 2 * many
        # On a slow machine up to two more: a connection is busy until its reply is read completely.
        assert many <= on.server.connections <= many + 2
        await on.shelf.close()
        await asyncio.wait_for(on.server.idle.wait(), 30)
        await on.shelf.close()


@pytest.mark.real_time
async def test_two_names_of_one_provider_share_its_client() -> None:
    """openai: and openai-chat: use the same connections."""
    async with stage(play=answer) as on:
        for name in ("openai:gpt-5", "openai-chat:gpt-5", "openai-chat:gpt-4o-mini"):
            await on.ask(name, asking())
        assert (len(on.server.seen), on.server.connections) == (3, 1)


@pytest.mark.real_time
async def test_a_shelf_that_was_closed_opens_again() -> None:
    """A model called after `close` opens a new connection, which the next `close` closes."""
    async with stage(play=answer) as on:
        await on.ask(CHAT, asking())
        await on.shelf.close()
        await on.ask(CHAT, asking())
        assert on.server.connections == 2
        await on.shelf.close()
        await asyncio.wait_for(on.server.idle.wait(), 30)


@pytest.mark.parametrize("form", [ANTHROPIC, CHAT], ids=["Anthropic", "Chat"])
def test_each_loop_has_its_own_clients(form: Format) -> None:
    """A shelf created outside any event loop works in one loop after another."""
    shelf = Shelf()

    async def once() -> None:
        async with Server(play=answer) as server:
            with patch.dict(os.environ, places(server.url)):
                reply = await shelf.find(form.name).reply(asking(), hush)
                assert (reply.text, len(server.seen)) == ("Yes.", 1)
                await shelf.close()

    asyncio.run(once())
    asyncio.run(once())


@pytest.mark.real_time
async def test_a_cancelled_scope_does_not_prevent_closing() -> None:
    """Closing inside a cancelled scope still closes every connection."""
    async with stage(play=answer) as on:
        await on.ask(CHAT, asking())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await on.shelf.close()
        await asyncio.wait_for(on.server.idle.wait(), 30)


@pytest.mark.real_time
async def test_cancelling_by_a_scope_closes_the_connection_too() -> None:
    """A cancel that is raised again at every await leaves no connection open."""
    hanging = Answer(pieces=ANTHROPIC.pieces(Talk("Good morning."))[:4], then="hang")
    async with stage(hanging) as on:
        with anyio.CancelScope() as scope:
            await on.shelf.find(ANTHROPIC.name).reply(asking(), lambda _: scope.cancel())
        await asyncio.wait_for(on.server.seen[0].gone.wait(), 30)


@pytest.mark.real_time
async def test_external_addresses_are_blocked() -> None:
    """Connecting to an external address fails: the guard of these tests works."""
    shelf = Shelf()
    with pytest.raises(ModelError, match="a test dialled"):
        await shelf.find("http://192.0.2.1/v1#m").reply(asking(), hush)
    with pytest.raises(ModelError, match="a test dialled"):
        await shelf.find("http://example.invalid/v1#m").reply(asking(), hush)
    await shelf.close()
    with socket.socket() as dialler, pytest.raises(AssertionError):
        dialler.connect(("192.0.2.1", 80))
