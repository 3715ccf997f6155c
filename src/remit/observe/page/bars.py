"""What each run spent its time on, and which runs the end of the tree waited for: the time view."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field

Kind = Literal["model", "tools", "children", "queue", "person", "none"]
"""A run's activity: the first of these that applies. `none`: the run has ended, or no process runs it."""

KINDS: tuple[Kind, ...] = ("model", "tools", "children", "queue", "person", "none")

MOST_PIECES = 400
"""Pieces of one bar that are sent; more do not fit on a screen."""


class Bar(Struct):
    """A run's time as the moments at which it began to do something else."""

    times: list[float] = field(default_factory=list[float])
    kinds: list[Kind] = field(default_factory=list[Kind])

    def mark(self, at: float, kind: Kind) -> None:
        """From `at` on it does this. Clocks of two machines may disagree: time never runs backwards here."""
        if self.kinds and self.kinds[-1] == kind:
            return
        at = max(at, self.times[-1]) if self.times else at
        if self.times and self.times[-1] == at:
            self.kinds[-1] = kind
            return
        self.times.append(at)
        self.kinds.append(kind)

    def pieces(self, start: float, end: float, now: float) -> list[tuple[float, float, Kind]]:
        """What it did between two moments, in at most about MOST_PIECES pieces."""
        first = max(0, bisect_right(self.times, start) - 1)
        last = bisect_right(self.times, end)
        found: list[tuple[float, float, Kind]] = []
        for place in range(first, last):
            until = self.times[place + 1] if place + 1 < len(self.times) else now
            piece = (max(start, self.times[place]), min(end, until), self.kinds[place])
            if piece[2] != "none" and piece[1] > piece[0]:
                found.append(piece)
        return found if len(found) <= MOST_PIECES else _merged(found, start, end)


def _merged(
    pieces: list[tuple[float, float, Kind]], start: float, end: float
) -> list[tuple[float, float, Kind]]:
    """One piece for each of MOST_PIECES equal spans, of the kind that most of it was."""
    width = (end - start) / MOST_PIECES
    spans: list[dict[Kind, float]] = [{} for _ in range(MOST_PIECES)]
    for begin, until, kind in pieces:
        place, done = min(MOST_PIECES - 1, int((begin - start) / width)), begin
        while done < until and place < MOST_PIECES:
            edge = min(until, start + (place + 1) * width)
            spans[place][kind] = spans[place].get(kind, 0.0) + edge - done
            done, place = edge, place + 1
    found: list[tuple[float, float, Kind]] = []
    for place, span in enumerate(spans):
        if span:
            kind = max(span, key=lambda one: span[one])
            begin = start + place * width
            if found and found[-1][2] == kind and found[-1][1] == begin:
                found[-1] = (found[-1][0], begin + width, kind)
            else:
                found.append((begin, begin + width, kind))
    return found


class Span(Struct, frozen=True):
    """A run from its start to its end, or to now."""

    start: float
    end: float


def critical_path(
    root: str, spans: Mapping[str, Span], children: Mapping[str, Iterable[str]]
) -> list[tuple[str, float, float]]:
    """Which run the end of the tree waited for at each moment, the last one first.

    A run waits for the child that ends last before it continues; between its children, the run itself works.
    """
    path: list[tuple[str, float, float]] = []
    if root not in spans:
        return path
    # A run, the moment up to which it is explained, and those of its children that are not looked at, last end last.
    stack: list[tuple[str, float, list[str]]] = [(root, spans[root].end, _by_end(root, spans, children))]
    while stack:
        run, until, left = stack.pop()
        while left and spans[left[-1]].start >= until:
            left.pop()
        if not left or spans[left[-1]].end <= spans[run].start:
            _add(path, run, spans[run].start, until)
            if stack:
                above, _, rest = stack.pop()
                stack.append((above, min(until, spans[run].start), rest))
            continue
        child = left.pop()
        end = min(until, spans[child].end)
        _add(path, run, end, until)
        stack.append((run, end, left))
        stack.append((child, end, _by_end(child, spans, children)))
    return path


def _by_end(run: str, spans: Mapping[str, Span], children: Mapping[str, Iterable[str]]) -> list[str]:
    return sorted(children.get(run, ()), key=lambda child: (spans[child].end, spans[child].start))


def _add(path: list[tuple[str, float, float]], run: str, start: float, end: float) -> None:
    if end > start:
        path.append((run, start, end))
