"""`Limits` (how much a run may spend) and `Usage` (how much it spent).

Limits are enforced in `engine/budget/ledger.py` (requests, tokens, usd, calls, delegations), `tasks/deadline.py`
(seconds), `engine/budget/slots.py` (concurrency), `engine/run/loop.py` (turns), `engine/run/tool_calls.py`
(calls_at_once) and `engine/run/tool_run.py` (call_seconds).
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
"""A child draws on its parent's remainder; its own number can only narrow that."""

OWN = (
    "turns",
    "call_seconds",
    "calls_at_once",
    "stall_seconds",
    "result_chars",
    "context_tokens",
    "when_full",
)
"""Limits of each run by itself: the agent's number, else its parent's."""

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
"""Names that other systems use for these limits. They appear in suggestions only: each limit has one name."""

HIGHEST = 10**15
"""The highest limit allowed: a larger number is a mistake and would overflow 64-bit sums."""


def _check_whole(name: str, value: object) -> None:
    least = 1 if name in _AT_LEAST_ONE else 0
    if value is UNSET or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"Limits.{name} must be a whole number, None (unlimited) or omitted, not {value!r}.")
    if not least <= value <= HIGHEST:
        raise UsageError(_beyond(name, value, least))


def _check_real(name: str, value: object) -> None:
    if value is UNSET or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"Limits.{name} must be a number, None (unlimited) or omitted, not {value!r}.")
    if not 0 <= value <= HIGHEST:
        raise UsageError(_beyond(name, value, 0))


def _beyond(name: str, value: float, least: int) -> str:
    bound = f"at most {HIGHEST:,}" if value > HIGHEST else f"at least {least}"
    return f"Limits.{name} must be {bound}, or None for unlimited, not {value}."


def _smaller(a: object, b: object) -> object:
    if a is UNSET or b is UNSET:
        return b if a is UNSET else a
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, str):
        return "reject" if "reject" in (a, b) else a
    return min(cast(float, a), cast(float, b))


class _ExplainsUnknownNames(StructMeta):
    """Makes `Limits(...)` raise UsageError with suggestions for an unknown argument name. Decoding is not affected."""

    # Hidden from type checkers: this signature would hide the fields.
    if not TYPE_CHECKING:

        def __call__(self, *unnamed, **named):
            try:
                return super().__call__(*unnamed, **named)
            except TypeError:
                from remit.types.spelling import wrong_names  # noqa: PLC0415 - needed only for this error

                known, example = self.__struct_fields__, "Limits(turns=...)"
                wrong = wrong_names(
                    "Limits", unnamed, named, known=known, others=OTHER_NAMES, example=example
                )
                if wrong:
                    raise UsageError(wrong) from None
                raise


# cache_hash: limits are the keys of caches such as `caps_of`.
class Limits(
    Struct,
    metaclass=_ExplainsUnknownNames,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    cache_hash=True,
):
    """How much one run may spend. Each field has three kinds of value:

    ================  ==========================================================
    omitted           inherit the parent's limit, or the default at the root
    ``None``          no limit of its own (the parent's limit still applies)
    a number          at most that many; 0 means none at all
    ================  ==========================================================
    """

    depth: Whole = UNSET
    """Levels of delegation below this run; 0 means that it may not delegate. Default 3."""
    delegations: Whole = UNSET
    """Children started below this run, in total. Default 64."""
    requests: Whole = UNSET
    """Model calls of this run and its descendants. Default None."""
    tokens: Whole = UNSET
    """Input plus output tokens of this run and its descendants. Default None."""
    usd: Real = UNSET
    """US dollars spent by this run and its descendants. Needs a model with a known price. Default None."""
    calls: Whole = UNSET
    """Tool calls of this run and its descendants. Default None."""
    seconds: Real = UNSET
    """Wall-clock time, excluding time spent waiting for a person. Default 600."""
    concurrency: Whole = UNSET
    """Runs working at once, this one included; a run that only waits is not working. Default 16."""
    when_full: WhenFull | UnsetType = UNSET
    """Whether a new child waits in order or is rejected when `concurrency` is used up. Default `queue`."""
    turns: Whole = UNSET
    """Model calls of this run alone, excluding wrap-up and summary turns. Default 50."""
    call_seconds: Real = UNSET
    """Time for one tool call, excluding delegating calls and waits for approval. Default 120."""
    calls_at_once: Whole = UNSET
    """Tool calls of this run that execute at once; further calls start in order. Delegating calls do not count.
    Default 16."""
    stall_seconds: Real = UNSET
    """Longest silence inside one streamed model call. Default 180."""
    result_chars: Whole = UNSET
    """Characters of a child's answer that its parent reads inline. Default 8000."""
    context_tokens: Whole = UNSET
    """Conversation size, at most the model's window, above which the conversation is shortened; None: never.
    Default 1,000,000."""

    def __post_init__(self) -> None:
        for name in _WHOLE:
            _check_whole(name, cast(object, getattr(self, name)))
        for name in _REAL:
            _check_real(name, cast(object, getattr(self, name)))
        if self.when_full not in (UNSET, "queue", "reject"):
            raise UsageError(f'Limits.when_full must be "queue" or "reject", not {self.when_full!r}.')

    def over(self, base: Limits) -> Limits:
        """These limits, with unset fields taken from `base`."""
        unset = {f: getattr(base, f) for f in self.__struct_fields__ if getattr(self, f) is UNSET}
        return msgspec.structs.replace(self, **unset) if unset else self

    def tighter(self, other: Limits | None) -> Limits:
        """For each field, the smaller of both values, or the only one that is set."""
        if other is None:
            return self
        both = {f: _smaller(getattr(self, f), getattr(other, f)) for f in self.__struct_fields__}
        return msgspec.structs.replace(self, **both)


class Left(Struct, frozen=True, kw_only=True):
    """How much a run may still spend within its own limits and those of every run above; None: unlimited."""

    depth: int | None = None
    delegations: int | None = None
    requests: int | None = None
    tokens: int | None = None
    usd: float | None = None
    calls: int | None = None
    seconds: float | None = None
    """Time until the run must wrap up."""


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


# gc=False: there is one Usage per model call, and plain numbers cannot form reference cycles.
class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """The cost of model calls. Recorded for the run that spent it; every total is a sum."""

    requests: int = 0
    input_tokens: int = 0
    """All input, including cached input."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    usd: float | None = None
    """None means unknown, never zero."""
    estimated: bool = False
    """True if the provider did not report usage and any part of this is an estimate."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return total((self, other))


def total(parts: Iterable[Usage]) -> Usage:
    """The sum. `usd` is added in whole micro-dollars, and is None if the price of any part is unknown."""
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
    """An amount spent in whole micro-dollars, rounded up so that rounding never exceeds a limit."""
    if not usd:
        return 0
    whole = _nearly_whole(usd)
    return math.ceil(usd * 1_000_000) if whole is None else whole


def cap_micros(usd: float) -> int:
    """A limit in whole micro-dollars, rounded down."""
    whole = _nearly_whole(usd)
    return math.floor(usd * 1_000_000) if whole is None else whole


def _nearly_whole(usd: float) -> int | None:
    """The amount in whole micro-dollars, if only float rounding errors separate the two; else None."""
    micros = usd * 1_000_000
    near = round(micros)
    if near == micros:
        return near
    return near if abs(micros - near) <= max(1e-6, abs(micros) * 1e-14) else None


NO_CAP = 10**30
"""The value of an absent cap: more than any run can use."""


class Caps(NamedTuple):
    """The countable limits as whole numbers."""

    requests: int = NO_CAP
    tokens: int = NO_CAP
    micros: int = NO_CAP
    calls: int = NO_CAP
    delegations: int = NO_CAP


@functools.lru_cache(maxsize=256)
def caps_of(limits: Limits) -> Caps | None:
    """The caps of some limits; None if none is set."""
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
