"""Exit codes, and the one place that turns an error into a sentence on standard error."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

import remit.cli.standard_streams as standard_streams
from remit.cli.install_command import with_local_installer
from remit.errors import RemitError, UsageError
from remit.types.outcome import Status
from remit.types.text import clean, describe_error, visible

COMPLETED = 0
FAILED = 1
WRONG_USE = 2
REFUSED = 3
INCOMPLETE = 4
OVER_BUDGET = 5
OUT_OF_TIME = 6
INTERRUPTED = 7
CANCELLED = 130
OUTPUT_CLOSED = 141
"""The reader of the output is gone. Shells report this code for a program that SIGPIPE ended: 128 + 13."""

BY_STATUS = {
    Status.COMPLETED: COMPLETED,
    Status.FAILED: FAILED,
    Status.REFUSED: REFUSED,
    Status.INCOMPLETE: INCOMPLETE,
    Status.OVER_BUDGET: OVER_BUDGET,
    Status.TIMED_OUT: OUT_OF_TIME,
    Status.STALLED: OUT_OF_TIME,
    Status.INTERRUPTED: INTERRUPTED,
    Status.CANCELLED: CANCELLED,
}

IN_WORDS = (
    "Exit codes: 0 completed, 1 failed, 2 usage error, 3 refused, 4 incomplete, 5 over budget, 6 timed out or stalled,"
    " 7 interrupted, 130 cancelled, 141 the reader of the output closed it."
)


class Stop(Exception):
    """Ends a command with a sentence for standard error and an exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.words = words
        self.code = code


def fail(words: str, code: int = FAILED) -> NoReturn:
    """End the command with a sentence on standard error."""
    raise Stop(words, code)


def wrong_use(words: str) -> NoReturn:
    """End the command with a usage error: `words` say what is wrong and what to write instead."""
    raise Stop(words, WRONG_USE)


def tell(words: str) -> None:
    """Print a message to standard error, with control characters made visible. Never raises."""
    lines = [visible(line) for line in with_local_installer(clean(words)).split("\n")]
    try:
        if sys.stderr.isatty():
            from remit.observe.words import window_of, wrap  # noqa: PLC0415 - only for a terminal

            width = window_of(sys.stderr) - 1
            lines = [part for line in lines for part in wrap(line, width)]
        click.echo("\n".join(lines), err=True)
    except (OSError, ValueError):
        # The reader of standard error is gone.
        return


def guard(work: Callable[[], object]) -> int:
    """Run a command and return its exit code; an error becomes one sentence on standard error.

    With REMIT_DEBUG=1 the traceback comes first. A closed output pipe prints nothing.
    """
    try:
        return _guarded(work)
    finally:
        standard_streams.discard_unwritten()


def _guarded(work: Callable[[], object]) -> int:
    try:
        result = work()
    except (KeyboardInterrupt, click.Abort):
        return CANCELLED
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except Exception as error:  # noqa: BLE001 - users see a traceback only with REMIT_DEBUG
        if os.environ.get("REMIT_DEBUG", "") not in ("", "0") and not isinstance(error, Stop):
            traceback.print_exc()
        words, code = _explain(error)
        tell(words)
        return code
    return result if isinstance(result, int) else COMPLETED


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, Stop):
        return error.words, error.code
    if isinstance(error, click.UsageError):
        return _usage(error), WRONG_USE
    if isinstance(error, click.ClickException):
        return error.format_message(), FAILED
    if isinstance(error, UsageError):
        return str(error), WRONG_USE
    if isinstance(error, (RemitError, OSError)):
        return str(error), FAILED
    return (
        f"Internal error: {describe_error(error)}. This is a bug in remit; REMIT_DEBUG=1 shows the traceback.",
        FAILED,
    )


def _near(written: str, possible: Sequence[str]) -> list[str]:
    """The options near the written one. Click also compares the dashes, which makes short names look alike."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only for a wrong name

    names = {option.lstrip("-"): option for option in possible}
    return [names[name] for name in get_close_matches(written.lstrip("-"), names)]


def _usage(error: click.UsageError) -> str:
    """The error in one sentence, then the usage line."""
    ctx = error.ctx
    if isinstance(error, click.NoSuchOption):
        near = _near(error.option_name, error.possibilities or ())
        error = click.NoSuchOption(error.option_name, error.message, near, ctx)
    words = error.format_message()
    if ctx is None:
        return words
    usage = " ".join(ctx.get_usage().split()).replace("Usage: ", "", 1)
    return f"{words}\nUsage: {usage}\nHelp: {ctx.command_path} --help"
