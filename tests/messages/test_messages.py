"""The messages that people and models read, compared with the files of this folder."""

from __future__ import annotations

import difflib

import pytest
from rewrite_messages import HERE, ROOMS, page


@pytest.mark.parametrize("room", ROOMS)
def test_the_messages_are_as_recorded(room: str) -> None:
    """Each message of a room is the one in its file. Rewrite the files only for a change of wording that you want."""
    recorded, now = (HERE / f"{room}.txt").read_text(encoding="utf-8"), page(room)
    changes = difflib.unified_diff(
        recorded.splitlines(), now.splitlines(), "recorded", "now", n=1, lineterm=""
    )
    if recorded != now:
        pytest.fail(
            "\n".join(
                [*changes, "", "If you want this: .venv/bin/python tests/messages/rewrite_messages.py"]
            ),
            pytrace=False,
        )


def test_every_file_belongs_to_a_room() -> None:
    """A file without a room would never be compared."""
    assert {file.stem for file in HERE.glob("*.txt")} == set(ROOMS)
