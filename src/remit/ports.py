"""The seams: what remit asks of a model and of a store. Adapters live in `models/` and `stores/`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Protocol, TypeGuard, runtime_checkable

from msgspec import Struct

from remit.events import Event
from remit.messages import Delta, Reply, Request

Emit = Callable[[str | Delta], None]
"""Takes a piece of a reply: text, or a `Delta`. Never blocks, never raises."""


class Price(Struct, frozen=True):
    """US dollars per million tokens, which is micro-dollars per token."""

    input: float
    output: float


@runtime_checkable
class Model(Protocol):
    """Answers requests.

    Contract: one `reply` is exactly one request on the wire, without retries of its own. It raises
    `ModelError` when the provider fails; any other exception is taken for a bug. It is called for
    many runs at once. Deltas go to `emit` while the reply is written.

    Optional attributes: `price` (a `Price`; needed for a `usd` limit), `streams` (True makes the
    silence limit count from the start of the call instead of from the first delta).
    """

    @property
    def name(self) -> str: ...

    async def reply(self, request: Request, emit: Emit) -> Reply: ...


def is_model(value: object) -> TypeGuard[Model]:
    """Whether it has what a model needs; `isinstance` on the protocol costs fifty times as much."""
    try:
        return callable(getattr(value, "reply", None)) and isinstance(getattr(value, "name", None), str)
    except Exception:  # noqa: BLE001 - a property of somebody else's
        return False


@runtime_checkable
class Store(Protocol):
    """Keeps events and artifacts.

    Contract: `append` is the only write of history; it takes what it is given in order, without
    blocking and without an await, and may buffer. `flush` returns when all that was appended is
    durable. Both raise `StoreError`; a run goes on without what could not be stored, and says so.
    """

    def append(self, event: Event) -> None: ...

    async def flush(self) -> None: ...

    def read(self, root: str) -> AsyncIterator[Event]: ...

    async def save_artifact(self, root: str, artifact: str, data: str) -> None: ...

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        """Characters from `start`; None when there is no such artifact."""
        ...

    async def close(self) -> None: ...


def _random_id() -> str:
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "".join(secrets.choice(alphabet) for _ in range(10))


new_root_id: ContextVar[Callable[[], str]] = ContextVar("new_root_id", default=_random_id)
"""Where root run ids come from. A child's id is its parent's and a number, so this is all there is."""
