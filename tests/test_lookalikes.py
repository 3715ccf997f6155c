"""What looks like a secret is looked for where there are long runs of letters and digits: none is passed over for that."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit.lookalikes as lookalikes
from remit.lookalikes import (
    _AUTHORIZATION,
    _FAR,
    _LONG,
    _VALUED,
    _may_have_long,
    _names_of_values,
    _without_long,
)

ODD = re.compile(rb"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{15,}")
"""A long run, which is odd if there are others than small letters and hyphens behind its first character."""


def odd_runs(data: bytes) -> list[bytes]:
    return [run for run in ODD.findall(data) if not re.fullmatch(rb".[a-z_-]*", run)]


def shaped(pattern: re.Pattern[bytes]) -> st.SearchStrategy[bytes]:
    """What the pattern finds, as short as it may be or longer."""
    return st.from_regex(re.compile(pattern.pattern.replace(b",}", b",40}"), pattern.flags), fullmatch=True)


SECRETS = st.one_of([shaped(shape.pattern) for shape in _LONG if b"?<" not in shape.pattern.pattern])
AROUND = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [b"", b" ", b"\n", b'"', b"\\n", b"\\u001f", b"key-", b"/", b"+", b"x=", b"a" * 300, b"aB3/" * 80]
    ),
)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Where the runs began whose neighbours were looked at."""
    looked: list[int] = []
    look = lookalikes._with_neighbours

    def look_and_count(data: bytes, start: int, end: int) -> tuple[bytes, int]:
        looked.append(start)
        return look(data, start, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookalikes, "_with_neighbours", look_and_count)
        yield looked


@given(AROUND, SECRETS, AROUND)
def test_what_is_found_everywhere_is_found_at_long_runs(before: bytes, secret: bytes, after: bytes) -> None:
    """A secret that has a long run near its beginning is found, by how that begins or by what stands before it."""
    data = before + secret + after
    if odd_runs(secret[:_FAR]) and _without_long(data, data.lower()) is not data:
        assert _may_have_long(data)


def test_what_has_no_secret_is_not_searched_in_full() -> None:
    """Ids, hashes, addresses, long names and files in base64 are looked at one by one, and left."""
    for text in (
        "toolu_01A09q90qw90lq917835lq9 call_a1B2c3D4e5F6g7H8i9J0k1L2",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8, see https://example.com/Issues/A1b2C3d4E5f6G7h8",
        '{"id":"toolu_01A09q90qw90lq917835lq9","name":"task","args":{"prompt":"the token of the key"}}',
        "class ModelCallFailedForGood1: ... # 123e4567-e89b-12d3-a456-426614174000",
        base64.b64encode(random.Random(1).randbytes(30_000)).decode(),
    ):
        assert not _may_have_long(text.encode()), text


def test_more_runs_than_it_takes_to_search_in_full_are_not_all_looked_at() -> None:
    """Else a text made of names and ids would take many times as long as one that is searched at once."""
    with counted() as looked:
        assert _may_have_long(b"key/a1b2c3d4e5f6g7h8 " * 10_000)
    assert 100 < len(looked) < 5_000


ASSIGNED = [_AUTHORIZATION.pattern, *chain.from_iterable(_VALUED.values())]


@given(AROUND, st.one_of([shaped(pattern) for pattern in ASSIGNED]), AROUND, st.integers(0, 3))
def test_what_has_a_name_is_looked_for_wherever_a_value_is_given(
    before: bytes, given_value: bytes, after: bytes, times: int
) -> None:
    """Whether values are many or few: none is passed over because of how its name is looked for."""
    data = (before + given_value + after + b" and more words, without any" * 1_000 * times).lower()
    assert any(pattern.search(data) for pattern in ASSIGNED)
    assert _names_of_values(data)


def test_values_of_other_names_are_passed_over() -> None:
    """What a name only begins or contains is not what it ends with."""
    words = (
        b"said: the keys: 5, token count = 7, tokens=5, input_tokens: 8, keyboard: none, passed: 9. "
        + b"words " * 400
    )
    assert not _names_of_values(words)


def test_a_run_that_only_begins_like_a_file_in_base64_is_passed_over_once() -> None:
    """Else everything before it is looked at again and again, until the time for that is used up."""
    text = b"internationalization " * 2_000 + b"A1" * 130 + b"_x/ and on"
    with counted() as looked:
        assert not _may_have_long(text)
    assert len(looked) == 1


def test_a_token_behind_a_long_colour_is_found() -> None:
    token = b"7416825296:AABpG7H7jOcFv0ILsf8A0pVOuf-uT6xkKvk"
    for colour in (b"\\u001b[0;1;32m", b"\\u001b[38;5;208m", b"\\u001b[1;38;5;208m", b"\\\\u001b[38;5;208m"):
        assert token not in lookalikes.without_lookalikes(b'{"t":"bot ' + colour + token + b'"}'), colour
