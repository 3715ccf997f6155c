"""From events to rows: sums, changes, bars and the critical path, for every beginning of a recorded tree."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from commandbench import make_bench, two_scouts
from hypothesis import given
from hypothesis import strategies as st

from remit.history.fold import fold
from remit.observe.page.bars import MOST_PIECES, Bar, Kind, Span, critical_path
from remit.observe.page.projection import Projection
from remit.types.events import Event


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    bench = make_bench(tmp_path, monkeypatch)
    return bench.events(bench.run(two_scouts()).run_id)


def projected(history: list[Event]) -> Projection:
    found = Projection()
    for event in history:
        found.feed(event)
    return found


def test_sums_are_those_of_the_fold(history: list[Event]) -> None:
    """After every event the root's sum is what the fold adds up, and the sum of all runs' own amounts."""
    for count in range(1, len(history) + 1):
        found, tree = projected(history[:count]), fold(history[:count])
        rows = found.rows()
        assert rows[0].sum.tokens == tree.usage().tokens == sum(row.own.tokens for row in rows)
        assert rows[0].runs == len(rows) == len(tree.runs)


def test_rows_after_a_number_complete_the_rows_before(history: list[Event]) -> None:
    """Rows up to an event, replaced by those that changed after it, are the rows of the whole history."""
    whole = projected(history)
    for count in range(1, len(history)):
        before = {row.id: row for row in projected(history[:count]).rows()}
        after = {row.id: row for row in whole.rows(after=history[count - 1].seq)}
        assert before | after == {row.id: row for row in whole.rows()}


def test_runs_without_an_end_are_interrupted_once_their_process_is_gone(history: list[Event]) -> None:
    """A run without an end is running while a process runs its tree, and interrupted afterwards."""
    found = projected(history[:6])
    assert found.row(found.tree.root).status == "running"
    found.live = False
    assert found.row(found.tree.root).status == "interrupted"


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from(["model", "tools", "queue", "none"])),
        min_size=1,
        max_size=900,
    )
)
def test_bars_have_no_overlap(marks: list[tuple[float, Kind]]) -> None:
    """The pieces of a bar are ordered, do not overlap, stay inside the window, and are bounded in number."""
    bar = Bar()
    for at, kind in marks:
        bar.mark(at, kind)
    pieces = bar.pieces(10.0, 90.0, 100.0)
    assert len(pieces) <= MOST_PIECES
    edges = [edge for start, end, _ in pieces for edge in (start, end)]
    assert all(b - a > -1e-9 for a, b in itertools.pairwise(edges))
    assert all(10.0 - 1e-9 <= edge <= 90.0 + 1e-9 for edge in edges)


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, Span], dict[str, list[str]]]:
    spans, children = {"r": Span(0.0, 100.0)}, dict[str, list[str]]()
    for number in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from(sorted(spans)))
        low, high = spans[parent].start, spans[parent].end
        start = draw(st.floats(low, high))
        run = f"{parent}.{number}"
        spans[run] = Span(start, draw(st.floats(start, high)))
        children.setdefault(parent, []).append(run)
    return spans, children


@given(trees())
def test_the_critical_path_covers_the_whole_time(tree: tuple[dict[str, Span], dict[str, list[str]]]) -> None:
    """The path explains each moment from the start of the tree to its end by one run that was open then."""
    spans, children = tree
    path = critical_path("r", spans, children)
    assert sum(end - start for _, start, end in path) == pytest.approx(100.0)
    last = 100.0
    for run, start, end in path:
        assert end == pytest.approx(last)
        assert spans[run].start - 1e-9 <= start <= end <= spans[run].end + 1e-9
        last = start
    assert last == pytest.approx(0.0)
