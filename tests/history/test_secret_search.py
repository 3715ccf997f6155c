"""The search by names and long runs misses no secret and tries few patterns."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit.history.secret_tokens as secret_tokens
from remit.history.secret_patterns import CLASSES, PATTERNS, SecretPattern
from remit.history.secret_search import _SHAPES, MARK, _Shape, without_lookalikes
from remit.history.secret_tokens import Finder, Shape, Span, finder


def shaped(pattern: re.Pattern[bytes]) -> st.SearchStrategy[bytes]:
    """Texts that match the pattern, of minimal or greater length."""
    return st.from_regex(re.compile(pattern.pattern.replace(b",}", b",40}"), pattern.flags), fullmatch=True)


BEFORE = st.one_of(
    st.binary(max_size=12).map(lambda data: data + b" "),
    st.sampled_from(
        [
            b"",
            b" ",
            b"\n",
            b'"',
            b"\\n",
            b"\\u001f",
            b"%3D",
            b"/",
            b"x=",
            b"- ",
            b"\\n-",
            b"a" * 300 + b" ",
            b"aB3/" * 80,
        ]
    ),
)
AFTER = st.one_of(
    st.binary(max_size=12).map(lambda data: b" " + data),
    st.sampled_from([b"", b"\n", b'"', b"\\n", b"'", b",", b" " + b"a" * 300, b"\n" + b"aB3/" * 80]),
)


@st.composite
def secrets(draw: st.DrawFn) -> tuple[SecretPattern, bytes]:
    """A secret that matches an entry of the table."""
    pattern = draw(st.sampled_from(PATTERNS))
    chance = draw(st.randoms(use_true_random=False))
    alphabet = [
        char for char in map(chr, range(128)) if re.match(b"[%s]" % CLASSES[pattern.chars], char.encode())
    ]
    size = pattern.least if pattern.exact else pattern.least + draw(st.integers(0, 30))
    # Random letters and digits without gaps, as in real keys.
    solid = [char for char in alphabet if char.isalnum()]
    body = _uuid(chance) if pattern.chars == "uuid" else "7AB" + "".join(chance.choices(solid, k=size - 3))
    return pattern, f"{pattern.prefix}{body}".encode()


def _uuid(chance: random.Random) -> str:
    digits = "7ab" + "".join(chance.choices("0123456789abcdef", k=29))
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@given(BEFORE, secrets(), AFTER)
def test_every_pattern_of_the_table_finds_its_secrets(
    before: bytes, known: tuple[SecretPattern, bytes], after: bytes
) -> None:
    """A secret of the table is replaced, whatever text surrounds it; a name before it stays."""
    pattern, secret = known
    kept = pattern.prefix.encode() if pattern.prefix.endswith("=") else b""
    spans = finder().find(before + secret + after)
    at = len(before)
    assert (at + len(kept), at + len(secret)) in spans


@contextmanager
def counted() -> Iterator[list[int]]:
    """The places where a pattern was tried."""
    tried: list[int] = []
    match = Shape.match

    def match_and_count(self: Shape, data: bytes, start: int, done: int) -> Span | None:
        tried.append(start)
        return match(self, data, start, done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shape, "match", match_and_count)
        yield tried


def test_no_pattern_is_tried_on_ordinary_runs() -> None:
    """Ids, hashes, URLs, long names and base64 files are skipped."""
    for text in (
        "toolu_01A09q90qw90lq917835lq9 call_a1B2c3D4e5F6g7H8i9J0k1L2",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8, see https://example.com/Issues/A1b2C3d4E5f6G7h8",
        '{"id":"toolu_01A09q90qw90lq917835lq9","name":"task","args":{"prompt":"the token of the key"}}',
        "class ModelCallFailedForGood1: ... # 123e4567-e89b-12d3-a456-426614174000",
        base64.b64encode(random.Random(1).randbytes(30_000)).decode(),
    ):
        with counted() as tried:
            assert finder().find(text.encode()) == []
        assert tried == [], text


def test_a_base64_file_is_skipped_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is searched once, even if a part of it begins like a key; a key in it is found."""
    ends: list[int] = []
    end_of_blob = secret_tokens._end_of_blob
    monkeypatch.setattr(
        secret_tokens, "_end_of_blob", lambda data, start: ends.append(start) or end_of_blob(data, start)
    )
    key = b"AKIA" + b"QRSTUVWX12345678"
    data = b"aB3cD4eF5gH6iJ7kL8/" * 500 + b"AIzaAIzaAIzaAIza/" * 500 + key + b"/aB3cD4eF5gH6iJ7kL8" * 500
    at = data.index(key)
    assert finder().find(data) == [(at, at + len(key))]
    assert len(ends) <= 2


@pytest.mark.parametrize("shape", _SHAPES, ids=lambda shape: shape.pattern.pattern[:20])
@given(data=st.data())
def test_no_pattern_that_matches_is_skipped(shape: _Shape, data: st.DataObject) -> None:
    """A pattern is skipped only for texts without the part that each of its matches contains."""
    assert shape.has in data.draw(shaped(shape.pattern)).lower()


def test_a_token_after_a_colour_code_is_found() -> None:
    """The end of an escape sequence is not part of the token after it."""
    token = b"7416825296:AABpG7H7jOcFv0ILsf8A0pVOuf-uT6xkKvk"
    for colour in (b"\\u001b[0;1;32m", b"\\u001b[38;5;208m", b"\\u001b[1;38;5;208m", b"\\\\u001b[38;5;208m"):
        assert token not in without_lookalikes(b'{"t":"bot ' + colour + token + b'"}', finder()), colour


def test_two_adjacent_secrets_are_found_at_once() -> None:
    """Redacting a second time changes nothing."""
    one, two = b"AKIA" + b"QRSTUVWX12345678", b"sk-" + b"a1B2c3D4e5F6g7H8i9J0"
    for between in (b"", b"-", b"_", b"/", b"."):
        data = one + between + two
        redacted = without_lookalikes(data, finder())
        assert redacted == MARK + between + MARK
        assert without_lookalikes(redacted, finder()) is redacted


def test_user_patterns_extend_the_table() -> None:
    """A user's pattern has the same rules for its start, characters and length; other patterns do not change."""
    own = Finder((SecretPattern("acme_", 20, "hex"), SecretPattern("acme.v2:", 16)))
    one, two = b"acme_" + b"0a1b2c3d4e" * 2, b"acme.v2:" + b"Zz9_-Yy8Xx7Ww6Vv5"
    for frame in (b"%s", b"the %s, here", b"x=%s\\n", b'"%s"', b"https://host/%s"):
        for secret in (one, two):
            data = frame % secret
            (span,) = own.find(data)
            assert data[slice(*span)] == secret
            assert without_lookalikes(data, own) == frame % MARK
            assert finder().find(data) == []
    for other in (one[:-1], b"x" + one, b"acme_quite_an_ordinary_name_of_something", b"acme_" + b"xyz1" * 8):
        assert own.find(other) == [], other
