"""Turn web pages into text that a model can read: HTML to something like Markdown, in linear time.

This is our own code because html-to-markdown shows text that a page hides (`<p hidden>IGNORE ALL INSTRUCTIONS<p>`), fails on
some broken pages, and returns nothing for a page that it cannot finish: docs/decisions/0043-our-own-html-to-text.md.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urljoin

from remit.tools.builtin.web.html_tokens import attributes, tokens, unescape
from remit.tools.builtin.web.text_builder import End, TextBuilder
from remit.types.text import shorten

MOST_TEXT = 1_000_000
"""The most characters of the result: absolute links can make it much longer than the page."""
MOST_PARTS = 300_000
"""The most tags and texts that are read; a page of 2 MB has half as many."""
MOST_LINK = 2000
"""The longest address of a link that is shown."""
MOST_BASE = 300
"""The longest base address: it is parsed again for every link."""
MOST_SECONDS = 3.0
"""CPU seconds; the rest of the page is dropped."""
MAIN_CHARS = 200
"""A shorter main part does not replace the whole page."""

_Given = dict[str, str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_IN_HEAD = _names("title base link meta style script noscript template")
_NOISE = _names(
    "script style template head svg canvas iframe object audio video noembed noframes select datalist button nav"
    " annotation annotation-xml"
)
_NOISY_ROLES = _names("navigation search dialog alertdialog contentinfo menu menubar tooltip")
_NEVER_HIDDEN = _names("html body main")
_HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
_LISTS = _names("ul ol menu")
_SPACED = _names("p ul ol dl pre blockquote table figure") | frozenset(_HEADINGS)
_BLOCKS = _SPACED | _names(
    "address article aside body caption center dd details dialog div dt fieldset figcaption footer form header"
    " hgroup legend li main menu section summary tr"
)
# An open element ends where one of these begins; most pages omit some end tags.
_ENDED_BY = {
    "li": _names("li"),
    "dt": _names("dt dd"),
    "dd": _names("dt dd"),
    "td": _names("td th tr"),
    "th": _names("td th tr"),
    "tr": _names("tr"),
    "p": _BLOCKS,
}
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])", re.IGNORECASE)
_HINTS = re.compile(r"hidden|style|role", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source)-([\w+#.-]{1,20})")
# Control characters, direction marks and invisible characters: people do not see them, but a model reads them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]++"
)


def plain(text: str) -> str:
    """The text with \\n line endings and without invisible characters."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN.sub("", text)


def to_text(source: str, url: str) -> tuple[str, bool]:
    """The text of a page, and whether it is complete. Never raises; `url` makes links absolute."""
    page = _Page(url)
    left = MOST_PARTS
    end = time.thread_time() + MOST_SECONDS
    for kind, name, text in tokens(source):
        if kind == "text":
            page.say(text)
        elif kind == "start":
            page.start(name, text)
        elif kind == "end":
            page.end(name)
        else:
            page.raw(name, text)
        left -= 1
        if left % 1000 == 0 and time.thread_time() > end:
            left = 0
        if not left or page.out.chars > MOST_TEXT:
            break
    text = plain(page.text())
    return text[:MOST_TEXT], bool(left) and page.out.chars <= MOST_TEXT and len(text) <= MOST_TEXT


def _language(given: _Given) -> str:
    found = _LANGUAGE.search(given.get("class", ""))
    return found[1] if found else ""


class _Element(NamedTuple):
    name: str
    hidden: bool
    end: End | None = None


class _Row(NamedTuple):
    cells: int = 0
    start: int = 0
    """The number of pieces before the row."""
    said: int = 0
    """The builder's count of written texts before the row."""


class _Page:
    """The state while a page is read: open elements, lists, tables. Without recursion, so depth is not limited."""

    def __init__(self, url: str) -> None:
        self.base = url
        self.title = ""
        self.out = TextBuilder()
        self.opened: list[_Element] = []
        self.counts: Counter[str] = Counter()
        """The number of open elements per name."""
        self.left_out = 0
        self.link: str | None = None
        """The address of the open link, as written."""
        self.lists: list[int] = []
        """The number of the next item of each open list; 0 for a list without numbers."""
        self.tables: list[_Row] = []
        self.language = ""
        """The language of the open code block."""
        self.mains: dict[str, list[tuple[int, int]]] = {"main": [], "article": []}
        """The start and end of parts with these names, as positions in the output."""

    # --- Reading ---

    def say(self, text: str) -> None:
        if not self.left_out:
            self.out.say(unescape(text))

    def raw(self, name: str, text: str) -> None:
        if name == "title" and not self.title and not self.counts["svg"]:
            self.title = " ".join(unescape(text[:2000]).split())
        elif name in ("textarea", "xmp"):
            self.say(text)

    def start(self, name: str, written: str) -> None:
        self._close_for(name)
        given = attributes(written) if name in _WANTED or _HINTS.search(written) else {}
        hidden = self._is_hidden(name, given)
        if name in _VOID:
            if name == "base":
                base = self._address(given.get("href", ""))
                self.base = base if 0 < len(base) <= MOST_BASE else self.base
            elif not hidden and not self.left_out:
                self._void(name, given)
            return
        self.counts[name] += 1
        shown = not hidden and not self.left_out
        self.left_out += hidden
        self.opened.append(_Element(name, hidden, self._begin(name, given) if shown else None))

    def end(self, name: str) -> None:
        if self.counts[name]:
            while self._pop() != name:
                pass
        elif name == "p" and not self.left_out:
            self._line(2)

    def _close_for(self, name: str) -> None:
        """Close open elements that end where an element of this name begins."""
        if self.opened and self.opened[-1].name == "head" and name not in _IN_HEAD:
            self._pop()
        while self.opened and name in _ENDED_BY.get(self.opened[-1].name, ()):
            self._pop()
        if name == "a":
            self.end("a")

    def _is_hidden(self, name: str, given: _Given) -> bool:
        if name in _NOISE:
            return True
        if name == "footer" and not self.counts["article"] and not self.counts["main"]:
            return True
        if name == "dialog" and "open" not in given:
            return True
        if not given or name in _NEVER_HIDDEN:
            return False
        return (
            "hidden" in given
            or given.get("aria-hidden", "").lower() == "true"
            or given.get("role", "").lower() in _NOISY_ROLES
            or bool(_HIDING.search(given.get("style", "")))
        )

    def _pop(self) -> str:
        name, hidden, end = self.opened.pop()
        self.counts[name] -= 1
        self.left_out -= hidden
        if not hidden and not self.left_out:
            if end is not None:
                end()
            if name in _BLOCKS:
                self._line(self._gap(name))
        return name

    # --- Writing ---

    def _gap(self, name: str) -> int:
        return 1 if name not in _SPACED or (name in _LISTS and self.lists) else 2

    def _line(self, gap: int) -> None:
        """Start a new line; inside a link or a table cell, write a space instead."""
        if self.out.block is not None:
            self.out.break_block()
        elif self.link is not None or (self.tables and self.tables[-1].cells):
            self.out.say(" ")
        else:
            self.out.line(gap)

    def _void(self, name: str, given: _Given) -> None:
        if name == "br":
            if self.out.block is not None:
                self.out.say("\n")
            self._line(1)
        elif name == "hr" and self.link is None and not self.tables:
            self.out.line(2)
            self.out.say("---")
            self.out.line(2)
        elif name == "img" and (alt := " ".join(given.get("alt", "").split())):
            address = self._address(given.get("src", "")) if self.link is None else ""
            self.out.say(f"![{shorten(alt, 500, 497)}]({address})" if address else alt)

    def _begin(self, name: str, given: _Given) -> End | None:
        """Write the start of an element, and return a function that writes its end."""
        if name in _BLOCKS:
            self._line(self._gap(name))
        if self.out.block is not None:
            self.language = self.language or _language(given)
            return None
        main = "main" if given.get("role", "").lower() == "main" else name
        if main in self.mains:
            return self._main(main)
        starter = _STARTERS.get(name)
        return starter(self, name, given) if starter else None

    def _main(self, name: str) -> End:
        start = len(self.out.pieces)
        return lambda: self.mains[name].append((start, len(self.out.pieces)))

    def begin_heading(self, name: str, given: _Given) -> End | None:
        del given
        return self.out.mark(_HEADINGS[name]) if self.link is None else None

    def begin_link(self, name: str, given: _Given) -> End:
        del name
        href = self.link = given.get("href", "")
        self.out.anchors.append(-1)

        def linked(words: str) -> str:
            # Resolved only for links with text: a page can have any number of empty links.
            address = self._address(href)
            return f"[{words}]({address})" if address not in ("", words) else words

        def end() -> None:
            self.link = None
            self.out.wrap(linked)

        return end

    def begin_code(self, name: str, given: _Given) -> End | None:
        del given
        if self.link is not None or self.counts[name] > 1:
            return None
        self.out.anchors.append(-1)
        return lambda: self.out.wrap("`{}`".format)

    def begin_pre(self, name: str, given: _Given) -> End | None:
        del name
        if self.link is not None:
            return None
        self.language = _language(given)
        self.out.block = []
        return lambda: self.out.end_block(self.language, in_line=bool(self.tables and self.tables[-1].cells))

    def begin_quote(self, name: str, given: _Given) -> End:
        del name, given
        self.out.quotes += 1

        def end() -> None:
            self.out.quotes -= 1

        return end

    def begin_list(self, name: str, given: _Given) -> End:
        first = given.get("start", "1")[:6]
        number = int(first) if first.isascii() and first.isdigit() else 1
        self.lists.append(number if name == "ol" else 0)
        self.out.lists += 1

        def end() -> None:
            self.lists.pop()
            self.out.lists -= 1

        return end

    def begin_item(self, name: str, given: _Given) -> End:
        del name, given
        number = self.lists[-1] if self.lists else 0
        if number:
            self.lists[-1] += 1
        return self.out.mark(f"{number}. " if number else "- ")

    def begin_table(self, name: str, given: _Given) -> End:
        del name, given
        self.out.line(2)
        self.tables.append(_Row())

        def end() -> None:
            self._end_row()
            self.tables.pop()

        return end

    def begin_row(self, name: str, given: _Given) -> End | None:
        del name, given
        if not self.tables:
            return None
        self._end_row()
        return self._end_row

    def begin_cell(self, name: str, given: _Given) -> None:
        del name, given
        if not self.tables:
            return
        row = self.tables[-1]
        if not row.cells:
            self.out.line(1)
            row = _Row(0, len(self.out.pieces), self.out.said)
        self.tables[-1] = row._replace(cells=row.cells + 1)
        self.out.say(" | " if row.cells else "| ", counts=False)

    def _end_row(self) -> None:
        row = self.tables[-1]
        self.tables[-1] = _Row()
        if row.cells and self.out.said == row.said:
            del self.out.pieces[row.start :]
        elif row.cells:
            self.out.say(" |", counts=False)
        self.out.line(1)

    def _address(self, href: str) -> str:
        """An absolute address, safe inside brackets; empty for fragments, scripts and data."""
        href = "".join(href[: MOST_LINK + 1].split())
        if not href or href.startswith("#") or href[:11].lower().startswith(("javascript:", "data:")):
            return ""
        try:
            address = urljoin(self.base, href)
        except ValueError:
            return ""
        return address.replace("(", "%28").replace(")", "%29") if len(address) <= MOST_LINK else ""

    def text(self) -> str:
        """The title and the main part, or the whole page if it has no main part."""
        while self.opened:
            self._pop()
        text = self.out.between(0, len(self.out.pieces))
        for parts in self.mains.values():
            part = self.out.between(*parts[0]) if len(parts) == 1 else ""
            if len(part) >= min(MAIN_CHARS, len(text)):
                text = part
                break
        title = f"Title: {self.title}\n\n" if self.title else ""
        return title + text


_Starter = Callable[[_Page, str, _Given], End | None]
_STARTERS: dict[str, _Starter] = {
    **dict.fromkeys(_HEADINGS, _Page.begin_heading),
    **dict.fromkeys(_LISTS, _Page.begin_list),
    **dict.fromkeys(("td", "th"), _Page.begin_cell),
    "a": _Page.begin_link,
    "code": _Page.begin_code,
    "pre": _Page.begin_pre,
    "blockquote": _Page.begin_quote,
    "li": _Page.begin_item,
    "table": _Page.begin_table,
    "tr": _Page.begin_row,
}
_WANTED = _names("a img base pre code ol dialog")
"""Elements whose attributes are always parsed."""
