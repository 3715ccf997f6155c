"""The interfaces of a model and of a store. Adapters are in `models/` and `stores/`."""

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
"""Receives a piece of a reply: text, or a `Delta`. Never blocks, never raises."""


class Price(Struct, frozen=True):
    """US dollars per million tokens, which is micro-dollars per token."""

    input: float
    output: float


@runtime_checkable
class Model(Protocol):
    """Answers requests.

    Contract: one `reply` sends exactly one request and does not retry. It raises `ModelError` when the provider
    fails; remit treats any other exception as a bug. Many runs call it concurrently. It passes deltas to `emit`
    while the reply arrives.

    Optional attributes: `price` (a `Price`; required by a `usd` limit), `streams` (True: `stall_seconds` counts from
    the start of the call instead of from the first delta), `lane` (models with the same lane share one request limit;
    defaults to the name), `in_flight` (how many requests of the lane may run at once).

    A tree reads these attributes and the `reply` method of the class once, before it starts. A change to them applies
    to the next tree. A `reply` that is not a method of the class, such as a property, is looked up for each request.
    """

    @property
    def name(self) -> str: ...

    async def reply(self, request: Request, emit: Emit) -> Reply: ...


ModelChoice = str | Model | Sequence[str | Model]
"""A model's name, a model, or several in order of preference."""


def is_model(value: object) -> TypeGuard[Model]:
    """Whether a value has the attributes of a model. `isinstance` with the protocol is fifty times slower."""
    try:
        found = callable(getattr(value, "reply", None)) and isinstance(getattr(value, "name", None), str)
    except Exception:  # noqa: BLE001 - user code: a property may raise anything
        return False
    # A model class has the same attributes as a model.
    return found and not isinstance(value, type)


def model_hint(value: object) -> str:
    """A sentence about what an intended model lacks; empty if the value does not resemble a model."""
    if isinstance(value, type):
        return f" It is a class: write {value.__name__}(...)."
    try:
        name, reply = getattr(value, "name", None), getattr(value, "reply", None)
    except Exception as error:  # noqa: BLE001 - user code: a property may raise anything
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


EMPTY_MODEL = "model is empty. Name a model, such as 'anthropic:claude-haiku-4-5', or omit model."


class Posted(NamedTuple):
    """A stored command with its number: 1, 2, 3... within its tree, in the order of arrival."""

    number: int
    command: AnyCommand


class TreeInfo(Struct, frozen=True, kw_only=True):
    """A summary of one stored tree."""

    root: str
    agent: str
    task: str
    """The beginning of the root's task."""
    status: Status | None
    """How the root run ended. None: it has not ended, or not since it was resumed."""
    started_at: float
    last_at: float
    """The time of the last event."""
    events: int
    bytes: int
    """Stored size of the events and artifacts."""
    owner: str
    """A description of the process that runs the tree; empty if no live process does."""
    runs: int = 0
    requests: int = 0
    tokens: int = 0
    usd: float | None = None
    """The cost of its model calls; None if any price is unknown."""

    @property
    def live(self) -> bool:
        return bool(self.owner)


@runtime_checkable
class Store(Protocol):
    """Stores trees: their events, artifacts, owners, and commands from other processes.

    Contract:

    - A tree is claimed before anything of it is written, and has one owner at a time. The store renews the claim by
      itself, even while the event loop is busy, until `release` or `close`. Another process can take over the claim
      of a dead owner; the old owner then writes nothing more.
    - `append` is the only way to write history. It accepts events in order, never blocks, and may buffer. Buffered
      events are soon written, in order: a crash loses the last events, never earlier ones. `flush` returns when all
      appended events are durable.
    - Every method raises only `StoreError`, which names the store and says what to do, or `TreeOwned` if another
      process owns the tree. The run then continues without the data that could not be stored, and warns.
    - A store is used from one event loop at a time; other processes may open the same location.
    - A process that can write to a store can approve calls. A store that sandboxed commands might reach also has
      `async def exposed(self, sandboxes, workspace) -> str`, which returns why they could reach it and what to do, or
      "". A tree does not start if the result is not empty.
    - A store for strict trees also has `async def confirm(self, root, *above) -> float`: it waits until the appended
      events are durable, checks that this process still owns these trees, and returns the time, on the clock of
      `time.monotonic`, until which no other process can take them over. Raises StoreError or TreeOwned.
    - A store may also have `async def trees_named(self, roots) -> list[TreeInfo]`, which reads only these trees.
    - A store that removes secrets also has `def redact_text(self, text) -> str`, which returns a text as the store records
      it. On resume, children of code are found by the recorded form of their prompts.
    """

    async def claim(self, root: str, *, new: bool) -> None:
        """Own a tree. Raises TreeOwned, NoSuchTree for an unknown tree or, with `new`, TreeExists for a known one."""
        ...

    async def release(self, root: str) -> None:
        """Flush and give up the claim. Does nothing for a tree that is not owned."""
        ...

    def append(self, event: Event) -> None:
        """Accept one event of a claimed tree. Its `seq` is above the last event's, perhaps with gaps."""
        ...

    async def flush(self, root: str | None = None) -> None:
        """Wait until appended events are durable. Raises the failure of that tree, or of any if `root` is None."""
        ...

    def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
        """The appended events with a `seq` above `after`, in order; none for an unknown tree."""
        ...

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        """Save a text of a claimed tree, whole or not at all; replaces an artifact of the same name."""
        ...

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        """`length` characters from `start`; None for an unknown artifact."""
        ...

    async def post(self, root: str, command: AnyCommand) -> None:
        """Send a command to the process that owns a tree; durable on return."""
        ...

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        """The commands with a number above `after`; with `wait`, waits for the first."""
        ...

    async def trees(self) -> list[TreeInfo]:
        """All trees, newest first."""
        ...

    async def delete(self, root: str) -> None:
        """Delete a tree. Raises TreeOwned while any process owns it; does nothing for an unknown tree."""
        ...

    async def close(self) -> None:
        """Flush, release every tree, and close the store. Does not raise for events that were already lost."""
        ...


_ALPHABET = b"abcdefghjkmnpqrstuvwxyz23456789"
_LETTERS = (_ALPHABET * 9)[:256]
_UNEVEN = bytes(range(256 - 256 % len(_ALPHABET), 256))
"""Bytes beyond a multiple of the alphabet's length: using them would make its first letters more likely."""


ID_CHARS = 10
DRAWN = 64
"""Ids drawn per system call: the call takes ten times as long as the rest."""

_drawn: list[str] = []
if hasattr(os, "register_at_fork"):
    # A forked process must not hand out the same ids.
    os.register_at_fork(after_in_child=_drawn.clear)


def _random_id() -> str:
    try:
        return _drawn.pop()
    except IndexError:
        return _draw()


def _draw() -> str:
    # Twice as many bytes as needed: translate() drops those in _UNEVEN.
    letters = os.urandom(2 * DRAWN * ID_CHARS).translate(_LETTERS, _UNEVEN).decode()
    first, *others = [letters[at : at + ID_CHARS] for at in range(0, DRAWN * ID_CHARS, ID_CHARS)]
    _drawn.extend(others)
    return first


def new_command_id() -> str:
    return _random_id()


new_root_id: ContextVar[Callable[[], str]] = ContextVar("new_root_id", default=_random_id)
"""Creates root run ids. A child's id is its parent's id and a number."""
