"""What looks like a secret is looked for where there are long runs of letters and digits: none is passed over for that."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from remit.lookalikes import _ASSIGNMENTS, _LONG, _NEAR, _has_long, _without_long

ODD = re.compile(rb"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{15,}")
"""A long run, which is odd if there are others than small letters and hyphens behind its first character."""


def odd_runs(data: bytes) -> list[bytes]:
    return [run for run in ODD.findall(data) if not re.fullmatch(rb".[a-z_-]*", run)]


def shaped(pattern: re.Pattern[bytes]) -> st.SearchStrategy[bytes]:
    """What the pattern finds, as short as it may be or longer."""
    return st.from_regex(re.compile(pattern.pattern.replace(b",}", b",40}"), pattern.flags), fullmatch=True)


SECRETS = st.one_of(
    [shaped(shape.pattern) for shape in _LONG if b"?<" not in shape.pattern.pattern]
    + [
        st.builds(bytes.__add__, st.sampled_from([b"api_", b"auth-", b""]), shaped(p))
        for _, p in _ASSIGNMENTS
    ]
)
AROUND = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"", b" ", b"\n", b'"', b"\\n", b"\\u001f", b"key-", b"/", b"+", b"x=", b"a" * 300]),
)


@given(AROUND, SECRETS, AROUND)
def test_what_is_found_everywhere_is_found_at_long_runs(before: bytes, secret: bytes, after: bytes) -> None:
    """A secret that has a long run near its beginning is found, by how that begins or by what stands before it."""
    data = before + secret + after
    if odd_runs(secret[:_NEAR]) and _without_long(data, data.lower()) is not data:
        assert _has_long(data)
