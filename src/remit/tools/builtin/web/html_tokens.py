"""Split HTML, however broken, into tags, attributes and text, in linear time.

The standard library's parser takes minutes for some hostile pages on Python versions in use.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

# Every quantifier is possessive, so that a missing end causes no backtracking.
_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?+""")
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp")
}


class Token(NamedTuple):
    kind: Literal["start", "end", "text", "raw"]
    """`raw` is the content of an element in which tags have no meaning, such as a script."""
    name: str
    text: str
    """The text, or the attributes as written."""


def tokens(source: str) -> Iterator[Token]:
    """The parts of a page, in order. Comments, declarations and an unfinished last tag are skipped."""
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
                # The tag never ends, so the rest is not text.
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
    """The end of a comment or declaration that begins at `at`; `at` itself if none begins there."""
    if not source.startswith(("<!", "<?"), at):
        return at
    # Search from the first dash on: <!--> is a complete comment.
    mark, start = ("-->", at + 2) if source.startswith("<!--", at) else (">", at)
    end = source.find(mark, start)
    return len(source) if end < 0 else end + len(mark)


def _begins_tag(source: str, at: int) -> bool:
    first = source[at + 1 : at + 3].removeprefix("/")[:1]
    return first.isascii() and first.isalpha()


def attributes(text: str) -> dict[str, str]:
    """Attributes by name; if a name repeats, the first counts."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1].lower(), unescape(match[2] or match[3] or match[4] or ""))
    return found


def unescape(text: str) -> str:
    """The text with entities replaced by their characters."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:
        # A numeric entity with thousands of digits is not a character.
        return text
