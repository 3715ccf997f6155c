"""Trees, outcomes and conversations as HTML for notebooks: no script, no links, no images, every text escaped.

Styles are in attributes, because notebooks remove style sheets from output they do not trust. Colours are readable on a
light and on a dark page, and the text has the page's own colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import remit.observe.words as words
from remit.observe.display.outcome_tree import Placed
from remit.observe.display.transcript import piece
from remit.observe.display.tree_view import Line
from remit.types.limits import Usage
from remit.types.messages import Message, ToolMessage

MOST_CHARS = 1_000_000
"""Characters of all conversations together."""
MOST_TEXT = 8_000
"""Characters of one message."""

OPEN_LINES = 12
"""Longer results of tools are folded."""
OPEN_RUNS = 8
"""With more conversations, all of them are folded into one part."""

COLOURS = {
    "good": "#2a8a3e",
    "bad": "#d9363e",
    "warn": "#a86a00",
    "ask": "#a86a00",
    "busy": "#1b81a3",
}
"""Colours whose contrast is about the same on white and on black."""

_STYLES = {look: f"color:{colour}" for look, colour in COLOURS.items()} | {
    "dim": "opacity:.72",
    "strong": "font-weight:600",
    "ask": f"color:{COLOURS['ask']};font-weight:600",
}
_BOX = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;color:inherit;text-align:left"
_MONO = "margin:0;padding:0;background:transparent;border:0;color:inherit;font-size:12px;line-height:1.4"
_TREE = f"{_MONO};font-family:ui-monospace,monospace;white-space:pre;overflow-x:auto"
_TEXT = f"{_MONO};font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere"
_EDGE = "rgba(128,128,128,.4)"
_SCROLLS = f"max-height:32em;overflow:auto;margin:4px 0 4px 14px;padding:2px 0 2px 10px;border-left:2px solid {_EDGE}"
_CELL = (
    f"padding:1px 10px 1px 0;text-align:right;border:0;border-bottom:1px solid {_EDGE};background:transparent"
)


def box(parts: Iterable[str]) -> str:
    """One output: the parts below each other."""
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def span(text: str, look: words.Look) -> str:
    style = _STYLES.get(look)
    return f'<span style="{style}">{escape(text)}</span>' if style and text.strip() else escape(text)


def block(lines: Iterable[Line]) -> str:
    """Lines of the tree view, unchanged."""
    rows = ("".join(span(text, look) for text, look in line).rstrip() for line in lines)
    return f'<pre style="{_TREE}">' + "\n".join(rows) + "</pre>"


def heading(text: str, look: words.Look) -> str:
    return f'<div style="margin:6px 0 2px">{span(text, look)}</div>'


def prose(text: str) -> str:
    """Untrusted text, escaped for terminals by the caller, with its line breaks."""
    return f'<pre style="{_TEXT}">{escape(text)}</pre>'


def folded(title: str, inside: str, *, scrolls: bool = True) -> str:
    """A part that opens with a click, without a script."""
    style = _SCROLLS if scrolls else "margin:4px 0 4px 14px"
    summary = f'<summary style="cursor:pointer">{escape(title)}</summary>'
    return f'<details style="margin:3px 0">{summary}<div style="{style}">{inside}</div></details>'


def usage_table(rows: Iterable[tuple[str, Usage]]) -> str:
    """The usage of each run; the first row is the total."""
    heads = ("", "model calls", "input", "output", "cached", "cost")
    lines = [_row(heads, dim=True)]
    for name, usage in rows:
        amounts = (usage.requests, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        cost = words.money(usage.usd) + (" (estimated)" if usage.estimated else "")
        lines.append(_row((name, *(f"{amount:,}" for amount in amounts), cost)))
    return f'<table style="border-collapse:collapse;margin:0;font-size:12px">{"".join(lines)}</table>'


def _row(cells: Sequence[str], *, dim: bool = False) -> str:
    first, *others = cells
    look = ";opacity:.72" if dim else ""
    shown = [f'<td style="{_CELL};text-align:left{look}">{escape(first)}</td>']
    shown += [f'<td style="{_CELL}{look}">{escape(cell)}</td>' for cell in others]
    return f'<tr style="background:transparent">{"".join(shown)}</tr>'


def conversations(runs: Iterable[Placed]) -> str:
    """One folded part per run, until `MOST_CHARS` are used; the rest is counted."""
    parts: list[str] = []
    room, left_out = MOST_CHARS, 0
    for placed in runs:
        messages = placed.outcome.messages
        if not messages:
            continue
        if room <= 0:
            left_out += 1
            continue
        shown, room, missing = _messages(messages, placed.outcome.agent, room)
        if missing:
            shown.append(heading(f"{words.count(missing, 'more message')} not shown", "dim"))
        label = f" ({words.line(placed.outcome.label, 60)})" if placed.outcome.label else ""
        title = f"{words.path(placed.path)}{label}: {words.count(len(messages), 'message')}"
        parts.append(folded(title, "".join(shown)))
    if left_out:
        parts.append(heading(f"{words.count(left_out, 'more conversation')} not shown", "dim"))
    if len(parts) > OPEN_RUNS:
        return folded("Conversations", "".join(parts), scrolls=False)
    return "".join(parts)


def _messages(messages: Sequence[Message], agent: str, room: int) -> tuple[list[str], int, int]:
    """Messages that fit, the room that is left, and how many messages did not fit."""
    shown: list[str] = []
    for place, message in enumerate(messages):
        if room <= 0:
            return shown, room, len(messages) - place
        head, body, look = piece(message, agent)
        more = len(body) - MOST_TEXT
        text = prose(body[:MOST_TEXT]) if body else ""
        if more > 0:
            text += heading(f"… {words.count(more, 'more character')}", "dim")
        room -= len(text)
        rows = body.count("\n") + 1
        if isinstance(message, ToolMessage) and rows > OPEN_LINES:
            shown.append(folded(f"{head} ({rows:,} lines)", text))
        else:
            shown.append(heading(head, look) + text)
    return shown, room, 0
