"""Recorded histories: journals that every later version has to read, and read the same.

`histories/NAME.jsonl` is a journal as it was written; `NAME.tree.json` is what `fold` makes of it. A change that
makes one of these tests fail breaks trees that people have stored: change the reading, not the recording. How to add
one is in `record.py`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from history_trees import RECORDERS
from parts import fold
from pictures import picture

from remit.events import Event, decode, decode_lines, encode, encode_flat

FOLDER = Path(__file__).parent / "histories"
NAMES = sorted(path.name.removesuffix(".jsonl") for path in FOLDER.glob("*.jsonl"))


def read(name: str) -> list[Event]:
    return list(decode_lines((FOLDER / f"{name}.jsonl").read_bytes()))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_history_folds_as_it_did(name: str) -> None:
    """What was stored stays readable, and means the same in every later version."""
    expected = (FOLDER / f"{name}.tree.json").read_text(encoding="utf-8")
    assert picture(fold(read(name))) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_beginning_of_a_recorded_history_folds(name: str) -> None:
    """A journal that was cut off anywhere is read as far as it goes."""
    events = read(name)
    for cut in range(1, len(events)):
        tree = fold(events[:cut])
        assert tree.seq == events[cut - 1].seq
        assert picture(tree)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_history_can_be_stored_again(name: str) -> None:
    """What was read and is written again, as when a journal moves to another store, is read as the same."""
    events = read(name)
    assert [decode(encode(event)) for event in events] == events


def test_every_recorder_has_its_history() -> None:
    """No history is without a way to make one like it, and the other way round."""
    assert sorted(RECORDERS) == NAMES


def test_a_field_that_is_not_known_is_passed_over() -> None:
    """A later version may say more of an event; what is known of it is read."""
    line = encode(read("plain")[0])
    assert decode(line[:-1] + b',"mood":"fine","nested":{"a":[1]}}') == decode(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"kind":"dreamt","seq":1}',
        b'{"seq":1}',
        b"[" * 5000,
    ],
)
def test_what_is_no_event_is_a_decode_error(line: bytes) -> None:
    """An unknown kind, a cut line or garbage raises one kind of error, whatever is wrong with it."""
    with pytest.raises(msgspec.DecodeError):
        decode(line)


@pytest.mark.parametrize("broken", ["run", "root", "path", "depth", "agent"])
def test_a_header_that_lacks_something_is_a_decode_error(broken: str) -> None:
    """Every field of the header has to be there, in the header or, as in version 1, beside the other fields."""
    event = read("plain")[0]
    whole = msgspec.json.decode(encode(event))
    del whole["where"][broken]
    flat = msgspec.json.decode(encode_flat(event))
    assert decode(encode_flat(event)) == event
    del flat[broken]
    for wrong in (whole, flat):
        with pytest.raises(msgspec.DecodeError):
            decode(msgspec.json.encode(wrong))


@pytest.mark.parametrize("broken", ["kind", "seq", "at", "where", "v", "task"])
def test_an_event_that_lacks_something_is_a_decode_error(broken: str) -> None:
    """Every field without a default has to be there, and to be of its type."""
    whole = msgspec.json.decode(encode(read("plain")[0]))
    for wrong in ({k: v for k, v in whole.items() if k != broken}, {**whole, broken: {"x": [None]}}):
        with pytest.raises(msgspec.DecodeError):
            decode(msgspec.json.encode(wrong))
