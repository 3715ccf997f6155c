"""Runs one tool call: its timeout, its view of the run, and its result."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import UNSET

import remit.tasks.guest as foreign
from remit.engine.run.artifacts import keep
from remit.engine.run.from_code import FromCode
from remit.engine.run.state import Run
from remit.engine.tree.tracing import UNTRACED, Inside
from remit.tasks.cancel import Phase, Stopped, on_loop
from remit.tasks.guest import Ended
from remit.tasks.semaphore import Gate
from remit.tools.contexts import AllowedBy, ToolContext
from remit.tools.result import ToolResult, failure, render
from remit.tools.tool import BadArguments, Tool
from remit.types.events import CallProgressed
from remit.types.messages import Call, JsonObject
from remit.types.sizes import LARGE, weigh
from remit.types.text import clean

log = logging.getLogger("remit")

INLINE_CHARS = 100_000
"""How much of a result the model reads if its tool sets no `inline_chars`."""

LARGE_S = 30.0
"""How long checking large arguments or rendering a large result may take."""

LARGE_AT_ONCE = Gate(2)
"""Large values processed at once in this process: more threads would only hold Python's lock from the event loop."""

PREVIEW_S = 5.0
MOST_PREVIEW = 20_000


_MAKING = threading.Lock()
"""Held while it is decided whether a call delegates: several threads of a tool may ask at once, also after its end."""


class _Rendered(msgspec.Struct, frozen=True):
    """A tool's result, rendered in the tool's own thread."""

    result: ToolResult


async def check(run: Run, tool: Tool, args: JsonObject) -> dict[str, object]:
    """`Tool.check`; large arguments are checked in a thread. Raises BadArguments and Stopped."""
    if weigh(args, LARGE) <= LARGE:
        return tool.check(args)
    ended = await off_loop(run, run.node.life.phase, f"the check of {tool.name}", lambda: tool.check(args))
    if ended.error is not None:
        raise ended.error
    if ended.how == "timed_out":
        raise BadArguments(f"The arguments of {tool.name} could not be checked in {LARGE_S:g} s.")
    return cast("dict[str, object]", ended.value)


async def off_loop(run: Run, phase: Phase, name: str, work: Callable[[], object]) -> Ended:
    """Process a large value in a thread, a few at a time. Raises Stopped."""
    node = run.node
    async with LARGE_AT_ONCE.place(phase):
        end = node.tree.clock() + LARGE_S
        return await foreign.run_in_thread(
            work, phase, name=name, expires=lambda: end, urgent=True, on_abandoned=node.left_behind
        )


async def execute(
    run: Run, call: Call, tool: Tool, kwargs: dict[str, object], record: Callable[[], None] | None = None
) -> ToolResult:
    """Run a call: its whole result. `record` records its start and is called as the tool begins. Raises Stopped."""
    allowed_by = run.turn.allowed_by.pop(call.id, "default")
    left = foreign.count_abandoned()
    if left >= foreign.MOST_ABANDONED:
        return ToolResult(
            f"Not run: {left} earlier calls could not be stopped and are still running.", ok=False
        )
    limit, most = tool.timeout_s, run.node.bounds.limits.call_seconds
    if most == 0:
        return ToolResult(f"Not run: call_seconds=0 leaves no time for {call.name}.", ok=False)
    if limit is None and most is not UNSET:
        limit = most
    try:
        ended = await Trip(run, call, tool, limit, allowed_by=allowed_by, record=record).make(kwargs)
    except Stopped as stop:
        ended = _returned(stop)
    if ended.how != "returned":
        return await _failed(run, call, tool, limit, ended)
    large = _is_large(ended.value)
    result = await _rendered_elsewhere(run, tool, ended.value) if large else _rendered(ended.value)
    # Only remit writes notes: a tool must not forge one.
    return msgspec.structs.replace(result, note="") if result.note else result


def _returned(stop: Stopped) -> Ended:
    """The value that the tool returned despite the stop. Raises the stop if there is none."""
    if stop.ended is None or stop.ended.how != "returned":
        raise stop
    return stop.ended


def _rendered(value: object) -> ToolResult:
    return value.result if isinstance(value, _Rendered) else render(value)


def _is_large(value: object) -> bool:
    """Whether rendering takes long. ASCII text needs no scan."""
    if isinstance(value, str):
        return len(value) > LARGE and not value.isascii()
    if isinstance(value, ToolResult):
        value = (value.content, value.details)
    return not isinstance(value, _Rendered) and weigh(value, LARGE) > LARGE


async def _rendered_elsewhere(run: Run, tool: Tool, value: object) -> ToolResult:
    """Render a large value in a thread. Raises Stopped if the thread was abandoned."""
    # A separate phase: the result is worth keeping even if the run was stopped.
    phase = Phase(run.node.tree.alarm, run.node.life)
    try:
        ended = await off_loop(run, phase, f"the result of {tool.name}", lambda: render(value))
    except Stopped as stop:
        ended = _returned(stop)
    if isinstance(ended.value, ToolResult):
        return ended.value
    return failure(ended.error or TimeoutError(f"the result took more than {LARGE_S:g} s to render"))


def _most(run: Run, tool: Tool) -> int:
    """How many characters of a result the model reads."""
    return min(tool.inline_chars or INLINE_CHARS, run.turn.inline_chars)


async def _failed(run: Run, call: Call, tool: Tool, limit: float | None, ended: Ended) -> ToolResult:
    if ended.how != "timed_out":
        assert ended.error is not None
        log.info("the tool %s failed", call.name, exc_info=ended.error)
        return failure(ended.error)
    said = f"Timed out: {call.name} did not finish within {limit:g} s."
    if ended.value is not None and ended.error is None:
        large = _is_large(ended.value)
        late = await _rendered_elsewhere(run, tool, ended.value) if large else _rendered(ended.value)
        said = f"{said} It finished later with: {late.content}"
    return ToolResult(said, ok=False)


async def inline(run: Run, tool: Tool, result: ToolResult) -> ToolResult:
    """The result as the model reads it: the beginning and the end of a long one, with the whole stored as an artifact."""
    most, whole = _most(run, tool), result.content
    if len(whole) <= most:
        return result
    run.tally.results_kept += 1
    artifact = await keep(run, f"result{run.tally.results_kept}", whole)
    head = whole[: most * 2 // 3]
    tail = whole[len(whole) - (most - len(head)) :]
    left_out = f"{len(whole) - most:,} of {len(whole):,} characters are omitted here"
    note = f"{result.note}\n[remit] {left_out}." if result.note else f"[remit] {left_out}."
    if artifact is not None and "read_artifact" in {spec.name for spec in run.kit.specs}:
        note += f" Read them with read_artifact, artifact {artifact.id!r}, from start={len(head)}."
    return msgspec.structs.replace(result, content=f"{head}\n[... {left_out} ...]\n{tail}", note=note)


async def preview(run: Run, call: Call, tool: Tool, kwargs: dict[str, object]) -> str:
    """What a call would do, for the approver; empty if its tool has no preview or fails. Raises Stopped."""
    text = await _asked_of(run, call, tool, lambda ctx: tool.preview(kwargs, ctx))
    cut = len(text) - MOST_PREVIEW
    end = f"\n(Preview truncated: {cut:,} more characters. The arguments are complete.)"
    return clean(text[:MOST_PREVIEW]) + (end if cut > 0 else "")


async def must_ask(run: Run, call: Call, tool: Tool, kwargs: dict[str, object]) -> str:
    """The part of a call that only a person may approve; empty if there is none or the tool fails. Raises Stopped."""
    return await _asked_of(run, call, tool, lambda ctx: tool.must_ask(kwargs, ctx))


async def _asked_of(run: Run, call: Call, tool: Tool, ask: Callable[[ToolContext], str]) -> str:
    """Ask a tool about a call before it runs, in a thread; empty if that fails or times out."""
    trip = Trip(run, call, tool, PREVIEW_S, previews=True)
    trip.begin()
    ended = await foreign.run_in_thread(
        lambda: ask(trip.context()),
        run.node.life.phase,
        name=f"preview of {tool.name}",
        expires=trip.expires,
        urgent=True,
        on_abandoned=run.node.left_behind,
    )
    trip.over = True
    return ended.value if isinstance(ended.value, str) else ""


class Trip:
    """One tool call while it runs, and what the tool sees of the run."""

    __slots__ = (
        "allowed_by",
        "call",
        "code",
        "end",
        "left",
        "limit",
        "over",
        "poke",
        "previews",
        "record",
        "run",
        "tool",
    )

    def __init__(
        self,
        run: Run,
        call: Call,
        tool: Tool,
        limit: float | None,
        *,
        allowed_by: AllowedBy = "default",
        record: Callable[[], None] | None = None,
        previews: bool = False,
    ) -> None:
        self.previews = previews
        """Whether this is only a preview: it must not start children."""
        self.run = run
        self.call = call
        self.tool = tool
        self.limit = limit
        self.end: float | None = None
        self.allowed_by: AllowedBy = allowed_by
        self.record = record
        self.over = False
        self.code: FromCode | None = None
        """Set once the tool has asked for a child."""
        self.left = 0.0
        """The remaining time while the timeout is paused."""
        self.poke: Callable[[], None] = _nothing

    def begin(self) -> None:
        """Start the timeout. Waiting for a thread does not count."""
        self.end = None if self.limit is None else self.run.node.tree.clock() + self.limit

    def begin_in_thread(self) -> None:
        self._record()
        self.begin()

    def _record(self) -> None:
        if self.record is not None:
            self.record()

    async def make(self, kwargs: dict[str, object]) -> Ended:
        """Run the tool to the end of the call. Raises Stopped."""
        try:
            if self.tool.is_async:
                self.begin()
                return await self._in_task(self._invoke(kwargs))
            ended = await self._in_thread(kwargs)
            if ended.how == "returned" and inspect.isawaitable(ended.value):
                # The new task copies the current context.
                with self._traced():
                    ended = await self._in_task(ended.value)
            return ended
        finally:
            with _MAKING:
                self.over = True
            replay = self.run.replay
            if replay is not None and self.call.id in replay.code:
                # It was run again, and may not have asked for any of its recorded children.
                self.from_code()
            if self.code is not None:
                await self.code.close()

    def from_code(self) -> FromCode:
        """For the tool to ask for children: from its task, its threads, and whatever it leaves behind."""
        with _MAKING:
            if self.code is None:
                self.code = FromCode(
                    self.run,
                    self.call.id,
                    f"tool {self.tool.name}",
                    on_wait=self._pause,
                    on_back=self._resume,
                    ended=self.over,
                )
            return self.code

    def _pause(self) -> None:
        """The call waits for children: pause its timeout."""
        if self.end is not None:
            self.left, self.end = self.end - self.run.node.tree.clock(), None
            self.poke()

    def _resume(self) -> None:
        if self.limit is not None and self.end is None:
            self.end = self.run.node.tree.clock() + self.left
            self.poke()

    def listen(self, poke: Callable[[], None]) -> None:
        self.poke = poke

    async def _children_ended(self) -> bool:
        return self.code is not None and await self.code.children_ended()

    async def _invoke(self, kwargs: dict[str, object]) -> object:
        self._record()
        with self._traced():
            value = self.tool.invoke(kwargs, self.context())
            return await value if inspect.isawaitable(value) else value

    def _traced(self) -> Inside:
        tracing = self.run.node.tree.tracing
        return UNTRACED if tracing is None else tracing.in_call(self.run.node.run_id, self.call)

    def context(self) -> ToolContext:
        node, where = self.run.node, self.run.node.where
        return ToolContext(
            run_id=where.run,
            path=where.path,
            depth=where.depth,
            workspace=node.tree.workspace,
            deps=node.tree.deps,
            emit=self.emit,
            cancelled=self.cancelled,
            sandbox=node.bounds.sandbox,
            task=node.task,
            approved=self.run.turn.approved.get(self.call.id, ""),
            allowed_by=self.allowed_by,
            code=None if self.previews else self.from_code,
        )

    async def _in_task(self, work: Awaitable[object]) -> Ended:
        node = self.run.node
        return await foreign.run(
            work,
            node.life.phase,
            name=f"tool {self.tool.name}",
            expires=self.expires,
            poked=self.listen,
            settle=self._children_ended,
            on_abandoned=node.left_behind,
        )

    async def _in_thread(self, kwargs: dict[str, object]) -> Ended:
        node, tool, inside = self.run.node, self.tool, self._traced()
        return await foreign.run_in_thread(
            lambda: self._invoked(kwargs, inside),
            node.life.phase,
            name=f"tool {tool.name}",
            expires=self.expires,
            on_begin=self.begin_in_thread,
            hears=tool.takes_context,
            poked=self.listen,
            settle=self._children_ended,
            on_abandoned=node.left_behind,
        )

    def _invoked(self, kwargs: dict[str, object], inside: Inside) -> object:
        """Runs in a thread. The value may be large, so it is rendered there too."""
        with inside:
            value = self.tool.invoke(kwargs, self.context())
        return value if value is None or inspect.isawaitable(value) else _Rendered(render(value))

    def expires(self) -> float | None:
        return self.end

    def cancelled(self) -> bool:
        return self._is_over() or self.run.node.life.phase.stopped

    def _is_over(self) -> bool:
        """Whether the call has ended or its time is up, by the clock: a flag would be set too late."""
        return self.over or (self.end is not None and self.run.node.tree.clock() >= self.end)

    def emit(self, text: str) -> None:
        """May be called from the tool's thread; has no effect after the call is over."""
        loop = self.run.node.tree.loop
        if on_loop(loop):
            self._emit(text)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._emit, text)

    def _emit(self, text: str) -> None:
        if not self._is_over():
            node, call = self.run.node, self.call
            node.emit(CallProgressed(*node.stamp(), call=call.id, tool=call.name, text=text))


def _nothing() -> None:
    """Replaced once the call is awaited."""
