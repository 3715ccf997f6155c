"""Pages are bytes: what is not UTF-8 is said before it is written, and hurts nobody else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from remit.errors import StoreError
from remit.events import ReplyReceived
from remit.limits import Usage
from remit.messages import Call, Reply
from remit.redaction import HELD_CHARS, Redactor
from remit.stores.sqlite import SqliteStore
from remit.testing.specimens import head


def asked(root: str, args: dict[str, object]) -> ReplyReceived:
    reply = Reply("é", calls=(Call("c", "look", args),), stop="calls")
    return ReplyReceived(**head(root, 1), turn=1, reply=reply, usage=Usage(1))


async def test_what_is_not_utf_8_is_refused_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    await store.claim("r", new=True)
    with pytest.raises(StoreError, match="Event 1 of the run 'r' has no JSON"):
        store.append(asked("r", {"a": msgspec.Raw(b'"\xff"')}))
    await store.close()


async def test_a_file_that_keeps_its_texts_otherwise_is_refused(tmp_path: Path) -> None:
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
