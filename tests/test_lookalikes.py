"""What looks like a secret is looked for where there are long runs of letters and digits: none is passed over for that."""

from __future__ import annotations

import base64
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit.lookalikes as lookalikes
from remit.lookalikes import _LONG, _NEAR, _may_have_long, _without_long

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


@given(AROUND, SECRETS, AROUND)
def test_what_is_found_everywhere_is_found_at_long_runs(before: bytes, secret: bytes, after: bytes) -> None:
    """A secret that has a long run near its beginning is found, by how that begins or by what stands before it."""
    data = before + secret + after
    if odd_runs(secret[:_NEAR]) and _without_long(data, data.lower()) is not data:
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
    looked: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookalikes, "_is_suspect", lambda *_: bool(looked.append(1)) or True)
        assert _may_have_long(b"key a1b2c3d4e5f6g7h8 " * 10_000)
    assert len(looked) < 1_000
