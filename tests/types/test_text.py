"""`remit.types.text`: valid text, sizes, call logs, values as text."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from pathlib import Path

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit.types.text as text
from remit.types.text import (
    call_context,
    clean,
    clean_json,
    cut_bytes,
    cut_chars,
    result_summary,
    shorten,
    text_of,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = ["read", "write", "edit", "ls", "bash", "terminal", "glob", "grep", "web_search", "fetch", "task"]
NAMES += ["subagent", "subagent_scout", "anything"]
KEYS = ["path", "file_path", "command", "pattern", "query", "url", "agent", "label", "prompt", "task"]


@given(ANY_TEXT)
def test_clean_text_can_always_be_encoded(value: str) -> None:
    """Clean text is valid UTF-8, and cleaning it again changes nothing."""
    cleaned = clean(value)
    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) is cleaned


def test_only_lone_surrogates_are_replaced() -> None:
    """Each lone surrogate becomes U+FFFD; valid text is returned as the same object; split pairs are joined."""
    assert clean("a\ud800b\udc00") == "a�b�"
    assert clean("\ud83d\ude00") == "😀"
    for valid in ("plain", "naïve 😀"):
        assert clean(valid) is valid


def test_clean_json_cleans_keys_and_nested_values() -> None:
    """Every string in a JSON value is cleaned, keys included, in a copy."""
    value: dict[str, object] = {"\ud800": [{"k": "\udfff"}, 1, None, True]}
    assert clean_json(value) == {"�": [{"k": "�"}, 1, None, True]}
    assert list(value) == ["\ud800"]


@given(ANY_TEXT, st.integers(-2, 12))
def test_cut_bytes_fits_and_never_splits_a_character(value: str, most: int) -> None:
    """The result is a prefix of the clean text and fits; one more character would not fit."""
    cut = cut_bytes(value, most)
    whole = clean(value)
    assert len(cut.encode()) <= max(most, 0)
    if cut_chars(value, most) == value:
        assert whole.startswith(cut)
        assert cut == whole or len(whole[: len(cut) + 1].encode()) > most


def test_cut_chars_counts_characters() -> None:
    """At most that many characters remain; a negative number leaves none."""
    assert cut_chars("äöü", 2) == "äö"
    assert cut_chars("äöü", -1) == ""


def test_shorten_changes_only_text_above_the_limit() -> None:
    """Text at the limit is kept whole; one more character shortens it to `keep` characters and an ellipsis."""
    assert shorten("x" * 60, 60, 57) == "x" * 60
    assert shorten("x" * 61, 60, 57) == "x" * 57 + "..."


@pytest.mark.parametrize(
    ("value", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("a\n\n", 2)]
)
def test_count_lines(value: str, lines: int) -> None:
    """A line break ends a line and does not start another."""
    assert text.count_lines(value) == lines


@pytest.mark.parametrize(
    ("name", "args", "context"),
    [
        ("read", {"file_path": "a.py", "path": "b.py"}, "a.py"),
        ("read_file", {"path": "b.py"}, "b.py"),
        ("write", {"file_path": 7, "path": "b.py"}, "b.py"),
        ("edit", {}, ""),
        ("ls", {"path": "src"}, "src"),
        ("bash", {"command": "x" * 60}, "x" * 60),
        ("bash", {"command": "ä" * 61}, "ä" * 57 + "..."),
        ("terminal", {"command": "ls\n-l\x1b[1m"}, "ls -l [1m"),
        ("glob", {"pattern": "*.py", "path": "src"}, "*.py"),
        ("grep", {"pattern": ["not", "text"]}, ""),
        ("web_search", {"query": "tea"}, "tea"),
        ("fetch", {"url": "http://localhost"}, "http://localhost"),
        ("task", {"agent": "explorer", "prompt": "look at src"}, "explorer: look at src"),
        ("subagent", {"label": "count", "task_prompt": "long"}, "count"),
        ("subagent", {"task_prompt": "count the\nfiles"}, "count the files"),
        ("subagent_scout", {"task": "go"}, "scout: go"),
        ("subagent_scout", {"prompt": "", "task": "go"}, "scout: go"),
        ("other", {"path": "a.py"}, ""),
        ("read", "{broken", ""),
    ],
)
def test_call_context(name: str, args: object, context: str) -> None:
    """The context of a call is its most important argument, on one line; commands are cut at 60 characters."""
    assert call_context(name, args) == context


@given(st.sampled_from(NAMES), ANY_JSON | st.dictionaries(st.sampled_from(KEYS), ANY_JSON))
def test_a_context_is_always_one_short_valid_line(name: str, args: object) -> None:
    """For any arguments, the context is valid, short and on one line."""
    context = call_context(name, args)
    assert len(context.splitlines()) <= 1
    assert len(context) <= text.CONTEXT_CHARS
    context.encode()


@pytest.mark.parametrize(
    ("name", "content", "ok", "summary"),
    [
        ("bash", "", False, "Error"),
        ("read", "no such file\nat all", False, "no such file"),
        ("read", "e" * 51, False, "e" * 47 + "..."),
        ("read", "a\nb\n", True, "2 lines"),
        ("read", "", True, "0 lines"),
        ("write", "whatever", True, "wrote file"),
        ("edit", "whatever", True, "edited"),
        ("bash", "", True, "done"),
        ("bash", "(no output)", True, "done"),
        ("terminal", "one line\n", True, "one line"),
        ("bash", "x" * 51, True, "x" * 47 + "..."),
        ("bash", "a\nb", True, "2 lines"),
        ("glob", "a.py\nb.py", True, "2 files"),
        ("grep", "a:1:x", True, "1 match"),
        ("other", " \n", True, "done"),
        ("other", "one", True, "1 line"),
    ],
)
def test_result_summary(name: str, content: str, ok: bool, summary: str) -> None:
    """The summary of a result is the first line of an error, a count, or "done"."""
    assert result_summary(name, content, ok) == summary


class Colour(enum.Enum):
    RED = "red"


class Mixed(str, enum.Enum):  # noqa: UP042 - the older form of a StrEnum, whose str() differs
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Model(pydantic.BaseModel):
    when: dt.date


class Record(msgspec.Struct):
    a: int


class Broken:
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("as \ud800 is", "as � is"),
        (None, "(no output)"),
        (b"\xffok", "�ok"),
        (True, "true"),
        (10**30, "1" + "0" * 30),
        (Colour.RED, "red"),
        (Mixed.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (Path("a/b"), "a/b"),
        (dt.date(2020, 1, 2), "2020-01-02"),
        ({"b", "a"}, '["a","b"]'),
        ({3, 20}, "[3,20]"),
        ([Point(1), Record(2), Path("p"), {"k": {1}}], '[{"x":1},{"a":2},"p",{"k":[1]}]'),
        (Model(when=dt.date(2020, 1, 2)), '{"when":"2020-01-02"}'),
        ([Model(when=dt.date(2020, 1, 2))], '[{"when":"2020-01-02"}]'),
        (["\ud800", Point(1)], '["�", {"x": 1}]'),
        (range(3), "[0,1,2]"),
        (Broken(), "Broken"),
        ([Broken()], '["Broken"]'),
        (1j, "1j"),
    ],
)
def test_text_of_any_value(value: object, expected: str) -> None:
    """Any value becomes text: strings unchanged, values as JSON, other objects by str()."""
    assert text_of(value) == expected


def test_a_circular_value_has_a_text() -> None:
    """A circular value does not break its rendering."""
    loop: list[object] = []
    loop.append(loop)
    assert text_of(loop) == "[[...]]"
