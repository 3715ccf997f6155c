"""Front matter that uses all of YAML, and front matter that is valid YAML only after corrections."""

from __future__ import annotations

import pytest

from remit.definitions.agent_files.keys import VOCABULARY
from remit.definitions.syntax.loose_yaml import read_front_matter
from remit.definitions.syntax.nodes import to_json


def read(text: str) -> tuple[dict[str, object], list[tuple[int, str]]]:
    entries, told = read_front_matter(text.split("\n"), 1, VOCABULARY)
    return {key: to_json(node) for key, node in entries.items()}, [(line, said) for _, line, said in told]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: &m opus\nfallbacks: [*m, haiku]", {"model": "opus", "fallbacks": ["opus", "haiku"]}),
        ("x:\n- - 1\n  - 2\n- [3]", {"x": [[1, 2], [3]]}),
        ("x:\n  n: >-\n    One\n    line.\n  m: |\n    a: b", {"x": {"n": "One line.", "m": "a: b"}}),
        ("x: {a: [1, {b: 2}],\n  c: 'd'}", {"x": {"a": [1, {"b": 2}], "c": "d"}}),
        ("tools: [Bash(git add, git commit), Read]", {"tools": ["Bash(git add, git commit)", "Read"]}),
    ],
)
def test_front_matter_is_yaml(text: str, expected: dict[str, object]) -> None:
    """References, nested lists and multi-line texts are read as YAML, without problems."""
    assert read(text) == (expected, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "tools:\n  - Read\n  - @docs/search\n  - Bash(git: *)",
            {"tools": ["Read", "@docs/search", "Bash(git: *)"]},
        ),
        ("x:\n  a: one: two\n  b: `c`\nmodel: opus", {"x": {"a": "one: two", "b": "`c`"}, "model": "opus"}),
        ("x:\n  a: |\n    one: two: three\n  b: %c", {"x": {"a": "one: two: three", "b": "%c"}}),
        ("tools: *\nmodel: @x", {"tools": "*", "model": "@x"}),
    ],
)
def test_invalid_nested_values_are_quoted(text: str, expected: dict[str, object]) -> None:
    """Colons and signs in lists and mappings are read as part of the value."""
    assert read(text)[0] == expected


def test_an_invalid_value_does_not_affect_others() -> None:
    """An invalid value is read as text and reported with its line; the keys around it are read."""
    found, told = read("model: opus\nhooks:\n  - a: [1\n   b: }\ntools: [Read]")
    assert (found["model"], found["tools"], len(found)) == ("opus", ["Read"], 3)
    assert [line for line, said in told if "hooks is not valid YAML" in said] == [2]


def test_lines_are_those_of_the_keys() -> None:
    """A value has the line of its key, a list item its own line."""
    entries, _ = read_front_matter(["a:", "  b:", "    - c", "    - d", "e: f"], 10, VOCABULARY)
    inner = entries["a"].value
    assert isinstance(inner, dict)
    items = inner["b"].value
    assert isinstance(items, list)
    assert (entries["a"].line, inner["b"].line, [item.line for item in items]) == (10, 11, [12, 13])
    assert entries["e"].line == 14
