"""Who answers approval requests: the terminal, `remit approve`, `--yes`, or nobody, which denies them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

import remit.observe.words as words
from remit.engine.terminal_prompt import ask_at
from remit.engine.tree.approvals import Approver
from remit.observe.display.keyboard import in_foreground
from remit.observe.display.open_display import Display
from remit.remote import ask_elsewhere
from remit.tools.policy import ApprovalRequest, Decision, allow, deny
from remit.tools.policy_rules import SETTINGS

NOBODY = "approval needed, but remit has no terminal here; allow it in advance with --allow RULE or --yes"

NOT_BY_YES = "--yes does not cover files that remit reads as settings: a person must approve each change"


def choose_approver(display: Display, *, yes: bool, elsewhere: bool) -> Approver:
    """The approver for `--yes`, for `--ask-elsewhere`, for a terminal, or without any of them."""
    if yes:
        return _yes
    if elsewhere:
        return ask_elsewhere
    if not can_ask():
        return _nobody

    async def ask(request: ApprovalRequest) -> Decision:
        with display.paused(), keyboard() as source:
            return await _ask(request, source)

    return ask


async def _yes(request: ApprovalRequest) -> Decision:
    return deny(NOT_BY_YES) if SETTINGS in request.rules else allow()


async def _nobody(request: ApprovalRequest) -> Decision:
    del request
    return deny(NOBODY)


def can_ask() -> bool:
    """Whether a person can answer at the terminal."""
    if not words.is_terminal(sys.stderr):
        return False
    return in_foreground() if words.is_terminal(sys.stdin) else hasattr(os, "ttyname")


@contextmanager
def keyboard() -> Generator[int]:
    """The descriptor to read answers from: standard input, or the terminal if standard input is the prompt."""
    if words.is_terminal(sys.stdin):
        yield sys.stdin.fileno()
        return
    source = os.open(os.ttyname(sys.stderr.fileno()), os.O_RDONLY | os.O_NOCTTY)
    try:
        yield source
    finally:
        os.close(source)


async def _ask(request: ApprovalRequest, source: int) -> Decision:
    try:
        return await ask_at(request, source, _write)
    except asyncio.CancelledError:
        _write("\n(No answer needed any more: answered elsewhere, or the run was stopped.)\n")
        raise


def _write(text: str) -> None:
    # Indented lines show what a call would do, so they are not wrapped.
    room, end = words.window_of(sys.stderr) - 1, text[len(text.rstrip(" ")) :]
    rows = ([row] if row[:2] == "  " else words.wrap(row, room) for row in text.rstrip(" ").split("\n"))
    text = "\n".join(part for parts in rows for part in parts) + end
    try:
        sys.stderr.write(text if words.has_unicode(sys.stderr) else words.ascii_only(text))
        sys.stderr.flush()
    except (OSError, ValueError):
        # The terminal is gone; the read that follows ends too, which counts as an answer.
        return
