"""One call out to a tool: its time, what it sees of the run meanwhile, and what is read of its result."""

from __future__ import annotations

import inspect
import logging
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
"""How much of a result a model reads where its tool does not say."""

LARGE_S = 30.0
"""How long it may take to check long arguments, or to make text of a large result."""

LARGE_AT_ONCE = Gate(2)
"""Large values that are worked on at once in this process: more threads would only keep Python's lock from the loop."""

PREVIEW_S = 5.0
MOST_PREVIEW = 20_000


class _Rendered(msgspec.Struct, frozen=True):
    """What a tool returned, rendered in the thread that the tool ran in."""

    result: ToolResult


async def check(run: Run, tool: Tool, args: JsonObject) -> dict[str, object]:
    """As `Tool.check`, long arguments in a thread. Raises BadArguments and Stopped."""
    if weigh(args, LARGE) <= LARGE:
        return tool.check(args)
    ended = await off_loop(run, run.node.life.phase, f"the check of {tool.name}", lambda: tool.check(args))
    if ended.error is not None:
        raise ended.error
    if ended.how == "timed_out":
        raise BadArguments(f"The arguments of {tool.name} could not be checked in {LARGE_S:g} s.")
    return cast("dict[str, object]", ended.value)


async def off_loop(run: Run, phase: Phase, name: str, work: Callable[[], object]) -> Ended:
    """Do work over a large value in a thread, when it is its turn. Raises Stopped."""
    node = run.node
    async with LARGE_AT_ONCE.place(phase):
        end = node.tree.clock() + LARGE_S
        return await foreign.run_in_thread(
            work, phase, name=name, expires=lambda: end, urgent=True, on_abandoned=node.left_behind
        )


async def execute(
    run: Run, call: Call, tool: Tool, kwargs: dict[str, object], record: Callable[[], None] | None = None
) -> ToolResult:
    """Let a tool do a call. `record` writes down that it begins, in the tool's first step. Raises Stopped."""
    allowed_by = run.turn.allowed_by.pop(call.id, "default")
    left = foreign.count_abandoned()
    if left >= foreign.MOST_ABANDONED:
        return ToolResult(f"Not run: {left} earlier calls could not be stopped and still run.", ok=False)
    limit, most = tool.timeout_s, run.node.bounds.limits.call_seconds
    if most == 0:
        return ToolResult(f"Not run: {call.name} may take no time at all (call_seconds=0).", ok=False)
    if limit is None and most is not UNSET:
        limit = most
    try:
        ended = await Trip(run, call, tool, limit, allowed_by=allowed_by, record=record).make(kwargs)
    except Stopped as stop:
        ended = _returned(stop)
    if ended.how != "returned":
        return await _failed(run, call, tool, limit, ended)
    if _is_large(ended.value):
        return await _inline(run, tool, await _rendered_elsewhere(run, tool, ended.value))
    return await _inline(run, tool, _rendered(ended.value))


def _returned(stop: Stopped) -> Ended:
    """What the tool returned all the same. Raises the stop if it did not."""
    if stop.ended is None or stop.ended.how != "returned":
        raise stop
    return stop.ended


def _rendered(value: object) -> ToolResult:
    return value.result if isinstance(value, _Rendered) else render(value)


def _is_large(value: object) -> bool:
    """Whether to render it takes long. Text of ASCII alone needs no look at its characters."""
    if isinstance(value, str):
        return len(value) > LARGE and not value.isascii()
    if isinstance(value, ToolResult):
        value = (value.content, value.details)
    return not isinstance(value, _Rendered) and weigh(value, LARGE) > LARGE


async def _rendered_elsewhere(run: Run, tool: Tool, value: object) -> ToolResult:
    """A large value, rendered in a thread. Raises Stopped if that had to be left behind."""
    # A phase of its own: the result of a stopped run is worth keeping too.
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
    said = f"Timed out: {call.name} did not end within {limit:g} s."
    if ended.value is not None and ended.error is None:
        large = _is_large(ended.value)
        late = await _rendered_elsewhere(run, tool, ended.value) if large else _rendered(ended.value)
        said = f"{said} After that it ended with: {late.content}"
    return await _inline(run, tool, ToolResult(said, ok=False))


async def _inline(run: Run, tool: Tool, result: ToolResult) -> ToolResult:
    """A result as the model reads it: of a long one the beginning and the end, with the whole kept besides."""
    most, whole = _most(run, tool), result.content
    if result.note:
        # Notes are the runtime's own words: a tool cannot have any.
        result = msgspec.structs.replace(result, note="")
    if len(whole) <= most:
        return result
    run.tally.results_kept += 1
    artifact = await keep(run, f"result{run.tally.results_kept}", whole)
    head = whole[: most * 2 // 3]
    tail = whole[len(whole) - (most - len(head)) :]
    left_out = f"{len(whole) - most:,} of {len(whole):,} characters are left out here"
    note = f"[remit] {left_out}."
    if artifact is not None and "read_artifact" in {spec.name for spec in run.kit.specs}:
        note += f" Read them with read_artifact, artifact {artifact.id!r}, from start={len(head)}."
    return msgspec.structs.replace(result, content=f"{head}\n[... {left_out} ...]\n{tail}", note=note)


async def preview(run: Run, call: Call, tool: Tool, kwargs: dict[str, object]) -> str:
    """What a call would do, for whoever is asked; empty when its tool cannot tell. Raises Stopped."""
    text = await _asked_of(run, call, tool, lambda ctx: tool.preview(kwargs, ctx))
    cut = len(text) - MOST_PREVIEW
    end = f"\n(The preview ends here, {cut:,} characters before its end; the arguments have all of it.)"
    return clean(text[:MOST_PREVIEW]) + (end if cut > 0 else "")


async def must_ask(run: Run, call: Call, tool: Tool, kwargs: dict[str, object]) -> str:
    """What in a call only a person may approve; empty when its tool cannot tell. Raises Stopped."""
    return await _asked_of(run, call, tool, lambda ctx: tool.must_ask(kwargs, ctx))


async def _asked_of(run: Run, call: Call, tool: Tool, ask: Callable[[ToolContext], str]) -> str:
    """What a tool says of a call before it is made, in a thread; empty where that fails or takes too long."""
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
    """One call out to a tool, and what the tool sees of the run meanwhile."""

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
        """Whether the tool is only asked what a call would do: it may start nothing then."""
        self.run = run
        self.call = call
        self.tool = tool
        self.limit = limit
        self.end: float | None = None
        self.allowed_by: AllowedBy = allowed_by
        self.record = record
        self.over = False
        self.code: FromCode | None = None
        """Once the tool has asked for a child."""
        self.left = 0.0
        """The call's time, while it stands still."""
        self.poke: Callable[[], None] = _nothing

    def begin(self) -> None:
        """The call's time counts from here: waiting for a thread is not the tool's."""
        self.end = None if self.limit is None else self.run.node.tree.clock() + self.limit

    def begin_in_thread(self) -> None:
        self._record()
        self.begin()

    def _record(self) -> None:
        if self.record is not None:
            self.record()

    async def make(self, kwargs: dict[str, object]) -> Ended:
        """Let the tool do all of the call. Raises Stopped."""
        try:
            if self.tool.is_async:
                self.begin()
                return await self._in_task(self._invoke(kwargs))
            ended = await self._in_thread(kwargs)
            if ended.how == "returned" and inspect.isawaitable(ended.value):
                # Its task has a copy of this one's context.
                with self._traced():
                    ended = await self._in_task(ended.value)
            return ended
        finally:
            self.over = True
            if self.code is not None:
                await self.code.close()

    def from_code(self) -> FromCode:
        """For the tool to ask for children."""
        if self.code is None:
            name = f"tool {self.tool.name}"
            self.code = FromCode(self.run, self.call.id, name, on_wait=self._pause, on_back=self._resume)
        return self.code

    def _pause(self) -> None:
        """The call waits for children: its time stands still."""
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
        """In a thread. The value may be large, so it is rendered there too."""
        with inside:
            value = self.tool.invoke(kwargs, self.context())
        return value if value is None or inspect.isawaitable(value) else _Rendered(render(value))

    def expires(self) -> float | None:
        return self.end

    def cancelled(self) -> bool:
        return self._is_over() or self.run.node.life.phase.stopped

    def _is_over(self) -> bool:
        """Whether the call has ended or has had its time, by the clock: a flag set at some other read would be late."""
        return self.over or (self.end is not None and self.run.node.tree.clock() >= self.end)

    def emit(self, text: str) -> None:
        """May be called from the tool's thread; nothing comes through once the call is over."""
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
    """Replaced once the call is waited for."""
