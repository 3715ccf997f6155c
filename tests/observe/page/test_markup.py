"""Markdown and code become elements; text of a model stays data, and no text takes long."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from remit.observe.page.markup import CODE_CHARS, LANGUAGES, MARKDOWN_CHARS, code, looks_like_diff, markdown


def nodes(text: str) -> Any:
    return json.loads(msgspec.json.encode(markdown(text)))


def text_of(found: Any) -> str:
    if isinstance(found, str):
        return found
    inside = found if isinstance(found, list) else found.get("c", [])
    return "".join(text_of(one) for one in inside)


def kinds(found: Any) -> set[str]:
    if isinstance(found, str):
        return set()
    own = {found["t"]} if isinstance(found, dict) else set()
    inside = found if isinstance(found, list) else found.get("c", [])
    return own.union(*(kinds(one) for one in inside))


def test_markdown_becomes_elements() -> None:
    """Headings, lists, tables, emphasis and code have elements of their own."""
    found = nodes("# Title\n\n- one\n- *two*\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n")
    assert kinds(found) >= {"h1", "ul", "li", "em", "table", "th", "td", "pre"}
    assert found[0] == {"t": "h1", "c": ["Title"]}


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "before <img src=x onerror=alert(1)> after",
        "<svg/onload=alert(1)>",
        "`<b>bold</b>`",
        "```html\n<iframe src=//evil></iframe>\n```",
        "&lt;script&gt;",
    ],
)
def test_html_stays_text(text: str) -> None:
    """Markup that a model wrote is shown as the characters it consists of."""
    found = nodes(text)
    assert kinds(found) <= {"p", "pre", "code", "s"}
    assert "<" in text_of(found)


@pytest.mark.parametrize(
    "to",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "//evil.example",
        "java\nscript:x",
    ],
)
def test_dangerous_links_have_no_address(to: str) -> None:
    """Only http, https and mailto links can be followed."""
    assert '"href"' not in json.dumps(nodes(f"[click]({to}) ![image]({to}) <{to}>"))


def test_links_name_their_host() -> None:
    """A link shows where it leads, and an image is a link that is not loaded."""
    [paragraph] = nodes("[bank](https://evil.example/a) ![cat](https://evil.example/cat.png)")
    link, _, image = paragraph["c"]
    assert (link["t"], link["host"]) == ("a", "evil.example")
    assert (image["t"], image["c"]) == ("a", ["image: cat"])


def test_code_is_coloured_and_complete() -> None:
    """Colouring changes no character, and unknown languages have no colours."""
    source = "def f(x):\n    return 'a' + 1  # comment\n"
    found = json.loads(msgspec.json.encode(code(source, "python")))
    assert text_of(found) == source
    assert {one["k"] for one in found["c"] if isinstance(one, dict)} >= {"k", "v", "m", "c"}
    assert json.loads(msgspec.json.encode(code(source, "nonsense")))["c"] == [source]


def test_a_diff_marks_its_lines() -> None:
    """Added and removed lines of a change are marked."""
    text = "@@ -1 +1 @@\n-old\n+new\n same\n"
    assert looks_like_diff(text)
    found = json.loads(msgspec.json.encode(code(text, "diff")))
    assert [one["k"] for one in found["c"] if isinstance(one, dict)] == ["h", "d", "i"]
    assert text_of(found) == text


HOSTILE = {
    "nested quotes": ">" * 3000 + "x",
    "nested lists": "\n".join("  " * n + "- x" for n in range(150)),
    "brackets": "[" * 15_000,
    "links": "[a](" * 5000,
    "emphasis": "*a **b " * 2500,
    "backticks": "".join("`" * n + " " for n in range(190)),
    "table": "|a" * 2000 + "\n" + "|-" * 2000 + "\n" + ("|b" * 2000 + "\n"),
    "html": "<a " * 6000,
    "entities": "&#x" * 6000,
    "one long line": "x" * MARKDOWN_CHARS,
    "blanks": "```python\n" + " " * 11_000 + "\n```",
    "controls": "".join(map(chr, range(1, 0x300))) * 20 + "\u202e\u2066\x1b[31m",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markdown_is_quick(name: str) -> None:
    """No text of a model takes more than two seconds, and the result is bounded."""
    began = time.monotonic()
    encoded = msgspec.json.encode(markdown(HOSTILE[name]))
    assert time.monotonic() - began < 2
    assert len(encoded) < 3_000_000


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_hostile_code_is_quick(language: str) -> None:
    """Colouring stops after a moment in every language."""
    for unit in ("(", '"', "/*", "<!--", "a=", "${", "'''", "\\", "#{", "<?"):
        began = time.monotonic()
        code(unit * (CODE_CHARS // len(unit)), language)
        assert time.monotonic() - began < 2, unit
