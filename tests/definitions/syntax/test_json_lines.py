"""The JSON reader for agent files: comments, line numbers, bounds."""

from __future__ import annotations

import json

import pytest

from remit.definitions.syntax.json_lines import read_json
from remit.definitions.syntax.nodes import Wrong, to_json
from remit.tools.bounded_toml import MOST_MARKS


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, True, False, None, "x"], "b": {"c": {}}, "d": []},
        '\u00e9 \U0001f600 " \\ / \n \t',
        [],
        {"": {"a\nb": "c"}},
        -1.5e3,
    ],
)
def test_json_is_read_as_it_is_written(value: object) -> None:
    """Every value that the standard library writes is read back the same."""
    for text in (json.dumps(value), json.dumps(value, indent="\t", ensure_ascii=False)):
        assert to_json(read_json(text)) == value


def test_comments_and_trailing_commas_are_ignored() -> None:
    """Comments and trailing commas are allowed, as in editors' settings; inside strings they are text."""
    text = '{\n  // one\n  "a": ["x//y", /* two\n */ "z",],\n  "b": "/* no */",\n}\n'
    found = read_json(text)
    assert to_json(found) == {"a": ["x//y", "z"], "b": "/* no */"}
    assert isinstance(found.value, dict)
    assert (found.value["a"].line, found.value["b"].line) == (3, 5)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("{", 1),
        ('{\n"a": 1\n"b": 2}', 3),
        ('{"a"\n 1}', 2),
        ("[1,\n2", 2),
        ("[1]\n[2]", 2),
        ("{a: 1}", 1),
        ('{"a": nope}', 1),
        ('{"a": NaN}', 1),
        ('{"a": "x\n"}', 1),
        ("[" * 200, 1),
        ("/* never closed", 1),
        ("{]", 1),
    ],
)
def test_invalid_json_is_reported_with_its_line(text: str, line: int) -> None:
    """Invalid JSON is one sentence with a line."""
    with pytest.raises(Wrong) as caught:
        read_json(text)
    assert caught.value.line == line


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["[" + "0," * MOST_MARKS * 2 + "]", '"' * 500_000, "/*" * 500_000, "1" * 900_000]
)
def test_a_hostile_document_is_refused_quickly(text: str) -> None:
    """A hostile document is refused quickly."""
    with pytest.raises(Wrong):
        read_json(text)
