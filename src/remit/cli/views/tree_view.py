"""A tree as lines of text: one per run, finished branches folded, as many as a window has room for.

Feed a `TreeView` events, live or from a journal, or give it a `Tree`; `frame` is what fits a window now, `whole` is
every run. Lines are pieces of text with a look; `shown` makes strings of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field

import remit.cli.views.words as words
import remit.types.events as events
from remit.cli.views.run_words import Action, action_of, ending_of
from remit.cli.views.words import Look
from remit.history.fold import apply
from remit.history.records import RunRecord, Tree, elapsed
from remit.types.events import Event
from remit.types.limits import Usage, total

Piece = tuple[str, Look]
Line = tuple[Piece, ...]

DEEPEST = 8
"""Levels that are indented; those below stand under the last."""

WIDEST_NAME = 28
WIDEST_TASK = 80
LEAST_TASK = 12
LEAST_WIDTH = 80
STEP = 20

_NO_USAGE = Usage()


class Live(Struct):
    """What a run is doing that its history does not keep."""

    calls: dict[str, str] = field(default_factory=dict[str, str])
    """Calls that run now, in words."""
    said: str = ""
    """What happened last to its model call: it writes, it is tried again."""
    queued: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Children that wait for a place, by call and key: code may ask for many in one call."""


class Sum(NamedTuple):
    """A run and everything below it."""

    tokens: int
    usd: float | None
    requests: int
    runs: int
    open: int


class Row(NamedTuple):
    """A run that is shown: where it hangs, and whether what is below it is folded away."""

    record: RunRecord
    rails: tuple[bool, ...]
    """For each level above it from the first: whether a later one of that level follows below."""
    folded: int
    """How many runs below it are not shown."""


class TreeView:
    """What is shown of a tree."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.tree = tree or Tree()
        self.live: dict[str, Live] = {}
        self._spent = {record.id: total(record.usage) for record in self.tree.runs.values()}
        self.missed = 0
        """Events that came too quickly to be looked at."""
        self.stands = False
        """Nobody runs it: its clocks stand where its last event left them."""

    def feed(self, event: Event) -> None:
        """Take in what happened."""
        apply(self.tree, event)
        live = self.live.setdefault(event.run, Live())
        if isinstance(event, (events.ReplyReceived, events.ModelCallFailed)):
            self._spent[event.run] = self._spent.get(event.run, _NO_USAGE) + event.usage
        if isinstance(event, events.EventsMissed):
            self.missed += event.missed
        elif isinstance(event, events.RunEnded):
            self.live.pop(event.run, None)
        elif isinstance(event, events.RunStarted):
            above = self.live.get(event.parent or "")
            if above is not None:
                above.queued.discard((event.call, event.key))
        elif isinstance(event, (events.CallStarted, events.CallEnded, events.ChildQueued)):
            _note_call(live, event)
        else:
            _note_model(live, event)

    def clock(self, now: float) -> float:
        """What its clocks go by."""
        return self.tree.at if self.stands else now

    def end(self) -> None:
        """No process runs it any more."""
        self.stands = True
        interrupt(self.tree)

    def sums(self) -> dict[str, Sum]:
        """What each run and everything below it has used."""
        found: dict[str, Sum] = {}
        # Children are started after their parents, so backwards they come first.
        for record in reversed(self.tree.runs.values()):
            own = self._spent.get(record.id, _NO_USAGE)
            tokens, requests, runs, still_open = own.tokens, own.requests, 1, int(record.outcome is None)
            usd = own.usd if own.usd is not None or own.tokens else 0.0
            for child in record.children:
                below = found[child]
                tokens += below.tokens
                requests += below.requests
                runs += below.runs
                still_open += below.open
                usd = None if usd is None or below.usd is None else usd + below.usd
            found[record.id] = Sum(tokens, usd, requests, runs, still_open)
        return found

    def action(self, record: RunRecord) -> Action:
        """What a run is doing, in words."""
        live = self.live.get(record.id)
        calls = list(live.calls.values()) if live else []
        return action_of(self.tree, record, calls, live.said if live else "", len(live.queued) if live else 0)


def interrupt(tree: Tree) -> None:
    """Have every run without an end be one that was interrupted: no process works on it any more."""
    outcomes = tree.outcomes()
    for record in tree.runs.values():
        record.outcome = record.outcome or outcomes[record.id]


def _note_call(live: Live, event: events.CallStarted | events.CallEnded | events.ChildQueued) -> None:
    live.calls.pop(event.call, None)
    if isinstance(event, events.ChildQueued):
        live.queued.add((event.call, event.key))
        return
    live.queued = {one for one in live.queued if one[0] != event.call}
    if isinstance(event, events.CallStarted) and not event.delegates:
        live.calls[event.call] = words.doing(event.tool, event.context, event.display_name)


def _note_model(live: Live, event: Event) -> None:
    if isinstance(event, events.DeltaReceived):
        live.said = "writing…" if event.text else live.said
    elif isinstance(event, events.ModelCallFailed):
        wait = event.retry_in_s
        live.said = "" if wait is None else f"{event.error_kind.replace('_', ' ')}: again in {wait:.0f}s"
    elif isinstance(event, (events.TurnStarted, events.ReplyReceived)):
        live.said = ""


def frame(view: TreeView, *, width: int, height: int, now: float) -> list[Line]:
    """What fits a window: the runs that matter most, those left out as a count, and a line about the whole."""
    return whole(view, width=width, now=now, most=max(1, height - 2))


def whole(view: TreeView, *, width: int, now: float, most: int | None = None) -> list[Line]:
    """Every run, or about `most` lines of those that matter most, and a line about the whole."""
    rows = list(_rows(view.tree, None if most is None else _chosen(view, most)))
    lines = _draw_all(view, rows, width, now)
    rest = _left_out(view.tree, rows)
    if rest:
        lines.append(((words.cut(f"  … {rest}", width), "dim"),))
    return [*lines, summary(view, width, now)]


def shown(lines: Iterable[Line], *, colour: bool, unicode: bool = True) -> str:
    """Lines as a string, without a break at the end."""
    drawn = "\n".join(
        "".join(words.looked(text, look, colour=colour) for text, look in line).rstrip() for line in lines
    )
    return drawn if unicode else words.ascii_only(drawn)


# --- Which runs -----------------------------------------------------------------------------------


def _chosen(view: TreeView, room: int) -> set[str]:
    """Ids of the runs to show: the root, who asks, who works, then who ended, those with trouble first."""
    tree = view.tree
    visible = [r for r in tree.runs.values() if _is_open_above(tree, r)]
    if len(visible) <= room:
        return {record.id for record in visible}
    room = max(1, room - 1)
    asking = {request.run for request in tree.requests.values()}
    chosen: set[str] = set()
    for record in sorted(visible, key=lambda r: _rank(r, asking)):
        wanted = [r for r in _lineage(tree, record) if r not in chosen]
        if len(chosen) + len(wanted) <= room:
            chosen.update(wanted)
        if len(chosen) == room:
            break
    return chosen


def _rank(record: RunRecord, asking: set[str]) -> tuple[int, float]:
    """Smaller comes first. Runs that work keep their order, so that lines stay where they are."""
    if record.id in asking:
        return (0, record.started_at)
    if record.outcome is None:
        return (1, record.started_at)
    return (3 if record.outcome.ok else 2, -(record.started_at + record.clock.worked_s))


def _is_open_above(tree: Tree, record: RunRecord) -> bool:
    """Whether it is shown at all: a run that has ended is one line with everything below it; the root's children stay."""
    parent = tree.runs.get(record.parent) if record.parent else None
    return parent is None or parent.outcome is None or parent.id == tree.root


def _lineage(tree: Tree, record: RunRecord) -> Iterator[str]:
    above: RunRecord | None = record
    while above is not None:
        yield above.id
        above = tree.runs.get(above.parent) if above.parent else None


def _rows(tree: Tree, kept: set[str] | None) -> Iterator[Row]:
    """In the order of the tree, parents first; no recursion, for deep trees."""
    if tree.root not in tree.runs:
        return
    stack: list[tuple[str, tuple[bool, ...]]] = [(tree.root, ())]
    while stack:
        name, rails = stack.pop()
        record = tree.runs[name]
        below = [child for child in record.children if kept is None or child in kept]
        yield Row(record, rails, 0 if below else _count_below(tree, record))
        for place, child in enumerate(reversed(below)):
            stack.append((child, (*rails, place > 0)))


def _count_below(tree: Tree, record: RunRecord) -> int:
    found, stack = 0, list(record.children)
    while stack:
        found += 1
        stack += tree.runs[stack.pop()].children
    return found


def _left_out(tree: Tree, rows: list[Row]) -> str:
    """Those that no line stands for, counted: a folded run stands for what is below it."""
    drawn = {row.record.id for row in rows}
    folded = {row.record.id for row in rows if row.record.outcome is not None and row.folded}
    hidden = {"running": 0, "done": 0, "ended otherwise": 0}
    for record in tree.runs.values():
        if record.parent in folded:
            folded.add(record.id)
        elif record.id not in drawn:
            ended = record.outcome
            hidden["running" if ended is None else "done" if ended.ok else "ended otherwise"] += 1
    said = [f"{many:,} {how}" for how, many in hidden.items() if many]
    if not said:
        return ""
    first, *others = said
    return ", ".join([f"{first.split(' ', 1)[0]} more {first.split(' ', 1)[1]}", *others])


# --- One line -------------------------------------------------------------------------------------


class Words(NamedTuple):
    """What is said of a run on its line, not yet cut to fit."""

    rails: str
    name: str
    task: str
    doing: str
    action: Action

    @property
    def width(self) -> int:
        return sum(map(words.width, (self.rails, self.name, self.task, self.doing))) + 7


def _say(view: TreeView, row: Row) -> Words:
    record, action = row.record, view.action(row.record)
    name = words.line(record.start.nickname or record.agent, WIDEST_NAME)
    task = words.line(record.label or record.task.text, WIDEST_TASK)
    return Words(_rails(row.rails), name, task, ending_of(record, row.folded) or action.words, action)


def _draw_all(view: TreeView, rows: list[Row], width: int, now: float) -> list[Line]:
    """One line each, no wider than they need: in a wide window numbers stay near what they belong to."""
    sums = view.sums()
    said = [_say(view, row) for row in rows]
    costs = view.tree.root in sums and sums[view.tree.root].usd != 0
    numbers = [_numbers(row.record, sums[row.record.id], now, width, costs=costs) for row in rows]
    needed = max((one.width + words.width(n) + 2 for one, n in zip(said, numbers, strict=True)), default=0)
    # In steps, so that lines do not shift with every word.
    width = min(width, max(LEAST_WIDTH, -(-needed // STEP) * STEP))
    return [_draw(row.record, one, n, width) for row, one, n in zip(rows, said, numbers, strict=True)]


def _draw(record: RunRecord, said: Words, numbers: str, width: int) -> Line:
    action, ended = said.action, record.outcome is not None
    mark = words.mark_of(record.status, asking=action.asks, waiting=action.waits)
    room = max(8, width - words.width(said.rails) - 2 - words.width(numbers) - 1)
    name = words.cut(said.name, room)
    room -= words.width(name)
    task, doing = _share(said.task, said.doing, room)
    blanks = " " * max(0, room - words.width(task) - words.width(doing) + 1)
    return (
        (said.rails, "dim"),
        (mark.sign, mark.look),
        (f" {name}", "dim" if ended else "strong"),
        (task, "dim" if ended else ""),
        (doing, mark.look if action.asks else "dim" if ended or action.waits else "busy"),
        (f"{blanks}{numbers}", "dim"),
    )


def _rails(rails: tuple[bool, ...]) -> str:
    """What joins a line with those above it."""
    if not rails:
        return ""
    shown = rails[-DEEPEST:]
    above = "".join("│ " if more else "  " for more in shown[:-1])
    return above + ("├ " if shown[-1] else "└ ")


def _share(task: str, doing: str, room: int) -> tuple[str, str]:
    """Task and action, each with what parts it from what stands before it, in that many cells."""
    if room < LEAST_TASK:
        return "", words.cut(f" {doing}", room) if room > 2 else ""
    needed = words.width(doing) + 3
    least = min(words.width(task) + 2, max(LEAST_TASK, room // 3))
    first = words.cut(f"  {task}", max(least, room - needed)) if task else ""
    left = room - words.width(first)
    return first, words.cut(f" · {doing}", left) if doing and left > 5 else ""


def _numbers(record: RunRecord, sums: Sum, now: float, width: int, *, costs: bool) -> str:
    """Turn, tokens, cost and time in columns; narrow windows have fewer."""
    ended, most = record.outcome, record.limits.turns
    turns = record.talk.turns + (record.asking is not None and record.asking.purpose == "turn")
    turn = f"{turns}/{most}" if isinstance(most, int) and ended is None else f"{turns}"
    if record.start.program:
        # It has no turns.
        turn = "-"
    # By the run's own clock, which stands still while a person is asked.
    past = elapsed(record, now)
    time = words.duration(past)
    allowed = record.limits.seconds
    if ended is None and isinstance(allowed, (int, float)):
        time += f"/{words.allowed_time(allowed)}"
    parts = [
        words.pad(turn, 6, right=True),
        words.pad(words.number(sums.tokens) if sums.tokens else "-", 5, right=True),
    ]
    if costs and width >= 72:
        parts.append(words.pad(words.money(sums.usd) if sums.usd != 0 else "-", 7, right=True))
    if width >= 50:
        parts.append(words.pad(time, 10, right=True))
    return " ".join(parts)


def summary(view: TreeView, width: int, now: float) -> Line:
    """One line about the whole tree: its runs, and what it has spent of its limits."""
    tree = view.tree
    root = tree.runs.get(tree.root)
    if root is None:
        return (("starting…", "dim"),)
    sums, limits = view.sums()[tree.root], root.limits
    past = elapsed(root, now)
    still_open = f", {sums.open:,} open" if sums.open and root.outcome is None else ""
    failed = sum(
        1 for run in tree.runs.values() for c in run.calls if c.ended is not None and not c.ended.success
    )
    parts = [
        words.count(sums.runs, "run") + still_open,
        f"{len(tree.requests):,} waiting for you" if tree.requests else "",
        f"{words.duration(past)}{_of(limits.seconds, words.allowed_time)}",
        _against(sums.tokens, limits.tokens, words.number, " token"),
        "cost unknown" if sums.usd is None else _against(sums.usd, limits.usd, words.money),
        _against(sums.requests, limits.requests, words.number, " model call"),
        _against(sums.runs - 1, limits.delegations, words.number, " delegation") if sums.runs > 1 else "",
        f"{view.missed:,} events not shown" if view.missed else "",
        f"{words.count(failed, 'call')} failed or denied" if failed else "",
    ]
    return ((words.cut(" · ".join(part for part in parts if part), width), "strong"),)


def _against(used: float, limit: object, say: Callable[[float], str], unit: str = "") -> str:
    """What was used, of how much; empty for nothing of no limit. `unit` is for one."""
    limited = isinstance(limit, (int, float))
    if used == 0 and not limited:
        return ""
    many = "s" if unit and (limited or used != 1) else ""
    return f"{say(used)}{_of(limit, say)}{unit}{many}"


def _of(limit: object, say: Callable[[float], str]) -> str:
    return f"/{say(limit)}" if isinstance(limit, (int, float)) else ""
