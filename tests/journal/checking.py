"""Checks that compare a tree that was killed and resumed with one that was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from pprint import pformat
from typing import Any, TypeVar

from killing import Stage, Story

from remit import Outcome
from remit.engine.run.tool_calls import UNKNOWN
from remit.history.fold import fold
from remit.types.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallStarted,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TurnStarted,
)
from remit.types.limits import total
from remit.types.messages import AssistantMessage, Call, Message, ToolMessage

Key = tuple[str, int]
"""A run and the number of its turn: one model call, including its retries."""

T = TypeVar("T")

AT_ONCE = 2

CHANGING = ("write", "publish")


class Plain:
    """The tree without kills, and the names of its writes."""

    def __init__(self, stage: Stage) -> None:
        self.story = stage.story()
        result = self.story.result(self.story.run(point="none"))
        assert result.outcome is not None, result.message
        self.outcome = result.outcome
        self.places = result.places


def check_all(check: Callable[[T], None], cases: Sequence[T]) -> None:
    """Check every case, a few at a time, and report all failures together."""

    def wrong_with(case: T) -> str:
        try:
            check(case)
        except Exception as error:
            return f"{case}: {type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [words for words in pool.map(wrong_with, cases) if words]
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)


def check_story(story: Story, outcome: Outcome, plain: Plain, *, flushed: bool) -> None:
    """`flushed`: at each kill, every event was on disk."""
    events = story.events()
    unknown = {one for left in story.left for one in changing_and_open(left)}
    assert not _differences(shape(outcome), shape(plain.outcome, unknown))
    if not unknown:
        said = {(one.key, one.digest) for one in plain.story.asked()}
        assert {(one.key, one.digest) for one in story.asked()} == said, "the model read something else"
    _check_journal(story, events, outcome)
    _check_requests(story, events, flushed=flushed)
    _check_ledger(events, outcome)
    _check_outside(story, plain.outcome, unknown)


def _differences(seen: object, expected: object) -> str:
    """The lines that differ; pytest shows only the beginning of nested values."""
    if seen == expected:
        return ""
    before, after = (pformat(one, width=160).splitlines() for one in (expected, seen))
    return "\n".join(unified_diff(before, after, "expected", "seen", n=1, lineterm=""))


def walk(outcome: Outcome) -> Iterator[Outcome]:
    yield outcome
    for child in outcome.children:
        yield from walk(child)


def shape(outcome: Outcome, unknown: AbstractSet[tuple[str, str]] = frozenset()) -> Any:
    """The parts of an outcome that do not vary: without durations and remit's notes about remaining limits.

    The calls in `unknown` (run and call) have the result "unknown".
    """
    messages = [_said(outcome.run_id, message, unknown) for message in outcome.messages]
    results = [(m[1], m[2]) for m in messages if m[0] == "tool"]
    logged = [(call.name, call.success) for call in outcome.calls]
    assert unknown or logged == results, "the log differs from the conversation"
    return {
        "run": (outcome.run_id, outcome.parent_id, outcome.agent, outcome.depth),
        "end": (outcome.status, outcome.text, outcome.partial, outcome.reason, outcome.turns),
        "messages": messages,
        "artifacts": [(a.id, a.chars) for a in outcome.artifacts],
        "warnings": outcome.warnings,
        "children": [shape(child, unknown) for child in outcome.children],
    }


def _said(run: str, message: Message, unknown: AbstractSet[tuple[str, str]]) -> tuple[object, ...]:
    if isinstance(message, ToolMessage):
        if (run, message.call_id) in unknown:
            return "tool", message.name, False, UNKNOWN
        return "tool", message.name, message.ok, message.content
    if isinstance(message, AssistantMessage):
        return "assistant", message.text, message.calls
    return "user", message.text


def changing_and_open(left: list[AnyEvent]) -> set[tuple[str, str]]:
    """The changing calls that had started and have no recorded end."""
    return {
        (record.id, one.call.id)
        for record in fold(left).runs.values()
        for one in record.open_calls()
        if one.started and one.tier == "confirm"
    }


def _check_journal(story: Story, events: list[AnyEvent], outcome: Outcome) -> None:
    """The journal is complete and in order, and agrees with the returned outcome."""
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers)), "the numbers of events do not increase"
    for left in story.left:
        assert events[: len(left)] == left, "recorded events were changed"
        answered = {e.request for e in left if isinstance(e, ApprovalAnswered)}
        asked = {e.request for e in events[len(left) :] if isinstance(e, ApprovalRequested)}
        assert not answered & asked, "an answered request was asked again"
    started = Counter(e.run for e in events if isinstance(e, RunStarted))
    ended = Counter(e.run for e in events if isinstance(e, RunEnded))
    assert started == ended == Counter(one.run_id for one in walk(outcome)), (
        "a run does not start and end exactly once"
    )
    tree = fold(events)
    assert not list(tree.intents()), "an intent is left open"
    assert tree.outcome() == outcome
    assert not story.info().live


def _check_requests(story: Story, events: list[AnyEvent], *, flushed: bool) -> None:
    """No recorded reply is requested again, and every request has its intent in the journal."""
    asked = story.asked()
    for life, left in enumerate(story.left, 1):
        recorded = {(e.run, e.turn) for e in left if isinstance(e, ReplyReceived)}
        again = [one for one in asked if one.life > life and one.key in recorded]
        assert not again, f"paid for twice: {again}"
    sent = Counter(one.key for one in asked)
    meant = Counter((e.run, e.turn) for e in events if isinstance(e, TurnStarted))
    in_flight = Counter[Key](
        (record.id, record.asking.turn)
        for left in story.left
        for record in fold(left).runs.values()
        if record.asking is not None
    )
    for key in sent | meant:
        # An intent may be on disk before its request was sent.
        assert meant[key] - sent[key] <= in_flight[key], f"{key}: {meant[key]} intents, {sent[key]} requests"
        # A kill loses events that were not flushed: the intents of requests just sent, of an attempt and of its retry.
        killed = Counter(one.life for one in asked if one.key == key and one.life in lives_killed(story))
        lost = 0 if flushed else sum(min(2, count) for count in killed.values())
        assert sent[key] - meant[key] <= lost, f"{key}: {sent[key]} requests, {meant[key]} intents"


def lives_killed(story: Story) -> set[int]:
    return set(range(1, len(story.left) + 1))


def _check_ledger(events: list[AnyEvent], outcome: Outcome) -> None:
    """Every intent is counted once, in its run; totals are sums over the tree."""
    meant = Counter(e.run for e in events if isinstance(e, TurnStarted))
    for one in walk(outcome):
        assert one.usage.requests == meant[one.run_id]
        assert one.total_usage == total(below.usage for below in walk(one))
    assert outcome.total_usage.requests == meant.total()


def _check_outside(story: Story, plain: Outcome, unknown: AbstractSet[tuple[str, str]]) -> None:
    """Changing tools ran once, or at most once if the result is unknown; observing tools at least once."""
    lines = story.outside()
    done = Counter(what for what, _ in lines)
    for run, call in _calls(plain):
        if call.name not in ("look", *CHANGING):
            continue
        times = done[_line(call)]
        if (run, call.id) in unknown:
            assert times <= 1, f"{call.name} ran {times} times"
        elif call.name in CHANGING:
            assert times == 1, f"{call.name} ran {times} times"
        else:
            assert times >= 1, f"{call.name} never ran"
    for life, left in enumerate(story.left, 1):
        tree = fold(left)
        over = {_line(c.call) for r in tree.runs.values() for c in r.calls if c.ended is not None}
        again = [what for what, number in lines if number > life and what in over]
        assert not again, f"done again although the result was recorded: {again}"


def _line(call: Call) -> str:
    assert isinstance(call.args, dict)
    return f"{call.name} {call.args.get('what')}"


def _calls(outcome: Outcome) -> Iterator[tuple[str, Call]]:
    for one in walk(outcome):
        for message in one.messages:
            if isinstance(message, AssistantMessage):
                yield from ((one.run_id, call) for call in message.calls)


def started(events: list[AnyEvent], tool: str) -> int:
    """How many calls of a tool were started, according to the journal."""
    return sum(isinstance(e, CallStarted) and e.tool == tool for e in events)
