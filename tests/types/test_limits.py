"""Limits and usage: unset, unlimited and zero; the tighter of two limits; sums of usage."""

from __future__ import annotations

import math
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from remit import Agent, Limits, Reply, Request, Status, Usage, UsageError, run
from remit.types.limits import OWN, ROOT_DEFAULTS, SHARED, to_micros, total
from remit.types.ports import Emit, Price

WHOLE = (
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
REAL = ("usd", "seconds", "call_seconds", "stall_seconds")
NUMBERS = (*WHOLE, *REAL)


def make(**fields: object) -> Limits:
    return Limits(**fields)  # pyright: ignore[reportArgumentType]


def round_trip(limits: Limits) -> Limits:
    return msgspec.json.decode(msgspec.json.encode(limits), type=Limits)


def test_every_limit_is_either_shared_or_per_run() -> None:
    """A limit is either shared with all descendants or applies to each run by itself, never both."""
    assert sorted(SHARED + OWN) == sorted(Limits.__struct_fields__)
    assert sorted((*NUMBERS, "when_full")) == sorted(Limits.__struct_fields__)


def test_the_defaults_at_the_root_are_the_documented_ones() -> None:
    """The root's defaults leave nothing unset."""
    documented = Limits(
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
    assert documented == ROOT_DEFAULTS


@pytest.mark.parametrize("name", NUMBERS)
def test_unset_none_and_a_number_differ(name: str) -> None:
    """An omitted field, None and a number are three different values, also after a round trip through JSON."""
    for fields, value in (({}, UNSET), ({name: None}, None), ({name: 1}, 1), ({name: 7}, 7)):
        limits = round_trip(make(**fields))
        assert limits == make(**fields)
        got = getattr(limits, name)
        assert got is value if value in (UNSET, None) else got == value
    assert msgspec.json.encode(Limits()) == b"{}"
    assert msgspec.json.decode(msgspec.json.encode(make(**{name: None}))) == {name: None}


def test_repr_shows_only_the_fields_that_were_set() -> None:
    """The repr omits unset fields and shows None."""
    assert repr(Limits()) == "Limits()"
    assert repr(Limits(turns=3, usd=None)) == "Limits(usd=None, turns=3)"


@pytest.mark.parametrize("name", [n for n in NUMBERS if n not in ("turns", "concurrency", "calls_at_once")])
def test_zero_is_a_number(name: str) -> None:
    """Zero is neither unset nor unlimited, and survives a round trip through JSON."""
    limits = round_trip(make(**{name: 0}))
    assert getattr(limits, name) == 0
    assert getattr(limits, name) is not UNSET
    assert getattr(limits.over(ROOT_DEFAULTS), name) == 0
    assert getattr(limits.tighter(ROOT_DEFAULTS), name) == 0


@pytest.mark.parametrize("limits", [Limits(), Limits(when_full="queue"), Limits(when_full="reject")])
def test_when_full_round_trips(limits: Limits) -> None:
    """`when_full` survives a round trip through JSON, also if it is unset."""
    assert round_trip(limits) == limits


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, True, False, "3", [3], 10**16, 10**400, math.nan, math.inf, -math.inf])
def test_a_bad_number_raises_usage_error_with_the_field(name: str, value: object) -> None:
    """Every bad value raises UsageError with the field's name when the limits are created."""
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        make(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_a_count_is_a_whole_number(name: str) -> None:
    """A limit that counts things cannot be a fraction."""
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        make(**{name: 1.5})


@pytest.mark.parametrize("name", ["turns", "concurrency", "calls_at_once"])
def test_turns_concurrency_and_calls_at_once_are_at_least_one(name: str) -> None:
    """Zero turns, zero concurrency and zero calls at once are refused: nothing could ever run."""
    with pytest.raises(UsageError, match=rf"\b{name}\b.*1"):
        make(**{name: 0})


@pytest.mark.parametrize("value", ["wait", None, 1, ["queue"]])
def test_an_unknown_when_full_raises_usage_error(value: object) -> None:
    """`when_full` accepts only "queue" and "reject"."""
    with pytest.raises(UsageError, match="when_full"):
        make(when_full=value)


def test_limits_cannot_be_changed() -> None:
    """Limits are frozen: nothing can widen them later."""
    with pytest.raises(AttributeError):
        Limits(turns=1).turns = 100  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("mine", "base", "expected"),
    [
        (UNSET, UNSET, UNSET),
        (UNSET, None, None),
        (UNSET, 5, 5),
        (None, UNSET, None),
        (None, 5, None),
        (5, UNSET, 5),
        (5, None, 5),
        (5, 3, 5),
        (3, 5, 3),
    ],
)
def test_over_fills_in_only_unset_fields(name: str, mine: object, base: object, expected: object) -> None:
    """`over` keeps the fields that are set and takes the others from the base."""
    assert getattr(make(**{name: mine}).over(make(**{name: base})), name) == expected


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (UNSET, UNSET, UNSET),
        (UNSET, None, None),
        (UNSET, 5, 5),
        (None, None, None),
        (None, 5, 5),
        (3, 5, 3),
        (5, 5, 5),
    ],
)
def test_tighter_takes_the_smaller_of_two(name: str, one: object, other: object, expected: object) -> None:
    """If both limits are set, the smaller applies; None is larger than any number; the order does not matter."""
    a, b = make(**{name: one}), make(**{name: other})
    assert getattr(a.tighter(b), name) == getattr(b.tighter(a), name) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (UNSET, UNSET, UNSET),
        (UNSET, "queue", "queue"),
        (UNSET, "reject", "reject"),
        ("queue", "queue", "queue"),
        ("queue", "reject", "reject"),
        ("reject", "reject", "reject"),
    ],
)
def test_rejecting_is_tighter_than_queueing(one: object, other: object, expected: object) -> None:
    """If one of two limits rejects when full, the result rejects."""
    a, b = make(when_full=one), make(when_full=other)
    assert a.tighter(b).when_full == b.tighter(a).when_full == expected


def test_tighter_than_none_changes_nothing() -> None:
    """`tighter(None)` returns the same limits."""
    assert Limits(turns=3).tighter(None) == Limits(turns=3)


tokens = st.integers(0, 10**9)
money = st.one_of(st.none(), st.integers(0, 10**12).map(lambda micros: micros / 1_000_000))
usages = st.builds(Usage, st.integers(0, 10), tokens, tokens, tokens, tokens, money, st.booleans())


@given(st.lists(usages, max_size=6), st.integers(0, 6))
def test_a_sum_does_not_depend_on_how_it_is_grouped(parts: list[Usage], cut: int) -> None:
    """A total is the same whether it is added at once, one by one, or in two halves."""
    at_once = total(parts)
    one_by_one = Usage()
    for part in parts:
        one_by_one = one_by_one + part
    assert at_once == one_by_one == total((total(parts[:cut]), total(parts[cut:])))


@given(st.lists(usages, max_size=6))
def test_every_count_is_a_sum(parts: list[Usage]) -> None:
    """Each count of a total is the sum of the parts' counts; one estimated part makes the total estimated."""
    whole = total(parts)
    for name in (
        "requests",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "tokens",
    ):
        assert getattr(whole, name) == sum(cast(int, getattr(p, name)) for p in parts)
    assert whole.estimated == any(p.estimated for p in parts)


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_money_is_added_in_whole_micro_dollars(micros: list[int]) -> None:
    """Sums of money have no float rounding errors."""
    whole = total(Usage(1, 10, 10, usd=m / 1_000_000) for m in micros)
    assert whole.usd == sum(micros) / 1_000_000


def test_ten_cents_ten_times_are_a_dollar() -> None:
    """Ten times 0.1 is 1.0."""
    assert total([Usage(1, 1, 1, usd=0.1)] * 10).usd == 1.0


def test_a_sum_is_unknown_if_the_price_of_a_part_is() -> None:
    """Unknown is not zero: one part of unknown price makes the sum unknown, unless that part used nothing."""
    known, unknown, unused = Usage(1, 10, 10, usd=0.5), Usage(1, 10, 10), Usage(1)
    assert total([]).usd is None
    assert (known + unknown).usd is None
    assert (unknown + known + known).usd is None
    assert (known + unused).usd == 0.5
    assert (Usage(1, 10, 10, usd=0.0) + Usage()).usd == 0.0


def test_spending_is_rounded_up_to_a_micro_dollar() -> None:
    """A fraction of a micro-dollar counts as one; float rounding errors do not count."""
    assert to_micros(0.0000001) == 1
    assert to_micros(0.0) == 0
    assert to_micros(0.1 + 0.2) == 300_000
    assert to_micros(0.29) == 290_000


@given(st.integers(0, 10**15))
def test_micro_dollars_survive_conversion_to_dollars(micros: int) -> None:
    """Whole micro-dollars are unchanged after a conversion to dollars and back, up to a billion dollars."""
    assert to_micros(micros / 1_000_000) == micros


@given(usages)
def test_usage_round_trips(usage: Usage) -> None:
    """Usage survives a round trip through JSON; unknown stays unknown, and free stays free."""
    assert msgspec.json.decode(msgspec.json.encode(usage), type=Usage) == usage


class Billing:
    """A model that replies at once and reports `usage`."""

    name = "billing"
    price = Price(1.0, 1.0)

    def __init__(self, usage: Usage) -> None:
        self.usage = usage

    async def reply(self, request: Request, emit: Emit) -> Reply:
        return Reply("done", usage=self.usage)


def said(**fields: object) -> Usage:
    return Usage(**{"requests": 1, "input_tokens": 5, "output_tokens": 5, **fields})


NONSENSE = [
    *(said(usd=value) for value in (math.nan, math.inf, -math.inf, -1.0, "1", True)),
    *(said(input_tokens=value) for value in (-5, 1.5, None, "5", True)),
    *(said(output_tokens=-1), said(cache_read_tokens="x"), said(cache_write_tokens=-3)),
]


@pytest.mark.parametrize("usage", NONSENSE, ids=repr)
async def test_invalid_usage_of_a_provider_is_replaced_by_an_estimate(usage: Usage) -> None:
    """Invalid usage from a provider is replaced by an estimate: the run ends normally, and no total decreases or becomes unreadable."""
    outcome = await run(Agent("lead"), "go", model=Billing(usage), limits=Limits(usd=1.0, tokens=100_000))
    assert outcome.status is Status.COMPLETED
    assert outcome.usage.estimated
    assert outcome.usage.requests == 1
    assert outcome.usage.tokens > 0
    assert outcome.usage.usd is not None
    assert 0 < outcome.usage.usd < 1
    again = msgspec.json.decode(msgspec.json.encode(outcome.total_usage), type=Usage)
    assert again == outcome.total_usage
