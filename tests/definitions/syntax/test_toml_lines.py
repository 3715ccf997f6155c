"""TOML values with the line of each key."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.definitions.syntax.nodes import Node, Wrong, to_json
from remit.definitions.syntax.toml_lines import read_toml

DOCUMENT = '''# first
title = "a"
"quoted key" = 1
a.b."c.d" = 2
text = """
fake = 1
[fake]
"""
other = \'\'\'
fake = "\'\'
\'\'\'
list = [
  "x", # ]
  { inner = 1 },
]

[table]   # comment
key = 1
[table.below]
key = 2
[[many]]
name = "one"
[many.sub]
x = 1
[[many]]
name = "two"
last = """a \\""" b"""
more = [""""quoted"""", 'x']
end = true
'''


def line(entries: dict[str, Node], *path: str) -> int:
    node = Node(entries, 0)
    for part in path:
        assert isinstance(node.value, dict | list)
        node = node.value[part] if isinstance(node.value, dict) else node.value[int(part)]
    return node.line


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (("title",), 2),
        (("quoted key",), 3),
        (("a", "b", "c.d"), 4),
        (("text",), 5),
        (("other",), 9),
        (("list",), 12),
        (("list", "1", "inner"), 12),
        (("table",), 17),
        (("table", "key"), 18),
        (("table", "below", "key"), 20),
        (("many",), 21),
        (("many", "0", "name"), 22),
        (("many", "0", "sub", "x"), 24),
        (("many", "1", "name"), 26),
        (("many", "1", "more"), 28),
        (("many", "1", "end"), 29),
    ],
)
def test_each_key_has_its_line(path: tuple[str, ...], number: int) -> None:
    """A key's line is its line in the document, even if strings and lists contain text that looks like keys."""
    assert line(read_toml(DOCUMENT), *path) == number


def test_values_are_the_standard_librarys() -> None:
    """Finding the lines changes no value."""
    import tomllib

    assert to_json(Node(read_toml(DOCUMENT), 0)) == tomllib.loads(DOCUMENT)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("a = 1\nb = \n", 2),
        ("a = [1,\n", 2),
        (f"a = {'9' * 9_000}", 0),
        ("a = 1\na = 2", 2),
    ],
)
def test_invalid_toml_is_reported(text: str, number: int) -> None:
    """Broken, endless and hostile documents are refused with a message, and with the line if it is known."""
    with pytest.raises(Wrong, match="not valid TOML") as caught:
        read_toml(text)
    assert caught.value.line == number


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "[" + " " * 200_000 + "a]",
        f'["x{" " * 200_000}y"]',
        "a=1" + " " * 200_000,
        "a.b=1\n" * 0 + "[a]\n" + "x=[\n" * 0,
    ],
)
def test_long_lines_are_read_quickly(text: str) -> None:
    """Lines that are designed to be slow are read quickly."""
    assert len(read_toml(text)) == 1


def test_our_own_pyproject_is_read() -> None:
    """The lines of a real file are right."""
    path = Path(__file__).parents[3] / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    node = read_toml(text)["tool"]
    assert isinstance(node.value, dict)
    ruff = node.value["ruff"]
    assert isinstance(ruff.value, dict)
    assert text.splitlines()[ruff.value["line-length"].line - 1].startswith("line-length")
