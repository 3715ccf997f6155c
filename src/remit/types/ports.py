"""The seams: what remit asks of a model and of a store. Adapters live in `models/` and `stores/`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

from msgspec import Struct

from remit.types.commands import AnyCommand
from remit.types.events import Event
from remit.types.messages import Delta, Reply, Request
from remit.types.outcome import Status

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
    silence limit count from the start of the call instead of from the first delta), `lane` (requests of
    models with the same one are limited together; otherwise the name), `in_flight` (how many of them at once).

    A tree reads them once, before anything runs, and the class's own `reply` too: another one that is set on the model
    meanwhile is for the next tree. One that the model finds elsewhere, by a property say, is looked for at every request.
    """

    @property
    def name(self) -> str: ...

    async def reply(self, request: Request, emit: Emit) -> Reply: ...


ModelChoice = str | Model | Sequence[str | Model]
"""What stands for a model: its name, the model itself, or several in order of preference."""


def is_model(value: object) -> TypeGuard[Model]:
    """Whether it has what a model needs; `isinstance` on the protocol costs fifty times as much."""
    try:
        found = callable(getattr(value, "reply", None)) and isinstance(getattr(value, "name", None), str)
    except Exception:  # noqa: BLE001 - a property of somebody else's
        return False
    # A class has what its objects have, and cannot be asked.
    return found and not isinstance(value, type)


def model_hint(value: object) -> str:
    """What an object lacks that was meant for a model; empty for what has nothing of one."""
    if isinstance(value, type):
        return f" It is a class: write {value.__name__}(...)."
    try:
        name, reply = getattr(value, "name", None), getattr(value, "reply", None)
    except Exception as error:  # noqa: BLE001 - a property of somebody else's
        return f" Reading its `name` or `reply` raised {type(error).__name__}."
    if callable(reply):
        return (
            " It has no `name`." if name is None else f" Its `name` must be a string, not {repr(name)[:60]}."
        )
    if isinstance(name, str):
        return (
            " It has no `reply`."
            if reply is None
            else f" Its `reply` must be a method, not {repr(reply)[:60]}."
        )
    return ""


EMPTY_MODEL = "model is empty. Name one, such as 'anthropic:claude-haiku-4-5', or leave it out."


class Posted(NamedTuple):
    """A command as it stands in a store: numbered 1, 2, 3... within its tree, in the order of arrival."""

    number: int
    command: AnyCommand


class TreeInfo(Struct, frozen=True, kw_only=True):
    """One line about a tree in a store."""

    root: str
    agent: str
    task: str
    """The beginning of it."""
    status: Status | None
    """How its root ended. None: it has not, or not since it was resumed."""
    started_at: float
    last_at: float
    """When its last event happened."""
    events: int
    bytes: int
    """Its events and artifacts, as they are stored."""
    owner: str
    """Which process runs it, in words; empty when no live process does."""
    runs: int = 0
    requests: int = 0
    tokens: int = 0
    usd: float | None = None
    """What its model calls cost; None where the price of one of them is not known."""

    @property
    def live(self) -> bool:
        return bool(self.owner)


@runtime_checkable
class Store(Protocol):
    """Keeps trees: their events and artifacts, who runs them, and what is asked of them from elsewhere.

    Contract:

    - A tree is claimed before anything of it is written, and has one owner at a time. The store keeps the
      claim alive by itself, also while the event loop is busy, until `release` or `close`. A dead owner's
      claim can be taken over; one that was taken over writes nothing more.
    - `append` is the only write of history; it takes what it is given in order, without blocking and
      without an await, and may buffer. What it took is written soon after, all of it in order: a crash
      loses a tail, never a middle. `flush` returns when all that was appended is durable.
    - Everything raises `StoreError`, which says where and what to do, and nothing else; `TreeOwned` where
      another process owns the tree. After it, a run goes on without what could not be stored, and says so.
    - Used from one event loop at a time; other processes may use the same place.
    - Who can write a store can approve calls. One that commands in a sandbox might reach has besides `async def
      exposed(self, sandboxes, workspace) -> str`: why they could, and what to do, or an empty text. A tree is not begun
      where it gives a reason.
    - One that keeps secrets out has besides `def redact_text(self, text) -> str`: a text as it is kept. Children of code
      are found again by what is kept of their prompts.
    """

    async def claim(self, root: str, *, new: bool) -> None:
        """Own a tree. Raises TreeOwned; StoreError if there is no such tree or, with `new`, if there is one."""
        ...

    async def release(self, root: str) -> None:
        """Flush, and own it no more. Does nothing for a tree that is not owned."""
        ...

    def append(self, event: Event) -> None:
        """Take one event of a claimed tree. Its `seq` is above that of the last one, not always by one."""
        ...

    async def flush(self, root: str | None = None) -> None:
        """Raises for what went wrong with that tree; without one, for any."""
        ...

    def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
        """What was appended, in order, from the first `seq` above `after`; nothing for an unknown tree."""
        ...

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        """Keep a text of a claimed tree, whole or not at all; one of the same name is replaced."""
        ...

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        """Characters from `start`; None when there is no such artifact."""
        ...

    async def post(self, root: str, command: AnyCommand) -> None:
        """Ask something of a tree, whoever owns it; durable when it returns."""
        ...

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        """What was posted with a number above `after`; with `wait`, not before there is something."""
        ...

    async def trees(self) -> list[TreeInfo]:
        """All of them, the newest first."""
        ...

    async def delete(self, root: str) -> None:
        """Forget a tree. Raises TreeOwned while any process owns it; does nothing for an unknown one."""
        ...

    async def close(self) -> None:
        """Flush, release everything, and let go of the place. Never raises for what was already lost."""
        ...


_ALPHABET = b"abcdefghjkmnpqrstuvwxyz23456789"
_LETTERS = (_ALPHABET * 9)[:256]
_UNEVEN = bytes(range(256 - 256 % len(_ALPHABET), 256))
"""Bytes beyond the last whole round of the alphabet: with them its first letters would be likelier than the others."""


ID_CHARS = 10
DRAWN = 64
"""Ids that are drawn at a time: asking the system takes ten times as long as the rest."""

_drawn: list[str] = []
if hasattr(os, "register_at_fork"):
    # Two processes must not give out the same ones.
    os.register_at_fork(after_in_child=_drawn.clear)


def _random_id() -> str:
    try:
        return _drawn.pop()
    except IndexError:
        return _draw()


def _draw() -> str:
    # Twice what is needed: what comes out of the alphabet's last, uneven round is left out.
    letters = os.urandom(2 * DRAWN * ID_CHARS).translate(_LETTERS, _UNEVEN).decode()
    first, *others = [letters[at : at + ID_CHARS] for at in range(0, DRAWN * ID_CHARS, ID_CHARS)]
    _drawn.extend(others)
    return first


def new_command_id() -> str:
    return _random_id()


new_root_id: ContextVar[Callable[[], str]] = ContextVar("new_root_id", default=_random_id)
"""Where root run ids come from. A child's id is its parent's and a number, so this is all there is."""
