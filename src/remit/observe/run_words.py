"""Describes one run: its current action, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import remit.observe.words as words
from remit.history.records import RunRecord, Tree
from remit.types.outcome import Outcome
from remit.types.text import call_context

_ASIDES = {"wrap_up": "wrapping up", "summary": "summarising", "compact": "compacting its conversation"}
_WITH_PARENT = re.compile(r"stopped with [^:]+: (?:cancelled by the caller: )?(.+)")
"""The reason of a run that was stopped because a run above it was: `Life.condemn` writes it."""


class Action(NamedTuple):
    """The current action of a run."""

    words: str
    asks: bool = False
    """The run waits for an approval."""
    waits: bool = False
    """The run is not working: its children are, or it is queued."""


def action_of(tree: Tree, record: RunRecord, calls: Sequence[str], said: str, queued: int) -> Action:
    """`calls` describe its running calls; `said` is the last change of its model call."""
    if record.outcome is not None:
        return Action("")
    request = next((r for r in tree.requests.values() if r.run == record.id), None)
    if request is not None:
        return Action(f"needs approval: {words.doing(request.tool, request.context)}", asks=True)
    if record.asking is not None:
        return Action(said or _ASIDES.get(record.asking.purpose, "thinking"))
    if said:
        return Action(said, waits=True)
    running = [child for child in record.children if tree.runs[child].outcome is None]
    if calls or (not running and not queued and record.turn.open):
        return Action(_calls(record, calls))
    if running or queued:
        return Action(_children(len(running), queued), waits=True)
    return Action("starting" if not record.talk.replies else "working")


def _calls(record: RunRecord, calls: Sequence[str]) -> str:
    """From the calls that were seen to start, else from the open calls in its history."""
    found = list(calls) or [
        words.doing(one.call.name, call_context(one.call.name, one.args))
        for one in record.open_calls()
        if not one.delegates
    ]
    if not found:
        return "working"
    more = len(found) - 1
    return found[0] + (f" and {more} more" if more else "")


def _children(running: int, queued: int) -> str:
    parts = [f"{words.count(running, 'child', 'children')} running"] if running else []
    if queued:
        parts.append(f"{queued} queued")
    return ", ".join(parts)


def ending_of(record: RunRecord, folded: int) -> str:
    """How a run ended; empty while it runs."""
    outcome = record.outcome
    if outcome is None:
        return ""
    said = how_it_ended(outcome)
    if folded:
        said += f" (+{folded} below)"
    return said


def how_it_ended(outcome: Outcome, most: int = 200) -> str:
    """The status and the reason on one line; a reason that starts with the status stands alone."""
    status, why = words.status_words(outcome.status), words.line(outcome.reason or outcome.error or "", most)
    if outcome.ok or not why:
        return status
    if outcome.parent_id is not None and (with_parent := _WITH_PARENT.fullmatch(why)):
        return f"{status} with its parent ({with_parent[1]})"
    return why if why.startswith(status) else f"{status}: {why}"
