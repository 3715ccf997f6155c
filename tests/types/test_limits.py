"""Limits and usage: what is unset, unlimited and zero; which of two limits holds; sums of what was spent."""

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


def test_every_field_is_shared_or_ones_own() -> None:
    """A limit is either shared with everything below or each run's own, never both."""
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
def test_unset_unlimited_and_a_number_are_three_things(name: str) -> None:
    """What was not written, None and a number are told apart, also after a round trip through JSON."""
    for fields, value in (({}, UNSET), ({name: None}, None), ({name: 1}, 1), ({name: 7}, 7)):
        limits = round_trip(make(**fields))
        assert limits == make(**fields)
        got = getattr(limits, name)
        assert got is value if value in (UNSET, None) else got == value
    assert msgspec.json.encode(Limits()) == b"{}"
    assert msgspec.json.decode(msgspec.json.encode(make(**{name: None}))) == {name: None}


def test_limits_are_shown_as_they_were_written() -> None:
    """What was not written is not shown; None was."""
    assert repr(Limits()) == "Limits()"
    assert repr(Limits(turns=3, usd=None)) == "Limits(usd=None, turns=3)"


@pytest.mark.parametrize("name", [n for n in NUMBERS if n not in ("turns", "concurrency", "calls_at_once")])
def test_zero_is_a_number(name: str) -> None:
    """Zero is neither unset nor unlimited, and survives JSON."""
    limits = round_trip(make(**{name: 0}))
    assert getattr(limits, name) == 0
    assert getattr(limits, name) is not UNSET
    assert getattr(limits.over(ROOT_DEFAULTS), name) == 0
    assert getattr(limits.tighter(ROOT_DEFAULTS), name) == 0


@pytest.mark.parametrize("limits", [Limits(), Limits(when_full="queue"), Limits(when_full="reject")])
def test_what_happens_when_full_round_trips(limits: Limits) -> None:
    """`when_full` is one of two words, or unset."""
    assert round_trip(limits) == limits


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, True, False, "3", [3], 10**16, 10**400, math.nan, math.inf, -math.inf])
def test_a_bad_number_is_the_callers_error_and_names_the_field(name: str, value: object) -> None:
    """Every bad value raises UsageError with the field's name, when the limits are made."""
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        make(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_a_count_is_a_whole_number(name: str) -> None:
    """What is counted cannot be a fraction."""
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        make(**{name: 1.5})


@pytest.mark.parametrize("name", ["turns", "concurrency", "calls_at_once"])
def test_turns_concurrency_and_calls_at_once_are_at_least_one(name: str) -> None:
    """A run without a turn, a tree in which no run may work, or calls that can never start, are mistakes."""
    with pytest.raises(UsageError, match=rf"\b{name}\b.*1"):
        make(**{name: 0})


@pytest.mark.parametrize("value", ["wait", None, 1, ["queue"]])
def test_a_bad_word_for_when_full_is_the_callers_error(value: object) -> None:
    """`when_full` takes its two words only."""
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
def test_over_fills_in_only_what_is_unset(name: str, mine: object, base: object, expected: object) -> None:
    """Laid over a base, what was written stands and what is unset is the base's."""
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
def test_the_tighter_of_two_holds(name: str, one: object, other: object, expected: object) -> None:
    """Where both say something the smaller holds; None is larger than any number; the order does not matter."""
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
    """Where one of two rejects when full, so do both together."""
    a, b = make(when_full=one), make(when_full=other)
    assert a.tighter(b).when_full == b.tighter(a).when_full == expected


def test_tighter_than_nothing_is_itself() -> None:
    """No limits from the caller change nothing."""
    assert Limits(turns=3).tighter(None) == Limits(turns=3)


tokens = st.integers(0, 10**9)
money = st.one_of(st.none(), st.integers(0, 10**12).map(lambda micros: micros / 1_000_000))
usages = st.builds(Usage, st.integers(0, 10), tokens, tokens, tokens, tokens, money, st.booleans())


@given(st.lists(usages, max_size=6), st.integers(0, 6))
def test_a_sum_does_not_depend_on_how_it_is_grouped(parts: list[Usage], cut: int) -> None:
    """A total is the same added at once, one by one, or in two halves."""
    at_once = total(parts)
    one_by_one = Usage()
    for part in parts:
        one_by_one = one_by_one + part
    assert at_once == one_by_one == total((total(parts[:cut]), total(parts[cut:])))


@given(st.lists(usages, max_size=6))
def test_every_count_is_a_sum(parts: list[Usage]) -> None:
    """Each count of a total is the sum of the parts' counts, and one estimate makes the total one."""
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
    """No sum of money is off by the arithmetic of floats."""
    whole = total(Usage(1, 10, 10, usd=m / 1_000_000) for m in micros)
    assert whole.usd == sum(micros) / 1_000_000


def test_ten_cents_ten_times_are_a_dollar() -> None:
    """Ten times 0.1 is 1.0."""
    assert total([Usage(1, 1, 1, usd=0.1)] * 10).usd == 1.0


def test_money_is_unknown_as_soon_as_a_paid_part_is() -> None:
    """Unknown is never zero: one unpriced part makes the sum unknown, one that used nothing does not."""
    known, unknown, unused = Usage(1, 10, 10, usd=0.5), Usage(1, 10, 10), Usage(1)
    assert total([]).usd is None
    assert (known + unknown).usd is None
    assert (unknown + known + known).usd is None
    assert (known + unused).usd == 0.5
    assert (Usage(1, 10, 10, usd=0.0) + Usage()).usd == 0.0


def test_spending_is_rounded_up_to_a_micro_dollar() -> None:
    """A fraction of a micro-dollar counts as one; what floats add or take away does not."""
    assert to_micros(0.0000001) == 1
    assert to_micros(0.0) == 0
    assert to_micros(0.1 + 0.2) == 300_000
    assert to_micros(0.29) == 290_000


@given(st.integers(0, 10**15))
def test_micro_dollars_survive_being_dollars(micros: int) -> None:
    """Whole micro-dollars are the same after a trip through dollars, up to a billion of them."""
    assert to_micros(micros / 1_000_000) == micros


@given(usages)
def test_usage_round_trips(usage: Usage) -> None:
    """Usage survives JSON; money that is unknown stays so, and free stays free."""
    assert msgspec.json.decode(msgspec.json.encode(usage), type=Usage) == usage


class Billing:
    """A model that answers at once and says it used `usage`."""

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
async def test_a_bill_that_makes_no_sense_breaks_nothing_and_gives_nothing_back(usage: Usage) -> None:
    """A provider's nonsense is estimated and marked so: the run ends by itself, and no sum goes down or unread."""
    outcome = await run(Agent("lead"), "go", model=Billing(usage), limits=Limits(usd=1.0, tokens=100_000))
    assert outcome.status is Status.COMPLETED
    assert outcome.usage.estimated
    assert outcome.usage.requests == 1
    assert outcome.usage.tokens > 0
    assert outcome.usage.usd is not None
    assert 0 < outcome.usage.usd < 1
    again = msgspec.json.decode(msgspec.json.encode(outcome.total_usage), type=Usage)
    assert again == outcome.total_usage
