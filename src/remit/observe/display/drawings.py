"""Trees and outcomes as objects that print themselves: as text, with rich, and as HTML in notebooks.

rich is not imported here: it calls `__rich_console__` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import remit.observe.display.html as html
import remit.observe.words as words
from remit.observe.display.outcome_tree import Placed, placed_runs, tree_of
from remit.observe.display.tree_view import Line, TreeView, shown, whole
from remit.observe.run_words import how_it_ended
from remit.observe.words import Look
from remit.types.limits import Usage, total
from remit.types.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

PAGE_WIDTH = 110
"""Columns of a tree in a notebook, a file or a pipe."""
MOST_LINES = 300
"""Runs of a tree in a notebook."""
MOST_TROUBLE = 20
"""Runs that did not complete, named one by one."""
MOST_ANSWER = 20_000
"""Characters of an answer."""

T = TypeVar("T")

Section = tuple[str, str, Look]
"""A title, an escaped text, and the look of the title."""


class TreeDrawing:
    """A tree at one moment, one line per run: `print` it, or display it with rich or in a notebook."""

    def __init__(self, view: TreeView, now: float) -> None:
        self._view = view
        self._now = now

    def lines(self, width: int, most: int | None = None) -> list[Line]:
        """The lines, at most `width` columns wide; about `most` of them, the most important runs first."""
        return whole(self._view, width=width, now=self._now, most=most)

    def __str__(self) -> str:
        stream = sys.stdout
        width = words.window_of(stream) - 1 if words.is_terminal(stream) else PAGE_WIDTH
        # A stream in memory has no encoding, and takes every character.
        unicode = getattr(stream, "encoding", None) is None or words.has_unicode(stream)
        return shown(self.lines(width), colour=False, unicode=unicode)

    __repr__ = __str__

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield _text(self.lines(options.max_width), options)

    @property
    def html(self) -> str:
        return html.box([html.block(self.lines(PAGE_WIDTH, MOST_LINES))])

    def _repr_html_(self) -> str:
        return self.html


class OutcomeDrawing:
    """An outcome: its status, its tree with the usage, its answer, the runs that went wrong; in HTML, conversations too."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    @cached_property
    def tree(self) -> TreeDrawing:
        return TreeDrawing(TreeView(tree_of(self._outcome)), 0.0)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines: list[Line] = [_head(self._outcome), *self.tree.lines(options.max_width)]
        for title, text, look in sections(self._outcome):
            rows = words.wrap_prose(text, options.max_width).split("\n")
            lines += [((title, look),), *(((row, ""),) for row in rows)]
        yield _text(lines, options)

    @property
    def html(self) -> str:
        runs = placed_runs(self._outcome)
        parts = [html.block([_head(self._outcome)]), html.block(self.tree.lines(PAGE_WIDTH, MOST_LINES))]
        for title, text, look in sections(self._outcome):
            parts.append(html.heading(title, look) + html.prose(text))
        parts.append(html.folded("Usage", html.usage_table(_usage(runs))))
        parts.append(html.conversations(runs))
        return html.box(parts)

    def _repr_html_(self) -> str:
        return self.html


def sections(outcome: Outcome) -> Iterator[Section]:
    """The answer or the partial answer, the runs that did not complete, and the warnings; escaped for terminals."""
    runs = placed_runs(outcome)
    wrong = [placed for placed in runs if not placed.outcome.ok]
    if outcome.text:
        yield "Answer", _cut(outcome.text), "good"
    if wrong:
        yield "What went wrong", "\n".join(_trouble(wrong)), "bad"
    if outcome.partial and not outcome.text:
        yield "Partial answer", _cut(outcome.partial), "strong"
    warnings = list(dict.fromkeys(warning for placed in runs for warning in placed.outcome.warnings))
    if warnings:
        yield "Warnings", "\n".join(_listed(warnings, words.line)), "warn"


def _trouble(wrong: list[Placed]) -> Iterator[str]:
    def say(placed: Placed) -> str:
        one = placed.outcome
        label = f" ({words.line(one.label, 60)})" if one.label else ""
        said = f"{words.mark_of(one.status).sign} {words.path(placed.path)}{label}: {how_it_ended(one, 500)}"
        return said + (f" (in {words.line(one.failed_tool)})" if one.failed_tool else "")

    return _listed(wrong, say)


def _listed(items: list[T], say: Callable[[T], str]) -> Iterator[str]:
    yield from map(say, items[:MOST_TROUBLE])
    if len(items) > MOST_TROUBLE:
        yield f"… {len(items) - MOST_TROUBLE} more"


def _cut(text: str) -> str:
    shown_text = words.lines(text[:MOST_ANSWER].rstrip())
    more = len(text) - MOST_ANSWER
    return shown_text if more <= 0 else f"{shown_text}\n… {words.count(more, 'more character')}"


def _head(outcome: Outcome) -> Line:
    mark = words.mark_of(outcome.status)
    model = f"  {words.line(outcome.model, 60)}" if outcome.model else ""
    return (
        (f"{mark.sign} {words.status_words(outcome.status)}", mark.look),
        (f"  {words.line(outcome.agent, 60)}", "strong"),
        (f"{model}  {words.line(outcome.run_id, 60)}", "dim"),
    )


def _usage(runs: list[Placed]) -> Iterator[tuple[str, Usage]]:
    yield "whole tree", runs[0].outcome.total_usage
    for placed in runs[:MOST_LINES]:
        label = f" ({words.line(placed.outcome.label, 60)})" if placed.outcome.label else ""
        yield f"{words.path(placed.path)}{label}", placed.outcome.usage
    if len(runs) > MOST_LINES:
        rest = [placed.outcome.usage for placed in runs[MOST_LINES:]]
        yield f"{words.count(len(rest), 'more run')}", total(rest)


def _text(lines: list[Line], options: ConsoleOptions) -> Text:
    from rich.text import Text  # noqa: PLC0415 - only with rich

    text = Text.from_ansi(shown(lines, colour=True, unicode=not options.ascii_only))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
