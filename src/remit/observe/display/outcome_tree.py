"""A tree rebuilt from an outcome, so that the tree view can draw it.

An outcome has no events: limits and start times are unknown, and a run's task is the first message of its conversation.
"""

from __future__ import annotations

from typing import NamedTuple

from remit.history.records import CallRecord, ClockRecord, RunRecord, TalkRecord, Tree
from remit.types.events import VERSION, CallEnded, RunStarted, Where
from remit.types.limits import Limits
from remit.types.messages import Call, UserMessage, user
from remit.types.outcome import Outcome, ToolCallLog


class Placed(NamedTuple):
    """A run of an outcome, and its place in the tree."""

    id: str
    parent: str | None
    path: tuple[str, ...]
    outcome: Outcome


def placed_runs(top: Outcome) -> list[Placed]:
    """The run and everything below it, in tree order, each with a unique id. Iterative, because trees can be deep."""
    found: list[Placed] = []
    seen: set[str] = set()
    left: list[tuple[str | None, tuple[str, ...], Outcome]] = [(None, (), top)]
    while left:
        parent, above, one = left.pop()
        # Outcomes that people build, for example in tests, may share an id.
        name = one.run_id if one.run_id not in seen else f"{one.run_id}#{len(found)}"
        seen.add(name)
        path = (*above, one.agent)
        found.append(Placed(name, parent, path, one))
        left += [(name, path, child) for child in reversed(one.children)]
    return found


def tree_of(top: Outcome) -> Tree:
    """The tree of an outcome, in which every run has ended."""
    runs: dict[str, RunRecord] = {}
    root = ""
    for placed in placed_runs(top):
        root = root or placed.id
        runs[placed.id] = _record(placed, root)
        if placed.parent is not None:
            runs[placed.parent].children.append(placed.id)
    return Tree(root=root, runs=runs)


def _record(placed: Placed, root: str) -> RunRecord:
    one = placed.outcome
    where = Where(placed.id, placed.parent, root, len(placed.path) - 1, placed.path, one.agent)
    start = RunStarted(
        0,
        0.0,
        where,
        VERSION,
        task=_task(one),
        label=one.label,
        model=one.model,
        # A program makes no model calls.
        program=not one.model and not one.turns,
    )
    return RunRecord(
        start,
        Limits(),
        one.model,
        talk=TalkRecord(list(one.messages), turns=one.turns),
        calls=[_call(log, where) for log in one.calls],
        clock=ClockRecord(worked_s=one.duration_s),
        usage=[one.usage],
        artifacts=list(one.artifacts),
        warnings=list(one.warnings),
        outcome=one,
    )


def _task(one: Outcome) -> UserMessage:
    return next((m for m in one.messages if isinstance(m, UserMessage)), user(""))


def _call(log: ToolCallLog, where: Where) -> CallRecord:
    ended = CallEnded(0, 0.0, where, VERSION, call="", tool=log.name, success=log.success, content="")
    return CallRecord(Call("", log.name), 0, ended=ended)
