"""Every exception remit raises, by who must act on it.

    RemitError
    ├── UsageError          the caller's code: fix the call, nothing was run or spent
    ├── ModelError          the provider: `kind`, `retryable`, `retry_after`; the loop retries
    ├── StoreError          the journal: where it is and what to do
    │   └── TreeOwned       another process runs this tree: wait for it, or stop it
    └── OutcomeError        asked for by `Outcome.raise_for_status()`

A child that fails is never an exception here: it is an `Outcome`. Cancellation is never an
`Exception` either: it is asyncio's own.
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
"""Kinds after which the provider may have worked, and billed, without telling us how much."""

RETRYABLE_KINDS: frozenset[ModelErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "timeout", "connection", "stalled"}
)


class RemitError(Exception):
    """Anything raised by remit."""


class UsageError(RemitError):
    """Raised when the calling code is wrong, before anything ran or was spent."""


class ModelError(RemitError):
    """Raised by a model whose one request failed. Raises UsageError for a kind that does not exist."""

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
        """Seconds the provider asked us to wait, if it did."""
        self.usage = usage
        """What the failed request cost, if the provider said so."""


def unknown_kind(kind: object) -> str:
    """What is wrong with a kind of failure that does not exist."""
    from remit.types.spelling import suggest  # noqa: PLC0415 - only for those who mistype

    return f"kind must be one of {', '.join(KINDS)}, not {repr(kind)[:60]}.{suggest(kind, KINDS)}"


class StoreError(RemitError):
    """Raised when a store cannot read or write what it was asked to."""


class TreeOwned(StoreError):
    """Raised when a tree belongs to another live process, or was taken over by one."""


class OutcomeError(RemitError):
    """Raised by `raise_for_status()`; the outcome is attached, unless the delegation was rejected before it started."""

    def __init__(self, message: str, outcome: Outcome | None) -> None:
        super().__init__(message)
        self.outcome = outcome
