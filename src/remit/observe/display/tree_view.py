"""A tree as lines of text: one line per run, with finished branches folded, limited to the height of a window.

Pass events to a `TreeView`, live or from a journal, or give it a `Tree`. `frame` returns the lines that fit a window,
`whole` returns every run. Lines are pieces of text with a look; `shown` converts them to strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import remit.observe.words as words
import remit.types.events as events
from remit.history.fold import apply
from remit.history.records import RunRecord, Tree, elapsed
from remit.observe.activity import Live, note
from remit.observe.run_words import Action, action_of, ending_of
from remit.observe.words import Look
from remit.types.events import Event
from remit.types.limits import Usage, total

Piece = tuple[str, Look]
Line = tuple[Piece, ...]

DEEPEST = 8
"""Levels that are indented; deeper levels have the indent of the last one."""

WIDEST_NAME = 28
WIDEST_TASK = 80
LEAST_TASK = 12
LEAST_WIDTH = 80
NARROW = 50
"""In windows with fewer columns, a run's only number is its tokens, and only its mark shows that it completed."""
STEP = 20
LEAST_LABELLED = 8
"""Windows with fewer lines show no column labels."""

_NO_USAGE = Usage()


class Sum(NamedTuple):
    """The totals of a run and its descendants."""

    tokens: int
    usd: float | None
    requests: int
    runs: int
    open: int


class Row(NamedTuple):
    """A run that is shown, its place in the tree, and how many of its descendants are folded."""

    record: RunRecord
    rails: tuple[bool, ...]
    """For each level from the first: whether another run of that level follows below."""
    folded: int
    """How many of its descendants are not shown."""


class TreeView:
    """The state of a tree's display."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.tree = tree or Tree()
        self.live: dict[str, Live] = {}
        self._spent = {record.id: total(record.usage) for record in self.tree.runs.values()}
        self.missed = 0
        """Events that were dropped because they came too fast."""
        self.stands = False
        """No process runs the tree: its times stop at its last event."""

    def feed(self, event: Event) -> None:
        """Process an event."""
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
        else:
            note(live, event)

    def clock(self, now: float) -> float:
        """The time that durations are measured to."""
        return self.tree.at if self.stands else now

    def end(self) -> None:
        """Mark the tree as interrupted: its process is gone."""
        self.stands = True
        interrupt(self.tree)

    def sums(self) -> dict[str, Sum]:
        """The totals of each run and its descendants."""
        found: dict[str, Sum] = {}
        # Children start after their parents, so the reversed order has them first.
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
        """The current action of a run, in words."""
        live = self.live.get(record.id)
        calls = list(live.calls.values()) if live else []
        return action_of(self.tree, record, calls, live.said if live else "", len(live.queued) if live else 0)


def interrupt(tree: Tree) -> None:
    """Mark every run without an outcome as interrupted."""
    outcomes = tree.outcomes()
    for record in tree.runs.values():
        record.outcome = record.outcome or outcomes[record.id]


def frame(view: TreeView, *, width: int, height: int, now: float) -> list[Line]:
    """The lines that fit a window: the most important runs, a count of the others, and the summary."""
    totals = summary(view, width, now)[: max(1, height // 4)]
    labelled = height >= LEAST_LABELLED
    most = max(1, height - 1 - labelled - len(totals))
    return [*_runs(view, width, now, most, labelled=labelled), *totals]


def whole(view: TreeView, *, width: int, now: float, most: int | None = None) -> list[Line]:
    """Every run, or about `most` lines of the most important runs, and the summary."""
    return [*_runs(view, width, now, most, labelled=True), *summary(view, width, now)]


def _runs(view: TreeView, width: int, now: float, most: int | None, *, labelled: bool) -> list[Line]:
    rows = list(_rows(view.tree, None if most is None else _chosen(view, most)))
    lines = _draw_all(view, rows, width, now, labelled=labelled)
    rest = _left_out(view.tree, rows)
    if rest:
        lines.append(((words.cut(f"  … {rest}", width), "dim"),))
    return lines


def shown(lines: Iterable[Line], *, colour: bool, unicode: bool = True) -> str:
    """The lines as a string, without a final newline."""
    drawn = "\n".join(
        "".join(words.looked(text, look, colour=colour) for text, look in line).rstrip() for line in lines
    )
    return drawn if unicode else words.ascii_only(drawn)


# --- Which runs -----------------------------------------------------------------------------------


def _chosen(view: TreeView, room: int) -> set[str]:
    """Ids of the runs to show: the root, runs that need approval, running ones, failed ones, completed ones."""
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
    """The sort key; smaller comes first. Running runs keep their order, so that lines do not move."""
    if record.id in asking:
        return (0, record.started_at)
    if record.outcome is None:
        return (1, record.started_at)
    return (3 if record.outcome.ok else 2, -(record.started_at + record.clock.worked_s))


def _is_open_above(tree: Tree, record: RunRecord) -> bool:
    """Whether the run is shown: descendants of an ended run are folded, except the root's children."""
    parent = tree.runs.get(record.parent) if record.parent else None
    return parent is None or parent.outcome is None or parent.id == tree.root


def _lineage(tree: Tree, record: RunRecord) -> Iterator[str]:
    above: RunRecord | None = record
    while above is not None:
        yield above.id
        above = tree.runs.get(above.parent) if above.parent else None


def _rows(tree: Tree, kept: set[str] | None) -> Iterator[Row]:
    """The rows in tree order, parents first. Iterative, because trees can be deep."""
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
    """Counts of the runs that are not shown, without those folded into a run that is shown."""
    drawn = {row.record.id for row in rows}
    folded = {row.record.id for row in rows if row.record.outcome is not None and row.folded}
    hidden = {"running": 0, "completed": 0, "not completed": 0}
    for record in tree.runs.values():
        if record.parent in folded:
            folded.add(record.id)
        elif record.id not in drawn:
            ended = record.outcome
            hidden["running" if ended is None else "completed" if ended.ok else "not completed"] += 1
    counts = [f"{many:,} {how}" for how, many in hidden.items() if many]
    if not counts:
        return ""
    first, *others = counts
    return ", ".join([f"{first.split(' ', 1)[0]} more {first.split(' ', 1)[1]}", *others])


# --- One line -------------------------------------------------------------------------------------


class Words(NamedTuple):
    """The texts of a run's line, not yet cut to fit."""

    rails: str
    name: str
    task: str
    doing: str
    action: Action

    @property
    def width(self) -> int:
        return sum(map(words.width, (self.rails, self.name, self.task, self.doing))) + 7


def _say(view: TreeView, row: Row, *, narrow: bool) -> Words:
    record, action = row.record, view.action(row.record)
    name = words.line(record.start.nickname or record.agent, WIDEST_NAME)
    task = words.line(record.label or record.task.text, WIDEST_TASK)
    ended = ending_of(record, row.folded)
    if narrow and record.outcome is not None and record.outcome.ok:
        return Words(_rails(row.rails), name, task, f"+{row.folded} below" if row.folded else "", action)
    return Words(_rails(row.rails), name, task, ended or action.words, action)


def _draw_all(view: TreeView, rows: list[Row], width: int, now: float, *, labelled: bool) -> list[Line]:
    """One line per run, no wider than needed, so that in a wide window the numbers stay near the text."""
    sums = view.sums()
    said = [_say(view, row, narrow=width < NARROW) for row in rows]
    shown = _columns(width, costs=view.tree.root in sums and sums[view.tree.root].usd != 0)
    numbers = [_numbers(row.record, sums[row.record.id], now, shown) for row in rows]
    needed = max((one.width + words.width(n) + 2 for one, n in zip(said, numbers, strict=True)), default=0)
    # In steps, so that the columns do not move with every change.
    width = min(width, max(LEAST_WIDTH, -(-needed // STEP) * STEP))
    lines = [_draw(row.record, one, n, width) for row, one, n in zip(rows, said, numbers, strict=True)]
    return [_labels(shown, width), *lines] if labelled and lines else lines


def _columns(width: int, *, costs: bool) -> dict[str, int]:
    """The columns of numbers and their cells; narrow windows have fewer."""
    if width < NARROW:
        return {"TOKENS": 6}
    cost = {"COST": 7} if costs and width >= 72 else {}
    return {"TURNS": 6, "TOKENS": 6, **cost, "TIME": 10}


def _labels(shown: dict[str, int], width: int) -> Line:
    """The line above the runs."""
    numbers = " ".join(words.pad(label, cells, right=True) for label, cells in shown.items())
    text = words.pad("  AGENT  TASK · STATUS", max(0, width - words.width(numbers) - 1))
    return ((f"{text} {numbers}", "dim"),)


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
    """The characters that connect a line to the lines above."""
    if not rails:
        return ""
    shown = rails[-DEEPEST:]
    above = "".join("│ " if more else "  " for more in shown[:-1])
    return above + ("├ " if shown[-1] else "└ ")


def _share(task: str, doing: str, room: int) -> tuple[str, str]:
    """Task and action, each with its separator, cut to `room` cells."""
    if room < LEAST_TASK:
        return "", words.cut(f" {doing}", room) if room > 2 else ""
    needed = words.width(doing) + 3
    least = min(words.width(task) + 2, max(LEAST_TASK, room // 3))
    first = words.cut(f"  {task}", max(least, room - needed)) if task else ""
    left = room - words.width(first)
    return first, words.cut(f" · {doing}", left) if doing and left > 5 else ""


def _numbers(record: RunRecord, sums: Sum, now: float, shown: dict[str, int]) -> str:
    """The run's value in each column."""
    ended, most = record.outcome, record.limits.turns
    turns = record.talk.turns + (record.asking is not None and record.asking.purpose == "turn")
    turn = f"{turns}/{most}" if isinstance(most, int) and ended is None else f"{turns}"
    if record.start.program:
        # A program has no turns.
        turn = "-"
    # Measured by the run's own clock, which pauses while an approval is open.
    past = elapsed(record, now)
    time = words.duration(past)
    allowed = record.limits.seconds
    if ended is None and isinstance(allowed, (int, float)):
        time += f"/{words.allowed_time(allowed)}"
    values = {
        "TURNS": turn,
        "TOKENS": words.number(sums.tokens) if sums.tokens else "-",
        "COST": words.money(sums.usd) if sums.usd != 0 else "-",
        "TIME": time,
    }
    return " ".join(words.pad(values[label], cells, right=True) for label, cells in shown.items())


def summary(view: TreeView, width: int, now: float) -> list[Line]:
    """The totals of the tree and its limits. One line, or several in a narrow window."""
    tree = view.tree
    root = tree.runs.get(tree.root)
    if root is None:
        return [(("starting…", "dim"),)]
    sums, limits = view.sums()[tree.root], root.limits
    past = elapsed(root, now)
    still_open = f", {sums.open:,} running" if sums.open and root.outcome is None else ""
    failed = sum(
        1 for run in tree.runs.values() for c in run.calls if c.ended is not None and not c.ended.success
    )
    parts = [
        words.count(sums.runs, "run") + still_open,
        f"{words.count(len(tree.requests), 'approval')} needed" if tree.requests else "",
        f"{words.duration(past)}{_of(limits.seconds, words.allowed_time)}",
        _against(sums.tokens, limits.tokens, words.number, " token"),
        "cost unknown" if sums.usd is None else _against(sums.usd, limits.usd, words.money),
        _against(sums.requests, limits.requests, words.number, " model call"),
        _against(sums.runs - 1, limits.delegations, words.number, " delegation") if sums.runs > 1 else "",
        f"{words.count(view.missed, 'event')} not shown" if view.missed else "",
        f"{words.count(failed, 'call')} failed or denied" if failed else "",
    ]
    return [((line, "strong"),) for line in _joined([part for part in parts if part], width)]


def _joined(parts: list[str], width: int) -> Iterator[str]:
    """The parts joined by dots, in as many lines as needed."""
    line = ""
    for part in parts:
        longer = f"{line} · {part}" if line else part
        if line and words.width(longer) > width:
            yield line
            longer = part
        line = words.cut(longer, width)
    yield line


def _against(used: float, limit: object, say: Callable[[float], str], unit: str = "") -> str:
    """The amount and its limit; empty if nothing was used and there is no limit. `unit` is singular."""
    limited = isinstance(limit, (int, float))
    if used == 0 and not limited:
        return ""
    many = "s" if unit and (limited or used != 1) else ""
    return f"{say(used)}{_of(limit, say)}{unit}{many}"


def _of(limit: object, say: Callable[[float], str]) -> str:
    return f"/{say(limit)}" if isinstance(limit, (int, float)) else ""
