"""Asking a person at a terminal: what a request looks like in words, and an approver that reads the answer.

Whatever a model wrote is shown so that it cannot drive the terminal or hide behind what cannot be seen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from remit.tools.policy import ApprovalRequest, Decision, allow, deny
from remit.types.limits import Usage
from remit.types.text import text_of, visible

HEAD_LINES = 40
TAIL_LINES = 20
"""What is shown of something long before somebody asks for all of it."""

QUESTION = "Allow? [y]es, for this [r]un, for the [t]ree, [v]iew all, [n]o, or say why not"

_ANSWERS = {
    "y": allow(),
    "yes": allow(),
    "r": allow("run"),
    "run": allow("run"),
    "t": allow("tree"),
    "tree": allow("tree"),
    "n": deny(),
    "no": deny(),
}
_ALL = frozenset({"v", "view"})
_UNCLEAR = frozenset({"ok", "okay", "sure", "yep", "yeah", "always", "a", "allow", "deny", "nope"})
"""Neither an answer that is offered nor a reason."""


def spent(usage: Usage) -> str:
    """What was used so far, on one line."""
    calls = f"{usage.requests:,} model call{'' if usage.requests == 1 else 's'}"
    money = "" if usage.usd is None else f", ${usage.usd:.4f}"
    return f"{calls}, {usage.input_tokens + usage.output_tokens:,} tokens{money}"


def in_words(request: ApprovalRequest, *, whole: bool = False) -> str:
    """A request for a person: who asks, for what exactly, for which task, and what was spent so far."""
    lines = [" › ".join(visible(name) for name in (*request.path, request.tool)) + " asks:"]
    shown = request.preview.split("\n") if request.preview else list(_arguments(request))
    lines += (f"  {line}" for line in _cut([visible(line) for line in shown], whole=whole))
    if whole and request.preview:
        # A preview may leave things out; the arguments are what will be done.
        lines += ["Arguments, in full:", *(f"  {visible(line)}" for line in _arguments(request))]
    task = visible(" ".join(request.task.split()))
    lines.append(f"Task: {task if len(task) <= 300 else task[:297] + '...'}")
    lines += (f"Asked because of: {visible(reason)}" for reason in request.rules)
    lines.append(f"Spent so far: {spent(request.total_usage)}")
    return "\n".join(lines)


def _arguments(request: ApprovalRequest) -> Iterator[str]:
    for name, value in request.args.items():
        first, *more = text_of(value).split("\n")
        yield f"{name}: {first}"
        yield from (f"  {line}" for line in more)
    if not request.args:
        yield "(no arguments)"


def _cut(lines: list[str], *, whole: bool) -> list[str]:
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if whole or left_out <= 0:
        return lines
    middle = f"... {left_out} lines are not shown: [v] shows all ..."
    return [*lines[:HEAD_LINES], middle, *lines[-TAIL_LINES:]]


def read_answer(line: str) -> Decision | None:
    """What somebody typed as a decision; None when it is none: ask again."""
    said = line.strip()
    if not said or said.lower() in _UNCLEAR:
        return None
    return _ANSWERS.get(said.lower(), deny(said))


async def ask_in_terminal(request: ApprovalRequest) -> Decision:
    """An approver for programs with a terminal: `run(..., approver=ask_in_terminal)`.

    It writes to standard error and reads a line. Without a terminal the answer is no.
    """
    source, target = sys.stdin, sys.stderr
    if source is None or source.closed or not source.isatty():
        return deny("there is no terminal to ask at")

    def write(text: str) -> None:
        target.write(text)
        target.flush()

    return await ask_at(request, source.fileno(), write)


async def ask_at(request: ApprovalRequest, source: int, write: Callable[[str], None]) -> Decision:
    """Ask until there is an answer: `write` shows what there is to say, lines are read from the terminal `source`."""
    forget_typed(source)
    write(f"\n{in_words(request)}\n{QUESTION}: ")
    lines = _Lines(source)
    while True:
        line = await lines.next()
        if line is None:
            write("\n")
            return deny("nobody answered: the input ended")
        if line.strip().lower() in _ALL:
            write(f"\n{in_words(request, whole=True)}\n{QUESTION}: ")
        elif (decision := read_answer(line)) is not None:
            return decision
        else:
            write(f"{QUESTION}: ")


def forget_typed(source: int) -> None:
    """Drop what was typed before the question was there: it cannot be an answer to it."""
    try:
        import termios  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    with suppress(OSError, termios.error):
        termios.tcflush(source, termios.TCIFLUSH)


class _Lines:
    """Lines of a terminal, read without a thread: one that waits for a key cannot be taken back."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._rest = b""

    async def next(self) -> str | None:
        while b"\n" not in self._rest:
            piece = await self._read()
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._source, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._source)
        return os.read(self._source, 4096)
