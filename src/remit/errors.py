"""Every exception remit raises, grouped by who must act on it.

    RemitError
    ├── UsageError          the calling code is wrong: fix the call; nothing ran and nothing was spent
    ├── ModelError          a provider failed: see `kind`, `retryable`, `retry_after`; the loop retries
    ├── StoreError          the journal failed: the message names the store and says what to do
    │   ├── TreeOwned       another process runs this tree: wait for that process, or stop it
    │   ├── TreeExists      the store already has a tree with this id: resume it, or choose another id
    │   └── NoSuchTree      the store has no tree with this id
    ├── OutcomeError        raised only by `Outcome.raise_for_status()`
    └── Retry               raised by your validators: the model is asked again

A failed child run is an `Outcome`, not an exception. Cancellation is asyncio's `CancelledError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from remit.types.limits import Usage
    from remit.types.outcome import Outcome

ModelErrorKind = Literal[
    "rate_limit",
    "overloaded",
    "server",
    "timeout",
    "connection",
    "stalled",
    "auth",
    "quota",
    "not_found",
    "context",
    "filter",
    "invalid",
    "bug",
]

KINDS: tuple[ModelErrorKind, ...] = get_args(ModelErrorKind)

SENT_KINDS: frozenset[ModelErrorKind] = frozenset({"timeout", "connection", "stalled", "bug"})
"""Kinds after which the provider may have billed the request without reporting its usage."""

RETRYABLE_KINDS: frozenset[ModelErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "timeout", "connection", "stalled"}
)


class RemitError(Exception):
    """Base class of every exception that remit raises."""


class UsageError(RemitError):
    """Raised when the calling code is wrong, before anything ran or was spent."""


class ModelError(RemitError):
    """Raised by a model when its request failed. The constructor raises UsageError for an unknown `kind`."""

    def __init__(
        self,
        message: str = "",
        *,
        kind: ModelErrorKind = "server",
        retryable: bool | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        if kind not in KINDS:
            raise UsageError(f"ModelError({str(message)[:200]!r}): {unknown_kind(kind)}")
        super().__init__(message or f"the model failed ({kind})")
        self.kind: ModelErrorKind = kind
        self.retryable = kind in RETRYABLE_KINDS if retryable is None else retryable
        self.retry_after = retry_after
        """Seconds that the provider asked us to wait; None if it did not ask."""
        self.usage = usage
        """Cost of the failed request; None if the provider did not report it."""


def unknown_kind(kind: object) -> str:
    """The error message for an unknown kind."""
    from remit.types.spelling import suggest  # noqa: PLC0415 - needed only for this error

    return f"kind must be one of {', '.join(KINDS)}, not {repr(kind)[:60]}.{suggest(kind, KINDS)}"


class StoreError(RemitError):
    """Raised when a store cannot read or write."""


class TreeOwned(StoreError):
    """Raised when another live process owns the tree or has taken it over."""


class TreeExists(StoreError):
    """Raised when a new tree has an id that the store already has."""


class NoSuchTree(StoreError):
    """Raised when a store has no tree with the given id."""


class OutcomeError(RemitError):
    """Raised by `raise_for_status()`. `outcome` is None if the delegation was rejected before it started."""

    def __init__(self, message: str, outcome: Outcome | None) -> None:
        super().__init__(message)
        self.outcome = outcome


class Retry(RemitError):
    """Raised by a validator that rejects an answer. The model reads the message and answers again."""
