"""Starts or resumes a tree, shows it, prints its answer and status; handles Ctrl-C, once and twice."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress

import anyio

import remit.cli.exits as exits
import remit.cli.options as options_
import remit.cli.run_lookup as run_lookup
import remit.cli.standard_streams as standard_streams
import remit.cli.views.columns as columns
import remit.cli.views.json_output as json_output
import remit.observe.words as words
from remit.cli.jobs.approver import choose_approver
from remit.cli.jobs.priced_models import PricedModels
from remit.cli.jobs.setup import RunSetup
from remit.cli.options import Options, Showing
from remit.cli.resume_hints import continue_hint
from remit.engine.handle import Running
from remit.engine.resume import reopen
from remit.engine.start import Task, start
from remit.engine.tree.approvals import Approver
from remit.errors import StoreError
from remit.history.records import REOPENED, Tree
from remit.observe.display.open_display import Display, open_display
from remit.observe.display.tree_view import TreeView
from remit.observe.otel.environment import exporting
from remit.observe.run_words import how_it_ended
from remit.stores import open_store
from remit.types.events import Event
from remit.types.limits import Limits
from remit.types.messages import AssistantMessage, Message, ToolMessage
from remit.types.outcome import Outcome, Status
from remit.types.ports import Store

log = logging.getLogger("remit")

FRAME_S = 0.1
"""Seconds between two frames of the display."""

NO_READER = "the reader of its output is gone"

_STOPS = ("SIGINT", "SIGTERM", "SIGHUP")
_NAMES = {"SIGINT": "Ctrl-C"}


async def launch(job: RunSetup, task: Task, showing: Showing, *, history: Sequence[Message] = ()) -> int:
    """Start a new tree and show it until it ends. Returns the exit code."""

    def make(store: Store | None, approver: Approver) -> Running:
        return start(
            job.agent,
            task,
            model=job.model,
            models=job.models,
            limits=job.limits,
            store=store,
            approver=approver,
            policy=job.policy,
            sandbox=job.sandbox,
            history=history,
            workspace=job.workspace,
        )

    async with exporting(_teller(showing), secrets=job.secrets):
        return await _follow(job, make, showing, None)


async def relaunch(job: RunSetup, past: Tree, showing: Showing, *, limits: Limits | None = None) -> int:
    """Resume a tree of the journal and show it until it ends. `limits` replace its own, field by field. Returns the exit code."""

    def make(store: Store | None, approver: Approver) -> Running:
        assert store is not None
        return reopen(
            store,
            past.root,
            agent=job.agent,
            model=job.model,
            models=job.models,
            limits=limits,
            approver=approver,
            policy=job.policy,
            sandbox=job.sandbox,
            workspace=job.workspace,
        )

    async with exporting(_teller(showing), secrets=job.secrets):
        return await _follow(job, make, showing, past)


def _teller(showing: Showing) -> Callable[[str], None]:
    return (lambda _: None) if showing.quiet else exits.tell


def tell_ended(outcome: Outcome, showing: Showing, called: Options | None) -> int:
    """Print the answer of a tree that has already ended; `called` has its options. Returns the exit code."""
    writer = json_output.Writer() if showing.form == "stream-json" else None
    is_read = _print(outcome, showing, writer)
    if not showing.quiet:
        how, again = words.status_words(outcome.status), continue_hint(called, outcome.run_id)
        exits.tell(f"{outcome.run_id} has already ended ({how}). Continue its conversation: {again}")
    return exits.BY_STATUS[outcome.status] if is_read else exits.OUTPUT_CLOSED


async def _follow(
    job: RunSetup,
    make: Callable[[Store | None, Approver], Running],
    showing: Showing,
    past: Tree | None,
) -> int:
    streams = showing.form == "stream-json"
    quiet = showing.quiet or (streams and words.is_terminal(sys.stdout))
    display = open_display(TreeView(past), quiet=quiet)
    if not showing.quiet:
        for note in job.notes:
            exits.tell(note)
    async with AsyncExitStack() as stack:
        store = open_store(job.journal, secrets=job.secrets) if job.journal is not None else None
        if store is not None:
            stack.push_async_callback(_close, store)
        if isinstance(job.models, PricedModels):
            stack.push_async_callback(job.models.close)
        approver = choose_approver(display, yes=job.options.yes, elsewhere=showing.elsewhere)
        running = await stack.enter_async_context(make(store, approver))
        if past is None and store is not None:
            await _keep(store, running.run_id, job)
        interrupts = Interrupts(display, lambda: f"Stopped.{_resume(running.run_id, store)}")
        if showing.elsewhere and not showing.quiet:
            exits.tell(f"Answer approval requests with: {run_lookup.hint(f'approve {running.run_id}')}")
        writer = json_output.Writer(_stopper(interrupts)) if streams else None
        outcome = await conduct(running, display, interrupts, (writer.event,) if writer else ())
    is_read = _print(outcome, showing, writer)
    _tell_end(outcome, store, quiet=showing.quiet)
    return exits.BY_STATUS[outcome.status] if is_read else exits.OUTPUT_CLOSED


def _stopper(interrupts: Interrupts) -> Callable[[], None]:
    """A function that cancels the tree from another thread, so that unread output costs no more."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        with suppress(RuntimeError):  # the event loop is closed: the tree has ended
            loop.call_soon_threadsafe(interrupts.stop, NO_READER)

    return stop


async def _keep(store: Store, root: str, job: RunSetup) -> None:
    try:
        await options_.keep(store, root, job.options)
    except StoreError as error:
        exits.tell(
            f"The options of this run could not be stored; `remit resume` will need them again: {error}"
        )


async def _close(store: Store) -> None:
    with anyio.CancelScope(shield=True):
        await store.close()


# --- The end --------------------------------------------------------------------------------------


def _print(outcome: Outcome, showing: Showing, writer: json_output.Writer | None) -> bool:
    """Print the answer or the partial answer to standard output. False if its reader is gone."""
    if writer is not None:
        writer.line(json_output.encode_result(outcome))
        writer.close()
        return not writer.gone
    if standard_streams.reader_is_gone(sys.stdout):
        return False
    try:
        if showing.form == "json":
            json_output.write_json(json_output.encode_result(outcome))
        else:
            _print_text((outcome.text or outcome.partial).rstrip())
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    return True


def _print_text(text: str) -> None:
    """Unchanged for a pipe or a file; wrapped and escaped for a terminal."""
    if not text.strip():
        return
    if words.is_terminal(sys.stdout):
        columns.echo_answer(text)
    else:
        json_output.write_out(f"{text}\n".encode("utf-8", "replace"))


def _tell_end(outcome: Outcome, store: Store | None, *, quiet: bool) -> None:
    """Print warnings, the status unless completed, and how to see or resume the run."""
    if not quiet:
        for warning in outcome.warnings:
            exits.tell(f"Warning: {warning}")
    if not outcome.ok:
        ending = how_it_ended(outcome, 500)
        more = _MORE.get(outcome.reason if outcome.status is Status.INCOMPLETE else str(outcome.status), "")
        then = _resume(f"{outcome.run_id}{more}", store)
        after = then if outcome.status in REOPENED else _show(outcome.run_id, store)
        full_stop = "" if ending.endswith((".", "?", "!", "…")) else "."
        exits.tell(f"{ending[0].upper()}{ending[1:]}{full_stop}{after}")
    elif not quiet and store is not None:
        exits.tell(_show(outcome.run_id, store).strip())


_MORE = {
    "turns": " --max-turns 100",
    "timed_out": " --timeout 30m",
    "over_budget": " --limits requests=...,tokens=...,usd=...",
}
"""Options that raise the limit which a run reached; without them a resume would reach it again."""


def _resume(root: str, store: Store | None) -> str:
    return "" if store is None else f"\nResume: {run_lookup.hint(f'resume {root}')}"


def _show(root: str, store: Store | None) -> str:
    return "" if store is None else f"\nDetails: {run_lookup.hint(f'show {root}')}"


# --- Continuing a conversation --------------------------------------------------------------------


def conversation(outcome: Outcome) -> tuple[Message, ...]:
    """The messages of an earlier run, with a result for every call that it left open."""
    messages = list(outcome.messages)
    last = next(
        (n for n in reversed(range(len(messages))) if isinstance(messages[n], AssistantMessage)), None
    )
    if last is None:
        return tuple(messages)
    reply = messages[last]
    assert isinstance(reply, AssistantMessage)
    answered = {m.call_id for m in messages[last + 1 :] if isinstance(m, ToolMessage)}
    place = last + 1 + len(answered)
    messages[place:place] = [
        ToolMessage(call.id, call.name, "Not finished: the process ended during this call.", ok=False)
        for call in reply.calls
        if call.id not in answered
    ]
    return tuple(messages)


class Interrupts:
    """Handles signals: the first one cancels the tree, the second one ends the process."""

    def __init__(self, display: Display, last_words: Callable[[], str]) -> None:
        self._display = display
        self._last_words = last_words
        self._first = asyncio.Event()
        self.reason = ""

    async def first(self) -> str:
        """Wait for the first signal; returns its name."""
        await self._first.wait()
        return self.reason

    @contextmanager
    def caught(self) -> Generator[None]:
        """Handle signals inside this context. Without signal support, Ctrl-C stays a KeyboardInterrupt."""
        loop = asyncio.get_running_loop()
        caught: list[signal.Signals] = []
        with suppress(NotImplementedError, RuntimeError):
            for name in _STOPS:
                number = getattr(signal, name, None)
                if number is not None:
                    loop.add_signal_handler(number, self._met, name)
                    caught.append(number)
            again = getattr(signal, "SIGCONT", None)
            if again is not None:
                loop.add_signal_handler(again, self._display.redraw)
                caught.append(again)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def stop(self, reason: str) -> None:
        """Cancel the tree, as the first signal does."""
        self.reason = self.reason or reason
        self._first.set()

    def _met(self, name: str) -> None:
        if not self.reason:
            self._display.note("Stopping; the work so far is kept. Press Ctrl-C again to stop immediately.")
            self.stop(_NAMES.get(name, name))
            return
        self._display.end(tree=False)
        exits.tell(self._last_words())
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        # Exit without waiting for anything. The supervisor of the commands ends with this process.
        os._exit(exits.CANCELLED)


async def conduct(
    running: Running,
    display: Display,
    interrupts: Interrupts,
    sinks: tuple[Callable[[Event], None], ...] = (),
) -> Outcome:
    """Show a started tree until it ends; returns its outcome. `sinks` receive every event too."""
    display.begin()
    done = False
    try:
        with interrupts.caught():
            async with anyio.create_task_group() as group:
                group.start_soon(_stop_on, running, interrupts)
                group.start_soon(_draw, display)
                group.start_soon(_stop_unread, interrupts)
                await _feed(running.events(), (display.feed, *sinks))
                group.cancel_scope.cancel()
            outcome = await running.outcome()
            done = True
    finally:
        display.end(tree=done)
    return outcome


async def _feed(events: AsyncIterator[Event], readers: tuple[Callable[[Event], None], ...]) -> None:
    async for event in events:
        for read in readers:
            with _contained():
                read(event)


async def _draw(display: Display) -> None:
    while True:
        with _contained():
            display.paint()
        await anyio.sleep(FRAME_S)


@contextmanager
def _contained() -> Generator[None]:
    """Keep an error in the display from ending the run."""
    try:
        yield
    except Exception:
        log.exception("the display failed; the run continues")


async def _stop_on(running: Running, interrupts: Interrupts) -> None:
    await running.cancel(await interrupts.first())


async def _stop_unread(interrupts: Interrupts) -> None:
    """Cancel the tree when its output loses its reader, even while it prints nothing."""
    await standard_streams.until_unread()
    interrupts.stop(NO_READER)
