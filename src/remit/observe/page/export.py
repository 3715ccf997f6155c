"""One run as a single HTML file: its tree, conversations, calls and events. Without scripts; it loads nothing.

Everything that a model or a tool wrote is escaped. The file has a content security policy of its own, which forbids
scripts and requests even if an escape were missing.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

import remit.observe.page.views as views
import remit.observe.words as words
from remit.history.records import is_within
from remit.observe.page.bodies import CallLine, EntryView, PartView, Text
from remit.observe.page.entries import Entry
from remit.observe.page.markup import Element, Nodes
from remit.observe.page.projection import Projection
from remit.observe.page.rows import RUNNING, Amount, Row
from remit.types.events import Event
from remit.types.messages import ImagePart

STATIC = Path(__file__).parent / "static"
TEXT_CHARS = 200_000
"""Of one text; the file says how much is left out."""
IMAGE_BYTES = 2_000_000
MOST_EVENTS = 5_000
"""Events that are listed; the conversations have the rest."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_TAGS = {
    "p": "p",
    "ul": "ul",
    "ol": "ol",
    "li": "li",
    "quote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "em": "em",
    "b": "strong",
    "del": "del",
    "code": "code",
    "h1": "h4",
    "h2": "h5",
    "h3": "h6",
    "h4": "h6",
    "h5": "h6",
    "h6": "h6",
    "s": "span",
}
_SIGNS = {RUNNING: "●", "completed": "✓", "failed": "✗", "refused": "✗", "cancelled": "■", "interrupted": "■"}
_LOOKS = {RUNNING: "busy", "completed": "good", "failed": "bad", "refused": "bad"}


def page(projection: Projection, run: str, artifacts: Mapping[str, str], *, version: str) -> Iterator[str]:
    """The file in pieces. `artifacts` has the texts of the run's artifacts by their ids."""
    return _Export(projection, run, artifacts, version).pieces()


class _Export:
    def __init__(self, projection: Projection, run: str, artifacts: Mapping[str, str], version: str) -> None:
        self._projection = projection
        self._run = run
        self._artifacts = artifacts
        self._version = version
        self._runs = list(_in_order(projection, run))

    def pieces(self) -> Iterator[str]:
        row = self._projection.row(self._run)
        title = _text(f"{row.agent} {row.id}: {row.task}")
        style = "".join((STATIC / name).read_text("utf-8") for name in ("page.css", "talk.css", "export.css"))
        yield (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
            f'<title>{title}</title><style>{style}</style></head>\n<body class="export"><main>\n'
        )
        yield f'<h1>{title}</h1>\n<p class="facts">{self._facts(row)}</p>\n'
        yield from self._tree()
        for one in self._runs:
            yield from self._one(one)
        yield from self._events()
        yield f'<p class="calm">Written by remit {_text(self._version)}.</p>\n</main></body></html>\n'

    def _facts(self, row: Row) -> str:
        began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row.start))
        facts = [
            _status(row),
            f"began {began}",
            f"{row.worked_s:.1f} s on its clock",
            f"own {_amount(row.own)}, with children {_amount(row.sum)}",
            f"{row.runs:,} runs",
        ]
        return " · ".join(facts)

    def _tree(self) -> Iterator[str]:
        now = time.time()
        whole = self._projection.span(self._run, now)
        end = max(self._projection.span(one, now).end for one in self._runs)
        yield '<h2>Tree</h2>\n<div class="wide"><table class="tree"><thead><tr><th>run</th><th>status</th>'
        yield "<th>own</th><th>with children</th><th>seconds</th><th>time</th></tr></thead><tbody>\n"
        top = self._run.count(".")
        for one in self._runs:
            row = self._projection.row(one)
            depth = min(20, one.count(".") - top)
            bar = self._bar(one, whole.start, max(end, whole.start + 0.001), now)
            yield (
                f'<tr><td class="depth-{depth}"><a href="#{_text(one)}"><b>{_text(row.agent)}</b></a> '
                f"{_text(row.label or row.task)}</td><td>{_status(row)}</td>"
                f'<td class="amount">{_amount(row.own)}</td><td class="amount">{_amount(row.sum)}</td><td>{row.worked_s:.1f}</td>'
                f'<td class="bar-cell">{bar}</td></tr>\n'
            )
        yield "</tbody></table></div>\n"

    def _bar(self, run: str, start: float, end: float, now: float) -> str:
        until = self._projection.span(run, now).end
        pieces = self._projection.branches[run].bar.pieces(start, end, until)
        width = end - start
        return "".join(
            f'<span class="piece bar-{kind}" title="{kind} {to - at:.2f} s"'
            f' style="left:{100 * (at - start) / width:.2f}%;width:{max(0.2, 100 * (to - at) / width):.2f}%"></span>'
            for at, to, kind in pieces
        )

    # --- One run ----------------------------------------------------------------------------------

    def _one(self, run: str) -> Iterator[str]:
        row = self._projection.row(run)
        opened = " open" if run == self._run else ""
        yield f'<details class="run" id="{_text(run)}"{opened}><summary><h2>{_text(row.agent)} {_text(run)}</h2> {_status(row)}</summary>\n'
        record = self._projection.tree.runs[run]
        if record.start.instructions:
            yield f"<details><summary>Instructions</summary>{self._long(record.start.instructions)}</details>\n"
        for entry in self._projection.branches[run].talk.entries:
            yield self._entry(run, entry)
        for one in record.artifacts:
            text = self._artifacts.get(one.id)
            if text is not None:
                name = _text(one.name or one.id)
                yield f"<details><summary>Artifact {name} ({one.chars:,} characters)</summary>{_pre(text)}</details>\n"
        yield "</details>\n"

    def _entry(self, run: str, entry: Entry) -> str:
        tree, live = self._projection.tree, self._projection.live
        view = views.entry_view(tree, run, entry, live=live)
        title = f"Turn {view.turn}" if view.kind == "reply" else view.kind.capitalize()
        at = time.strftime("%H:%M:%S", time.gmtime(view.at))
        facts = " · ".join(filter(None, (view.purpose, view.origin, view.model, _used(view.usage))))
        calls = "".join(self._call(entry, place, line) for place, line in enumerate(view.calls))
        return (
            f'<article class="entry kind-{view.kind}"><header class="line"><h3>{title}</h3>'
            f'<span class="calm">{_text(facts)}</span><span class="grow"></span><span class="calm">{at}</span></header>'
            f"{self._said(run, entry, view)}{calls}</article>\n"
        )

    def _said(self, run: str, entry: Entry, view: EntryView) -> str:
        found: list[str] = []
        if view.words:
            found.append(f'<p class="words">{_text(view.words)}</p>')
        if view.thinking is not None:
            found.append(f"<details><summary>Thinking</summary>{self._whole(run, view.thinking)}</details>")
        if view.text is not None:
            found.append(self._whole(run, view.text))
        found += [self._part(entry, one) for one in view.parts]
        if view.child:
            found.append(f'<p><a href="#{_text(view.child)}">{_text(view.child)}</a></p>')
        return "".join(found)

    def _whole(self, run: str, text: Text) -> str:
        """A text that the page would show in pieces, whole."""
        if text.shown >= text.chars:
            return f'<div class="text">{_nodes(text.nodes)}</div>'
        tree = self._projection.tree
        found = views.find_text(self._projection.branches[run].talk, tree, tree.runs[run], text.ref)
        return self._long(found or "")

    def _long(self, text: str) -> str:
        return f'<div class="text">{_pre(text)}</div>'

    def _call(self, entry: Entry, place: int, line: CallLine) -> str:
        tree, live, run = self._projection.tree, self._projection.live, entry.event.run
        view = views.call_view(tree, entry, place, live=live)
        parts = [(one.name, self._whole(run, one.text)) for one in view.args]
        if view.preview is not None:
            parts.append(("change", self._whole(run, view.preview)))
        if view.answer:
            parts.append(("answer of a person", f"<p>{_text(view.answer)}</p>"))
        if view.result is not None:
            parts.append(("result", self._whole(run, view.result)))
        if view.note:
            parts.append(("note to the model", _pre(view.note)))
        inside = "".join(f'<div class="part"><h4>{_text(name)}</h4>{body}</div>' for name, body in parts)
        inside += "".join(self._part(entry, one) for one in view.parts)
        children = " ".join(
            f'<a href="#{_text(one)}">{_text(one)}</a>' for one in (line.child, *line.code) if one
        )
        ms = "" if line.ms is None else f"{line.ms:,} ms"
        return (
            f'<details class="call-box"><summary><b>{_text(line.tool)}</b> <code>{_text(line.what)}</code> '
            f"{_text(line.state)} {_text(line.summary)} {ms} {children}</summary>{inside}</details>"
        )

    def _part(self, entry: Entry, part: PartView) -> str:
        name = _text(part.name or part.media_type or part.kind)
        talk = self._projection.branches[entry.event.run].talk
        found = views.find_part(talk, part.ref) if part.ref else None
        if not isinstance(found, ImagePart) or len(found.data) > IMAGE_BYTES:
            where = _text(part.url) or f"{part.bytes:,} bytes"
            return f'<p class="calm">{_text(part.kind)} {name} ({where}), not included</p>'
        kind = views.image_type(found.data)
        if not kind:
            return f'<p class="calm">image {name}, not included</p>'
        data = base64.b64encode(found.data).decode()
        return f'<figure><img alt="Image: {name}" src="data:{kind};base64,{data}"></figure>'

    def _events(self) -> Iterator[str]:
        found: list[Event] = [one for one in self._projection.events if is_within(one.run, self._run)]
        yield f'<details><summary><h2>Events</h2> {len(found):,}</summary><div class="wide"><table><tbody>\n'
        for event in found[:MOST_EVENTS]:
            row = views.event_row(event)
            at = time.strftime("%H:%M:%S", time.gmtime(row.at))
            kind = _text(row.kind.replace("_", " "))
            yield f"<tr><td>{row.seq}</td><td>{at}</td><td>{_text(row.run)}</td><td>{kind}</td><td>{_text(row.words)}</td></tr>\n"
        yield "</tbody></table></div>"
        if len(found) > MOST_EVENTS:
            yield f'<p class="calm">{len(found) - MOST_EVENTS:,} more events are not listed.</p>'
        yield "</details>\n"


def _in_order(projection: Projection, run: str) -> Iterator[str]:
    """A run and everything below it, each child below its parent."""
    left = [run]
    while left:
        one = left.pop()
        yield one
        left += reversed(projection.tree.runs[one].children)


# --- Texts ----------------------------------------------------------------------------------------


def _text(text: str) -> str:
    return escape(words.line(text), quote=True)


def _pre(text: str) -> str:
    cut = len(text) - TEXT_CHARS
    more = f'<p class="calm">{cut:,} more characters are not included.</p>' if cut > 0 else ""
    return f'<pre class="body">{escape(words.lines(text[:TEXT_CHARS]))}</pre>{more}'


def _nodes(nodes: Nodes) -> str:
    return "".join(escape(one) if isinstance(one, str) else _element(one) for one in nodes)


def _element(one: Element) -> str:
    inside = _nodes(one.c)
    if one.t == "a":
        host = f' <span class="host">({escape(one.host)})</span>' if one.host else ""
        if not one.href.lower().startswith(("http://", "https://", "mailto:")):
            return f'<span class="nolink">{inside}{host}</span>'
        return (
            f'<a href="{escape(one.href, quote=True)}" rel="noopener noreferrer nofollow">{inside}{host}</a>'
        )
    if one.t == "pre":
        return f'<pre class="body">{inside}</pre>'
    if one.t in ("br", "hr"):
        return f"<{one.t}>"
    tag = _TAGS.get(one.t, "span")
    look = ""
    if one.t == "s" and len(one.k) == 1 and one.k.isalpha():
        look = f' class="tok-{one.k}"'
    elif one.k in ("left", "center", "right"):
        look = f' class="to-{one.k}"'
    start = f' start="{int(one.n)}"' if one.t == "ol" and one.n > 1 else ""
    return f"<{tag}{look}{start}>{inside}</{tag}>"


def _status(row: Row) -> str:
    # Of a run that has ended, `doing` is how and why it ended.
    said = (
        row.status.replace("_", " ") if row.status == RUNNING else row.doing or row.status.replace("_", " ")
    )
    look = _LOOKS.get(row.status, "warn")
    return f'<span class="{look}">{_SIGNS.get(row.status, "!")} {_text(said)}</span>'


def _amount(amount: Amount) -> str:
    usd = "" if amount.usd is None else f" ${amount.usd:.4f}"
    return f"{amount.tokens:,} tokens{usd}"


def _used(amount: Amount | None) -> str:
    return "" if amount is None or not amount.tokens else _amount(amount)


def joined(pieces: Iterable[str]) -> bytes:
    return "".join(pieces).encode("utf-8", "replace")
