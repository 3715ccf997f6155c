"""Skip the slowest step of OpenAI's client.

Before each request the client walks the whole conversation, once for every possible type of a message, to rename fields
that need no renaming. For 400 turns this blocks the event loop for almost a second. The client sends `extra_body`
unchanged, so the conversation is passed there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

_Create = Callable[..., Awaitable[object]]


class _Resource(Protocol):
    create: _Create


def skip_conversion(client: object) -> None:
    """Make the client send conversations unchanged. Does nothing for a client that is not OpenAI's."""
    if type(client).__module__.partition(".")[0] != "openai":
        return
    chat: object = getattr(client, "chat", None)
    for resource, key in (
        (getattr(client, "responses", None), "input"),
        (getattr(chat, "completions", None), "messages"),
    ):
        if resource is not None:
            _patch(cast(_Resource, resource), key)


def _patch(resource: _Resource, key: str) -> None:
    original = resource.create

    async def create(**fields: object) -> object:
        conversation, extra = fields.get(key), fields.get("extra_body")
        if isinstance(conversation, list) and (extra is None or isinstance(extra, Mapping)):
            fields[key] = []
            fields["extra_body"] = {key: conversation, **cast(Mapping[str, object], extra or {})}
        return await original(**fields)

    resource.create = create
