"""Markdown and code as elements that the page can build without ever parsing HTML.

Text of a model is data: its HTML stays text, images are not loaded, a link shows its host. All work here is
bounded in size and in time, because a model chooses the text; see the tests for the patterns that were tried.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from msgspec import Struct

from remit.types.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer

MARKDOWN_CHARS = 20_000
"""Longer texts are shown as they are: parsing the worst text of this length takes a quarter of a second."""
CODE_CHARS = 12_000
"""Longer code has no colours."""
CODE_S = 0.1
"""How long colouring may take; what is left then has none."""
LANGUAGES = frozenset(
    [
        "bash",
        "sh",
        "shell",
        "zsh",
        "console",
        "python",
        "py",
        "python3",
        "javascript",
        "js",
        "jsx",
        "typescript",
        "ts",
        "tsx",
        "json",
        "json5",
        "jsonc",
        "html",
        "xml",
        "css",
        "scss",
        "c",
        "cpp",
        "c++",
        "csharp",
        "cs",
        "java",
        "kotlin",
        "go",
        "golang",
        "rust",
        "rs",
        "ruby",
        "rb",
        "php",
        "sql",
        "yaml",
        "yml",
        "toml",
        "diff",
        "patch",
        "lua",
        "perl",
        "r",
        "scala",
        "haskell",
        "make",
        "makefile",
        "docker",
        "dockerfile",
        "swift",
    ]
)
"""Lexers that were tried with hostile texts. Others are shown without colours."""

_BLANKS = re.compile(r"\s{80}")
"""Some lexers need cubic time for a long run of blanks."""
_LONG_LINE = re.compile(r"[^\n]{2000}")

_LINKS = frozenset({"http", "https", "mailto"})


class Element(Struct, frozen=True, omit_defaults=True):
    """An element of the page: the browser builds those it knows by `t`, and shows the text of all others."""

    t: str
    c: tuple[Element | str, ...] = ()
    href: str = ""
    """Of a link: http, https or mailto."""
    host: str = ""
    """Where a link leads, to be shown beside it."""
    k: str = ""
    """Of a piece of code: what it is, as one letter. Of a cell: its alignment. Of code: its language."""
    n: int = 0
    """Of a numbered list: its first number."""


Nodes = tuple[Element | str, ...]


def markdown(text: str) -> Nodes:
    """A text that a model or a person wrote."""
    text = clean(text)
    if len(text) > MARKDOWN_CHARS:
        return (plain(text),)
    try:
        return _tree(_parser().parse(text))
    except Exception:  # noqa: BLE001 - whatever the parser stumbles over is still worth reading
        return (plain(text),)


def plain(text: str) -> Element:
    """A text as it is, lines kept."""
    return Element("pre", (clean(text),))


def code(text: str, language: str = "") -> Element:
    """Code, coloured if its language is known."""
    text = clean(text)
    if language in ("diff", "patch"):
        return Element("pre", diff(text), k="diff")
    lexer = _lexer(language)
    if lexer is None or len(text) > CODE_CHARS or _BLANKS.search(text) or _LONG_LINE.search(text):
        return Element("pre", (text,), k=language[:20])
    return Element("pre", _coloured(lexer, text), k=language)


def diff(text: str) -> Nodes:
    """The lines of a change: added, removed, or where they are."""
    kinds = {"+": "i", "-": "d", "@": "h"}
    pieces: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines(keepends=True):
        inside = inside or line.startswith("@@")
        kind = kinds.get(line[0], "")
        if not inside and line.startswith(("--- ", "+++ ")):
            kind = "h"
        if pieces and pieces[-1][0] == kind:
            pieces[-1][1].append(line)
        else:
            pieces.append((kind, [line]))
    return tuple(
        Element("s", ("".join(lines),), k=kind) if kind else "".join(lines) for kind, lines in pieces
    )


def looks_like_diff(text: str) -> bool:
    """Whether a text is a change that a tool shows, by its first lines."""
    head = text[:2000].splitlines()
    return any(line.startswith("@@ ") for line in head) or (
        any(line.startswith("--- ") for line in head) and any(line.startswith("+++ ") for line in head)
    )


# --- Markdown -------------------------------------------------------------------------------------


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only once a text is shown

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


_BLOCKS = {
    "paragraph_open": "p",
    "bullet_list_open": "ul",
    "ordered_list_open": "ol",
    "list_item_open": "li",
    "blockquote_open": "quote",
    "table_open": "table",
    "thead_open": "thead",
    "tbody_open": "tbody",
    "tr_open": "tr",
    "th_open": "th",
    "td_open": "td",
    "em_open": "em",
    "strong_open": "b",
    "s_open": "del",
}


class _Open(Struct):
    """An element whose end has not come."""

    head: Element
    inside: list[Element | str]


def _tree(tokens: Iterable[Token]) -> Nodes:
    stack = [_Open(Element(""), [])]
    for token in tokens:
        if token.nesting == 1:
            stack.append(_Open(_head(token), []))
        elif token.nesting == -1:
            done = stack.pop()
            head = done.head
            # A paragraph of a tight list has no element of its own.
            if head.t:
                stack[-1].inside.append(
                    Element(head.t, tuple(done.inside), href=head.href, host=head.host, k=head.k, n=head.n)
                )
            else:
                stack[-1].inside += done.inside
        else:
            stack[-1].inside += _leaf(token)
    return tuple(stack[0].inside)


def _head(token: Token) -> Element:
    if token.type == "heading_open":
        return Element(token.tag)
    if token.type == "link_open":
        return _link(str(token.attrGet("href") or ""))
    if token.type == "paragraph_open" and token.hidden:
        return Element("")
    if token.type == "ordered_list_open":
        first = token.attrGet("start")
        return Element("ol", n=first if isinstance(first, int) else 1)
    style = str(token.attrGet("style") or "")
    return Element(_BLOCKS.get(token.type, ""), k=style.removeprefix("text-align:") if style else "")


def _leaf(token: Token) -> Sequence[Element | str]:
    if token.type == "inline":
        return _tree(token.children or ())
    if token.type == "text":
        return (token.content,)
    if token.type == "code_inline":
        return (Element("code", (token.content,)),)
    if token.type in ("fence", "code_block"):
        return (code(token.content, token.info.split()[0].lower() if token.info.strip() else ""),)
    if token.type in ("softbreak", "hardbreak"):
        return ("\n",) if token.type == "softbreak" else (Element("br"),)
    if token.type == "hr":
        return (Element("hr"),)
    if token.type == "image":
        # Not loaded: the request alone would reveal that a person read this.
        address = _link(str(token.attrGet("src") or ""))
        return (
            Element(
                "a", (f"image: {token.content or 'without a text'}",), href=address.href, host=address.host
            ),
        )
    return (token.content,) if token.content else ()


def _link(address: str) -> Element:
    """A link that can be followed, or none: `javascript:` and its kind are text."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return Element("a")
    if parts.scheme.lower() not in _LINKS or len(address) > 2000:
        return Element("a", host=address[:80])
    return Element("a", href=address, host=host or address[:80])


# --- Code -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    if language not in LANGUAGES:
        return None
    from pygments import lexers  # noqa: PLC0415 - only once code is shown
    from pygments.util import ClassNotFound  # noqa: PLC0415 - as above

    try:
        find = cast("Callable[..., Lexer]", lexers.get_lexer_by_name)  # pyright: ignore[reportUnknownMemberType]  # no types
        return find(language, stripnl=False)
    except ClassNotFound:
        return None


def _coloured(lexer: Lexer, text: str) -> Nodes:
    end = time.monotonic() + CODE_S
    pieces: list[tuple[str, list[str]]] = []
    done = 0
    for kind, piece in lexer.get_tokens(text):
        letter = _letter(str(kind))
        done += len(piece)
        if pieces and pieces[-1][0] == letter:
            pieces[-1][1].append(piece)
        else:
            pieces.append((letter, [piece]))
        if time.monotonic() > end:
            pieces.append(("", [text[done:]]))
            break
    joined = ((kind, "".join(parts)) for kind, parts in pieces)
    return tuple(Element("s", (part,), k=kind) if kind else part for kind, part in joined if part)


_LETTERS = (
    ("Token.Comment", "c"),
    ("Token.Keyword", "k"),
    ("Token.Operator.Word", "k"),
    ("Token.Literal.String", "v"),
    ("Token.Literal.Number", "m"),
    ("Token.Name.Function", "f"),
    ("Token.Name.Class", "f"),
    ("Token.Name.Tag", "k"),
    ("Token.Name.Attribute", "f"),
    ("Token.Name.Decorator", "f"),
    ("Token.Name.Builtin", "k"),
)


@functools.lru_cache(maxsize=256)
def _letter(kind: str) -> str:
    return next((letter for beginning, letter in _LETTERS if kind.startswith(beginning)), "")
