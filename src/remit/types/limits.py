"""What a run may spend (`Limits`) and what it spent (`Usage`).

Who checks them: `engine/budget/ledger.py` (requests, tokens, usd, calls, delegations), `tasks/deadline.py` (seconds),
`engine/budget/slots.py` (concurrency), `engine/run/loop.py` (turns), `engine/run/tool_calls.py` (calls_at_once), `engine/run/tool_run.py` (call_seconds).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Struct, StructMeta, UnsetType

from remit.errors import UsageError

WhenFull = Literal["queue", "reject"]

Whole = int | None | UnsetType
Real = float | None | UnsetType

_WHOLE = (
    "depth",
    "delegations",
    "requests",
    "tokens",
    "calls",
    "concurrency",
    "turns",
    "calls_at_once",
    "result_chars",
    "context_tokens",
)
_REAL = ("usd", "seconds", "call_seconds", "stall_seconds")
_AT_LEAST_ONE = ("concurrency", "turns", "calls_at_once")

SHARED = ("depth", "delegations", "requests", "tokens", "usd", "calls", "seconds", "concurrency")
"""A child draws on its parent's remainder; its own number only narrows."""

OWN = (
    "turns",
    "call_seconds",
    "calls_at_once",
    "stall_seconds",
    "result_chars",
    "context_tokens",
    "when_full",
)
"""Each run's own: the agent's number, else its parent's."""

OTHER_NAMES = {
    "max_turns": "turns",
    "max_steps": "turns",
    "max_iterations": "turns",
    "max_depth": "depth",
    "timeout": "seconds",
    "budget": "usd",
    "max_budget_usd": "usd",
    "cost": "usd",
    "max_tokens": "tokens",
    "max_calls": "calls",
    "max_requests": "requests",
    "max_concurrency": "concurrency",
    "max_parallel_calls": "calls_at_once",
}
"""What people call them; only suggested, so that there is one name for each."""

HIGHEST = 10**15
"""No real limit is above this; a larger number is a mistake (and would overflow 64-bit sums)."""


def _check_whole(name: str, value: object) -> None:
    least = 1 if name in _AT_LEAST_ONE else 0
    if value is UNSET or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(
            f"Limits.{name} must be a whole number, None (unlimited) or left out, not {value!r}."
        )
    if not least <= value <= HIGHEST:
        raise UsageError(
            f"Limits.{name} must be from {least} to {HIGHEST:,}, or None for unlimited, not {value}."
        )


def _check_real(name: str, value: object) -> None:
    if value is UNSET or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"Limits.{name} must be a number, None (unlimited) or left out, not {value!r}.")
    if not 0 <= value <= HIGHEST:
        raise UsageError(f"Limits.{name} must be from 0 to {HIGHEST:,}, or None for unlimited, not {value}.")


def _smaller(a: object, b: object) -> object:
    if a is UNSET or b is UNSET:
        return b if a is UNSET else a
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, str):
        return "reject" if "reject" in (a, b) else a
    return min(cast(float, a), cast(float, b))


class _Named(StructMeta):
    """Has words for names that are none. Limits that are read or replaced are not made by a call, and not looked at here."""

    # Type checkers know the fields, and this would hide them.
    if not TYPE_CHECKING:

        def __call__(self, *unnamed, **named):
            try:
                return super().__call__(*unnamed, **named)
            except TypeError:
                from remit.types.spelling import wrong_names  # noqa: PLC0415 - only for those who mistype

                known, example = self.__struct_fields__, "Limits(turns=...)"
                wrong = wrong_names(
                    "Limits", unnamed, named, known=known, others=OTHER_NAMES, example=example
                )
                if wrong:
                    raise UsageError(wrong) from None
                raise


# What follows from limits is worked out once for each and found by it again, so its hash is kept.
class Limits(
    Struct,
    metaclass=_Named,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    cache_hash=True,
):
    """What one run may spend. Three different things can be said of each field:

    ================  ==========================================================
    not written       inherit: the parent's, or the default at the root
    ``None``          no limit of its own (the parent's still holds)
    a number          that many; 0 means none at all
    ================  ==========================================================
    """

    depth: Whole = UNSET
    """Levels below the run that carries it; 0 means it may not delegate. Default 3."""
    delegations: Whole = UNSET
    """Children started below it, in total. Default 64."""
    requests: Whole = UNSET
    """Model calls, the run's own and all below. Default None."""
    tokens: Whole = UNSET
    """Input plus output tokens, the run's own and all below. Default None."""
    usd: Real = UNSET
    """Money, the run's own and all below. Needs a model whose price is known. Default None."""
    calls: Whole = UNSET
    """Tool calls, the run's own and all below. Default None."""
    seconds: Real = UNSET
    """Wall clock; time spent waiting for a person does not count. Default 600."""
    concurrency: Whole = UNSET
    """Runs working at once, this one included; a run that only waits is not working. Default 16."""
    when_full: WhenFull | UnsetType = UNSET
    """What happens to a child when `concurrency` is used up: wait in order, or be rejected at once."""
    turns: Whole = UNSET
    """Model calls of this run alone; wrap-up and summary turns not counted. Default 50."""
    call_seconds: Real = UNSET
    """One ordinary tool call; not delegating ones, not while waiting for approval. Default 120."""
    calls_at_once: Whole = UNSET
    """Ordinary tool calls of this run that execute at once; further calls start in order. Delegating calls do not count.
    Default 16."""
    stall_seconds: Real = UNSET
    """Silence inside one streamed model call. Default 180."""
    result_chars: Whole = UNSET
    """How much of a child's answer its parent reads inline. Default 8000."""
    context_tokens: Whole = UNSET
    """From this size on, or its model's window if that is smaller, a conversation is shortened; None: never."""

    def __post_init__(self) -> None:
        for name in _WHOLE:
            _check_whole(name, cast(object, getattr(self, name)))
        for name in _REAL:
            _check_real(name, cast(object, getattr(self, name)))
        if self.when_full not in (UNSET, "queue", "reject"):
            raise UsageError(f'Limits.when_full must be "queue" or "reject", not {self.when_full!r}.')

    def over(self, base: Limits) -> Limits:
        """These limits, with what is unset here taken from `base`."""
        unset = {f: getattr(base, f) for f in self.__struct_fields__ if getattr(self, f) is UNSET}
        return msgspec.structs.replace(self, **unset) if unset else self

    def tighter(self, other: Limits | None) -> Limits:
        """Field by field the smaller of the two; where only one says something, that."""
        if other is None:
            return self
        both = {f: _smaller(getattr(self, f), getattr(other, f)) for f in self.__struct_fields__}
        return msgspec.structs.replace(self, **both)


class Left(Struct, frozen=True, kw_only=True):
    """What a run may still spend, the remainder of every run above it included; None is unlimited."""

    depth: int | None = None
    delegations: int | None = None
    requests: int | None = None
    tokens: int | None = None
    usd: float | None = None
    calls: int | None = None
    seconds: float | None = None
    """Until the run has to wrap up."""


ROOT_DEFAULTS = Limits(
    depth=3,
    delegations=64,
    requests=None,
    tokens=None,
    usd=None,
    calls=None,
    seconds=600.0,
    concurrency=16,
    when_full="queue",
    turns=50,
    call_seconds=120.0,
    calls_at_once=16,
    stall_seconds=180.0,
    result_chars=8000,
    context_tokens=1_000_000,
)


# Not looked at by the garbage collector: there is one for each model call, and numbers lead nowhere.
class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """What model calls cost. Recorded where it was spent; every total is a sum of these."""

    requests: int = 0
    input_tokens: int = 0
    """All input, cached included."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    usd: float | None = None
    """None means unknown, never zero."""
    estimated: bool = False
    """True when the provider did not say and any part of this is our estimate."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return total((self, other))


def total(parts: Iterable[Usage]) -> Usage:
    """The sum. Money is added in whole micro-dollars; it is unknown as soon as one paid part is."""
    requests = inputs = outputs = reads = writes = micros = 0
    priced = unknown = estimated = False
    for part in parts:
        requests += part.requests
        inputs += part.input_tokens
        outputs += part.output_tokens
        reads += part.cache_read_tokens
        writes += part.cache_write_tokens
        usd = part.usd
        if usd:
            micros += to_micros(usd)
            priced = True
        elif usd is not None:
            priced = True
        elif part.input_tokens or part.output_tokens:
            unknown = True
        if part.estimated:
            estimated = True
    known = micros / 1_000_000 if priced and not unknown else None
    return Usage(requests, inputs, outputs, reads, writes, known, estimated)


def to_micros(usd: float) -> int:
    """Whole micro-dollars of something spent, rounded up so that a limit is never passed by rounding."""
    if not usd:
        return 0
    whole = _nearly_whole(usd)
    return math.ceil(usd * 1_000_000) if whole is None else whole


def cap_micros(usd: float) -> int:
    """Whole micro-dollars of a limit, rounded down."""
    whole = _nearly_whole(usd)
    return math.floor(usd * 1_000_000) if whole is None else whole


def _nearly_whole(usd: float) -> int | None:
    """The whole number of micro-dollars that only the arithmetic of floats has moved away from."""
    micros = usd * 1_000_000
    near = round(micros)
    if near == micros:
        return near
    return near if abs(micros - near) <= max(1e-6, abs(micros) * 1e-14) else None


NO_CAP = 10**30
"""Stands for a cap where there is none: more than anything can use up."""


class Caps(NamedTuple):
    """What limits say of what is counted, as whole numbers."""

    requests: int = NO_CAP
    tokens: int = NO_CAP
    micros: int = NO_CAP
    calls: int = NO_CAP
    delegations: int = NO_CAP


@functools.lru_cache(maxsize=256)
def caps_of(limits: Limits) -> Caps | None:
    """The caps that limits set; None if they set none."""
    usd = limits.usd
    caps = Caps(
        _whole(limits.requests),
        _whole(limits.tokens),
        cap_micros(usd) if isinstance(usd, (int, float)) else NO_CAP,
        _whole(limits.calls),
        _whole(limits.delegations),
    )
    return None if caps == Caps() else caps


def _whole(value: Whole) -> int:
    return value if isinstance(value, int) else NO_CAP
