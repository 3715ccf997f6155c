"""Calls models on the test server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from wire_formats import Format
from wire_server import Answer, Play, Server

from remit.models import Shelf
from remit.types.messages import AssistantMessage, Delta, Message, Reply, Request, ToolMessage, ToolSpec, user

LOOK = ToolSpec(
    "look",
    "Looks at something.",
    {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
)
PUT = ToolSpec("put", "Puts it.", {"type": "object", "properties": {"n": {"type": "integer"}}})


class Stage(NamedTuple):
    server: Server
    shelf: Shelf

    async def ask(self, form: Format | str, request: Request) -> tuple[Reply, list[Delta]]:
        """One reply, and the pieces emitted while it was written."""
        heard: list[Delta] = []

        def hear(piece: str | Delta) -> None:
            assert isinstance(piece, Delta)
            # On a slow machine a progress event without text may arrive.
            if piece != Delta():
                heard.append(piece)

        model = self.shelf.find(form if isinstance(form, str) else form.name)
        return await model.reply(request, hear), heard


def places(url: str) -> dict[str, str]:
    """The variables that point every provider to one address."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
        "OLLAMA_BASE_URL": f"{url}/v1",
    }


@asynccontextmanager
async def stage(
    *answers: Answer, play: Play | None = None, stream: bool = True, together: int = 1
) -> AsyncIterator[Stage]:
    """A server, and a shelf with every provider."""
    async with Server(*answers, play=play, together=together) as server:
        with patch.dict(os.environ, places(server.url)):
            shelf = Shelf(stream=stream)
            try:
                yield Stage(server, shelf)
            finally:
                await shelf.close()


def asking(*messages: Message | str, **changes: Any) -> Request:
    """A request; strings are user messages."""
    fields: dict[str, Any] = {
        "agent": "asker",
        "run_id": "run",
        "depth": 0,
        "instructions": "Be brief.",
        "messages": tuple(user(m) if isinstance(m, str) else m for m in messages or ("Hello?",)),
        "tools": (LOOK, PUT),
        "tool_choice": "auto",
        "max_output_tokens": 321,
        "output_schema": None,
        "settings": {},
    }
    return Request(**(fields | changes))


def said(reply: Reply) -> AssistantMessage:
    """The reply as a message of the conversation."""
    return AssistantMessage(reply.text, reply.calls, reply.thinking, reply.details)


def results(reply: Reply, text: str = "seen") -> list[Message]:
    return [ToolMessage(call.id, call.name, f"{text} {n}") for n, call in enumerate(reply.calls, 1)]
