"""Pages are bytes: text that is not UTF-8 is refused before it is written, without affecting other trees."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from remit.errors import StoreError
from remit.history.redaction import HELD_CHARS, Redactor
from remit.stores.sqlite import SqliteStore
from remit.stores.writing.chunks import chunks
from remit.testing.samples import head
from remit.types.events import ReplyReceived
from remit.types.limits import Usage
from remit.types.messages import Call, Reply


def asked(root: str, args: dict[str, object]) -> ReplyReceived:
    reply = Reply("é", calls=(Call("c", "look", args),), stop="calls")
    return ReplyReceived(**head(root, 1), turn=1, reply=reply, usage=Usage(1))


@pytest.mark.parametrize("raw", [b'"\xff"', b'"a\0b"', b"{oops", b'"\\ud800"', b"", b"1 2"])
async def test_invalid_json_is_refused_at_once(tmp_path: Path, raw: bytes) -> None:
    """Postgres would reject it later, together with all events of the transaction, and stop other trees."""
    store = SqliteStore(tmp_path / "runs.db")
    await store.claim("r", new=True)
    with pytest.raises(StoreError, match="Event 1 of the run 'r' cannot be encoded as JSON"):
        store.append(asked("r", {"a": msgspec.Raw(raw)}))
    await store.close()


async def test_json_with_line_breaks_becomes_one_line(tmp_path: Path) -> None:
    """Otherwise the SQL view would show no event of its page."""
    store = SqliteStore(tmp_path / "runs.db")
    await store.claim("r", new=True)
    store.append(asked("r", {"a": msgspec.Raw(b'{\n  "b": 1,\n  "c": "\\n"\n}')}))
    await store.close()
    file = sqlite3.connect(tmp_path / "runs.db")
    assert file.execute("SELECT kind, seq FROM remit_events").fetchall() == [("reply_received", 1)]
    (data,) = file.execute(
        "SELECT json_extract(data, '$.reply.calls[0].args.a') FROM remit_events"
    ).fetchone()
    file.close()
    assert msgspec.json.decode(data) == {"b": 1, "c": "\n"}


async def test_a_file_in_utf_16_is_refused(tmp_path: Path) -> None:
    """Half of the pages would lose their last byte."""
    path = tmp_path / "runs.db"
    made = sqlite3.connect(path)
    made.executescript("PRAGMA encoding = 'UTF-16le'; CREATE TABLE x (a); DROP TABLE x;")
    made.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="UTF-16le"):
        await store.claim("r", new=True)
    await store.close()


@pytest.mark.parametrize("name", ["password: ", "Authorization: Bearer ", "--token ", "'secret' => "])
def test_no_cut_between_a_name_and_its_value(name: str) -> None:
    redactor = Redactor(environment={})
    secret = "q7Gd82hsKQ01mvPz55xW"
    for more in range(60):
        text = "a " * 20_000 + name + secret + " " + "b" * more
        text += " c" * ((HELD_CHARS - more) // 2)
        end = redactor.cut(text)
        assert secret not in redactor.redact_text(text[:end]) + redactor.redact_text(text[end:])


LINES = "\n".join(f"line {number}: {'q7Gd82hsKQ' * 3}" for number in range(60))
"""A long secret, such as the JSON of a service account: longer than `NEAR_CHARS`."""


@pytest.mark.parametrize("filler", ["a line of text\n", "and words ", '{"a":1,"b":[2,3]},'])
@pytest.mark.parametrize("secret", [LINES, "correct horse battery staple", "sk-q7Gd82hsKQ01mvPz55xW"])
def test_no_cut_inside_a_secret(filler: str, secret: str) -> None:
    """Even if the secret is long, and even in text without spaces, such as compact JSON."""
    redactor = Redactor([LINES, "correct horse battery staple"], environment={})
    for back in range(-40, len(secret) + 40, 1 + len(secret) // 20):
        text = (filler * 10_000)[: 40_000 - HELD_CHARS - back] + "=" + secret + ","
        text += (filler * 10_000)[: 40_000 - len(text)]
        end = redactor.cut(text)
        both = redactor.redact_text(text[:end]) + redactor.redact_text(text[end:])
        assert both.count("[redacted]") == 1
        assert secret[:12] not in both
        assert secret[-12:] not in both


@pytest.mark.parametrize("size", [9_000, 100_000, 300_000])
async def test_a_secret_longer_than_the_held_text_is_not_split(size: int) -> None:
    """Otherwise both halves would be stored."""
    secret = ("q7Gd82hsKQ01mv" * size)[:size]

    async def pieces() -> AsyncIterator[str]:
        text = "x" * 110_000 + "|" + secret + "|" + "x" * 300_000
        for start in range(0, len(text), 5_000):
            yield text[start : start + 5_000]

    kept = "".join([piece async for piece in chunks(pieces(), Redactor([secret], environment={}))])
    assert kept == "x" * 110_000 + "|[redacted]|" + "x" * 300_000


async def test_a_text_of_adjacent_secrets_is_still_cut() -> None:
    redactor = Redactor(["a1" * 50_000], environment={})
    assert 0 < redactor.cut("a1" * 500_000) < 1_000_000
