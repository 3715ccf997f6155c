"""A way around the slowest step of OpenAI's client.

Before each request it walks the whole conversation, once for every type that a message might be of, to rename
fields that need no renaming: for 400 turns close to a second in which the event loop does nothing else. A body that
is given as `extra_body` is sent as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

_Create = Callable[..., Awaitable[object]]


class _Resource(Protocol):
    create: _Create


def shorten_way(client: object) -> None:
    """Send conversations as they are, from now on. Does nothing for a client that is not OpenAI's."""
    if type(client).__module__.partition(".")[0] != "openai":
        return
    chat: object = getattr(client, "chat", None)
    for resource, key in (
        (getattr(client, "responses", None), "input"),
        (getattr(chat, "completions", None), "messages"),
    ):
        if resource is not None:
            _shorten(cast(_Resource, resource), key)


def _shorten(resource: _Resource, key: str) -> None:
    walked = resource.create

    async def create(**fields: object) -> object:
        conversation, extra = fields.get(key), fields.get("extra_body")
        if isinstance(conversation, list) and (extra is None or isinstance(extra, Mapping)):
            fields[key] = []
            fields["extra_body"] = {key: conversation, **cast(Mapping[str, object], extra or {})}
        return await walked(**fields)

    resource.create = create
