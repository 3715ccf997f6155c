"""Who is asked when a call needs a yes: the person at the terminal, another process, nobody, or no one has to be."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

import remit.cli.words as words
from remit.approval import Approver
from remit.asking import QUESTION, forget_typed, in_words, read_answer
from remit.cli.display import Display
from remit.cli.keys import in_foreground
from remit.policy import ApprovalRequest, Decision, allow, deny
from remit.remote import ask_elsewhere

_WHOLE = ("v", "view")

NOBODY = "nobody can be asked, since remit has no terminal here; --allow RULE or --yes allow it beforehand"


def choose_approver(display: Display, *, yes: bool, elsewhere: bool) -> Approver:
    """`--yes` answers everything; `--ask-elsewhere` waits for `remit approve`; a terminal is asked at."""
    if yes:
        return _yes
    if elsewhere:
        return ask_elsewhere
    if not _can_ask():
        return _nobody

    async def ask(request: ApprovalRequest) -> Decision:
        with display.paused(), _keyboard() as source:
            return await _ask(request, source)

    return ask


async def _yes(request: ApprovalRequest) -> Decision:
    del request
    return allow()


async def _nobody(request: ApprovalRequest) -> Decision:
    del request
    return deny(NOBODY)


def _can_ask() -> bool:
    if not words.is_terminal(sys.stderr):
        return False
    return in_foreground() if words.is_terminal(sys.stdin) else hasattr(os, "ttyname")


@contextmanager
def _keyboard() -> Generator[int]:
    """Where answers are typed: standard input, or the terminal itself when that has brought the prompt."""
    if words.is_terminal(sys.stdin):
        yield sys.stdin.fileno()
        return
    source = os.open(os.ttyname(sys.stderr.fileno()), os.O_RDONLY | os.O_NOCTTY)
    try:
        yield source
    finally:
        os.close(source)


async def _ask(request: ApprovalRequest, source: int) -> Decision:
    forget_typed(source)
    _write(f"\n{in_words(request)}\n{QUESTION}: ")
    typed = _Typed(source)
    try:
        while True:
            line = await typed.line()
            if line is None:
                _write("\n")
                return deny("nobody answered: the input ended")
            if line.strip().lower() in _WHOLE:
                _write(f"\n{in_words(request, whole=True)}\n{QUESTION}: ")
            elif (decision := read_answer(line)) is not None:
                return decision
            else:
                _write(f"{QUESTION}: ")
    except asyncio.CancelledError:
        _write("\n(Answered elsewhere, or stopped: no answer is needed any more.)\n")
        raise


def _write(text: str) -> None:
    try:
        sys.stderr.write(text if words.has_unicode(sys.stderr) else words.ascii_only(text))
        sys.stderr.flush()
    except (OSError, ValueError):
        # The terminal is gone; reading from it ends too, and that is an answer.
        return


class _Typed:
    """Lines as they are typed, read without a thread: one that waits for a key cannot be taken back."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._rest = b""

    async def line(self) -> str | None:
        """The next one; None at the end of the input."""
        while b"\n" not in self._rest:
            await self._ready()
            piece = os.read(self._source, 4096)
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._source, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._source)
