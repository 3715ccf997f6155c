"""Reading HTML, however broken, in time linear in its length: tags, attributes and text, one after the other.

Not the standard library's parser: on Pythons in use it takes minutes for pages of a certain kind.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

# Every quantifier is possessive: where no end is found, nothing is tried again.
_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?+""")
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp")
}


class Token(NamedTuple):
    kind: Literal["start", "end", "text", "raw"]
    """`raw` is what an element holds in which tags mean nothing, such as a script."""
    name: str
    text: str
    """The text, or the attributes as they were written."""


def tokens(source: str) -> Iterator[Token]:
    """The parts of a page, in their order. Comments, declarations and what a broken end leaves are not among them."""
    at = 0
    while at < len(source):
        mark = source.find("<", at)
        if mark != at:
            yield Token("text", "", source[at:] if mark < 0 else source[at:mark])
        if mark < 0:
            return
        at = _past_comment(source, mark)
        if at > mark:
            continue
        found = _TAG.match(source, mark)
        if found is None:
            if _begins_tag(source, mark):
                # It never ends, so nothing after it is text.
                return
            yield Token("text", "", "<")
            at = mark + 1
            continue
        name = found[2].lower()
        yield Token("end" if found[1] else "start", name, found[3])
        at = found.end()
        if name in _RAW and not found[1]:
            end = _RAW[name].search(source, at)
            stop = end.start() if end else len(source)
            yield Token("raw", name, source[at:stop])
            at = stop


def _past_comment(source: str, at: int) -> int:
    """Where a comment or declaration ends that begins here; `at` itself when none does."""
    if not source.startswith(("<!", "<?"), at):
        return at
    # From the second dash: <!--> is a whole comment.
    mark, start = ("-->", at + 2) if source.startswith("<!--", at) else (">", at)
    end = source.find(mark, start)
    return len(source) if end < 0 else end + len(mark)


def _begins_tag(source: str, at: int) -> bool:
    first = source[at + 1 : at + 3].removeprefix("/")[:1]
    return first.isascii() and first.isalpha()


def attributes(text: str) -> dict[str, str]:
    """Attributes by name; of several with one name the first counts."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1].lower(), unescape(match[2] or match[3] or match[4] or ""))
    return found


def unescape(text: str) -> str:
    """The text with entities replaced by what they stand for."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:
        # A number with thousands of digits stands for nothing.
        return text
