"""Write the files of this folder again: `.venv/bin/python tests/messages/rewrite_messages.py`. Then read the diff.

Each file has the messages of one room side by side, so that a change of wording is seen in review.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "src")]

import message_mistakes  # noqa: E402 - found by the line above
import message_trees  # noqa: E402

ROOMS: dict[str, Callable[[], dict[str, str]]] = {
    "command_errors": message_mistakes.command_errors,
    "denials": message_trees.denials,
    "errors": message_mistakes.errors,
    "help": message_mistakes.help_texts,
    "notes": message_trees.notes,
    "outcomes": message_trees.outcomes,
    "rejections": message_trees.rejections,
    "tool_results": message_trees.tool_results,
}


def page(room: str) -> str:
    """The messages of a room as the text of its file."""
    return "\n".join(f"# {title}\n{text}\n" for title, text in ROOMS[room]().items())


def main() -> None:
    logging.disable()
    for room in ROOMS:
        (HERE / f"{room}.txt").write_text(page(room), encoding="utf-8")


if __name__ == "__main__":
    main()
