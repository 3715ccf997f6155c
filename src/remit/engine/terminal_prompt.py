"""Approval in a terminal: a request as text, and an approver that reads the answer.

Text from a model is escaped: it cannot control the terminal or hide characters.
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
"""The lines of a long preview that are shown before the user asks for all of them."""

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
_ALL = frozenset({"v", "view", "view all"})
_UNCLEAR = frozenset({"sure", "always", "a", "deny", "nope"})
_LIKE_YES = ("y", "ok", "allow", "approve")
"""Neither an offered answer nor clearly a reason for no: the question is repeated. See `read_answer`."""

UNCLEAR = "Type y, r, t, v or n, or a reason for no."


def spent(usage: Usage) -> str:
    """Usage so far, on one line."""
    calls = f"{usage.requests:,} model call{'' if usage.requests == 1 else 's'}"
    money = "" if usage.usd is None else f", ${usage.usd:.4f}"
    return f"{calls}, {usage.input_tokens + usage.output_tokens:,} tokens{money}"


def in_words(request: ApprovalRequest, *, whole: bool = False) -> str:
    """A request as text: the agent, the call, the task, and the usage so far."""
    lines = [" › ".join(visible(name) for name in (*request.path, request.tool)) + " asks:"]
    shown = request.preview.split("\n") if request.preview else list(_arguments(request))
    lines += (f"  {line}" for line in _cut([visible(line) for line in shown], whole=whole))
    if whole and request.preview:
        # A preview may leave things out; the arguments are exactly what will run.
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
    middle = f"... {left_out} lines hidden: [v] shows all ..."
    return [*lines[:HEAD_LINES], middle, *lines[-TAIL_LINES:]]


def read_answer(line: str) -> Decision | None:
    """The decision that a typed line means; None if it is unclear: ask again.

    A text that begins like a yes is unclear: as a reason for no, it would deny a call that the person approves.
    """
    said = line.strip()
    lower = said.lower()
    if lower in _ANSWERS:
        return _ANSWERS[lower]
    if not said or lower in _UNCLEAR or lower.startswith(_LIKE_YES):
        return None
    return deny(said)


async def ask_in_terminal(request: ApprovalRequest) -> Decision:
    """An approver for programs with a terminal: `run(..., approver=ask_in_terminal)`.

    Writes to standard error and reads a line from standard input. Without a terminal, the call is denied.
    """
    source, target = sys.stdin, sys.stderr
    if source is None or source.closed or not source.isatty():
        return deny("no terminal to ask for approval")

    def write(text: str) -> None:
        target.write(text)
        target.flush()

    return await ask_at(request, source.fileno(), write)


async def ask_at(request: ApprovalRequest, source: int, write: Callable[[str], None]) -> Decision:
    """Ask until there is an answer: `write` shows text, and lines are read from the terminal's descriptor `source`."""
    forget_typed(source)
    write(f"\n{in_words(request)}\n{QUESTION}: ")
    lines = _Lines(source)
    while True:
        line = await lines.next()
        if line is None:
            write("\n")
            return deny("the input ended without an answer")
        if line.strip().lower() in _ALL:
            write(f"\n{in_words(request, whole=True)}\n{QUESTION}: ")
        elif (decision := read_answer(line)) is not None:
            return decision
        else:
            write(f"{UNCLEAR}\n{QUESTION}: " if line.strip() else f"{QUESTION}: ")


def forget_typed(source: int) -> None:
    """Discard input typed before the question was shown: it cannot be an answer."""
    try:
        import termios  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    with suppress(OSError, termios.error):
        termios.tcflush(source, termios.TCIFLUSH)


class _Lines:
    """Reads lines from a terminal without a thread: a thread blocked on a key press cannot be cancelled."""

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
