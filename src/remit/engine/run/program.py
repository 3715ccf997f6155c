"""A run that is a program: code instead of a model's turns. Everything else is as for any other run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

import msgspec

import remit.tasks.guest as foreign
import remit.tasks.threads as threads
from remit.engine.run.from_code import FromCode
from remit.engine.run.loop_ending import Ending, stopped
from remit.engine.run.state import Run
from remit.engine.tree.tracing import UNTRACED
from remit.errors import UsageError
from remit.tasks.cancel import Stopped
from remit.tools.contexts import ProgramContext
from remit.tools.schema import parse_output
from remit.types.events import CallEnded, CallProgressed, CallStarted
from remit.types.messages import Call, Json
from remit.types.outcome import Status, ToolCallLog
from remit.types.sizes import MOST_TEXT
from remit.types.text import clean, describe_error, result_summary, text_of

STEP = "step"
"""The tier of a recorded step, which is neither a tool call nor charged as one."""


async def run_program(run: Run) -> Ending:
    """Run the agent's program to its end. Every end is an Ending; only bugs raise."""
    life, steps = run.node.life, Steps(run)
    code = FromCode(run, "", f"program {run.agent.name}", on_wait=_nothing, on_back=_nothing)
    try:
        ended = await foreign.run(
            _call(run, code, steps),
            life.phase,
            name=f"program {run.agent.name}",
            settle=code.children_ended,
            on_abandoned=run.node.left_behind,
        )
    except Stopped as stop:
        ended = stop.ended
    finally:
        await code.close()
        steps.close()
    # The timer may not have rung yet, if the program never awaited.
    life.deadline.look()
    return _ending(run, ended)


async def _call(run: Run, code: FromCode, steps: Steps) -> object:
    program, node = run.agent.program, run.node
    assert program is not None
    context = ProgramContext(
        run_id=node.run_id,
        path=node.path,
        depth=node.depth,
        workspace=node.workspace,
        deps=node.tree.deps,
        emit=steps.emit,
        cancelled=lambda: node.life.phase.stopped,
        sandbox=node.bounds.sandbox,
        code=lambda: code,
        prompt=run.plan.prompt,
        step=steps.step,
    )
    return await program(context)


def _ending(run: Run, ended: foreign.Ended | None) -> Ending:
    """The ending for what the program returned or raised."""
    cause, output = run.node.life.cause, run.agent.output
    returned = ended.value if ended is not None and ended.how == "returned" else None
    text = "" if returned is None else text_of(returned)
    if cause is not None:
        run.talk.text = text
        return stopped(run, cause)
    if ended is None or ended.error is not None:
        why = (
            f"the program raised {describe_error(ended.error)}"
            if ended and ended.error
            else "the program was cancelled"
        )
        return Ending(Status.FAILED, reason=why, error=why)
    if not text.strip():
        return Ending(Status.INCOMPLETE, "", "empty")
    if output is None:
        return Ending(Status.COMPLETED, text)
    value, problem = parse_result(output, text)
    if problem:
        why = f"the program's result failed validation. {problem}"
        return Ending(Status.FAILED, text, why, error=why)
    return Ending(Status.COMPLETED, text, output=value)


def parse_result(output: object, text: str) -> tuple[object, str]:
    """As `parse_output`, for the text of a program's result: a value whose JSON is a string is that string there."""
    quoted = msgspec.json.encode(text).decode()
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return parse_output(output, quoted)
    value, problem = parse_output(output, text)
    if problem:
        string, trouble = parse_output(output, quoted)
        if not trouble:
            return string, ""
    return value, problem


class Steps:
    """The recorded steps of one program."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._names: set[str] = set()
        self._open: dict[str, float] = {}
        """When each step began that has not ended."""
        self._closed = False

    def emit(self, text: str) -> None:
        node = self._run.node
        if not self._closed:
            node.emit(CallProgressed(*node.stamp(), call="", tool=node.agent, text=text))

    async def step(self, name: object, function: Callable[..., object], args: Sequence[object]) -> Json:
        """The recorded result of the step; otherwise run the function and record its result. In the program's own task."""
        if not isinstance(name, str) or not name.strip() or len(name) > 200:
            raise UsageError(f"step() needs a name of 1 to 200 characters, not {name!r}.")
        if not callable(function):
            raise UsageError(f"step({name!r}) needs a function, not {function!r}.")
        name = clean(name)
        if self._closed:
            raise UsageError(f"step({name!r}): the program has ended.")
        if name in self._names:
            raise UsageError(
                f"step({name!r}): this program already has a step with this name. Names must be unique."
            )
        self._names.add(name)
        recorded = None if self._run.replay is None else self._run.replay.steps.get(name)
        if recorded is not None:
            # A number that is a secret of the store's leaves no JSON.
            with suppress(msgspec.DecodeError):
                return cast(Json, msgspec.json.decode(recorded))
        return await self._record(name, function, args)

    def close(self) -> None:
        """The program has ended: a step that a task of it still runs is not recorded any more."""
        self._closed = True
        for name in tuple(self._open):
            self._ended(name, "Not finished: the program ended before this step.", success=False)

    async def _record(self, name: str, function: Callable[..., object], args: Sequence[object]) -> Json:
        node, tally = self._run.node, self._run.tally
        tally.calls += 1
        self._open[name] = node.tree.clock()
        node.emit(
            CallStarted(
                *node.stamp(), call=_id(name), tool=name, display_name=name, tier=STEP, count=tally.calls
            )
        )
        tracing = node.tree.tracing
        inside = UNTRACED if tracing is None else tracing.in_call(node.run_id, Call(_id(name), name))
        try:
            with inside:
                value = await self._called(name, function, args)
            text = _json_of(name, value)
        except BaseException as error:
            self._ended(name, describe_error(error), success=False)
            raise
        self._ended(name, text, success=True)
        if not self._closed:
            # A step that is not recorded for good would run again after a crash although the program has gone on.
            await node.tree.journal.flush()
        return cast(Json, msgspec.json.decode(text))

    def _ended(self, name: str, content: str, *, success: bool) -> None:
        began = self._open.pop(name, None)
        if began is None:
            return
        run, node = self._run, self._run.node
        took, summary = round((node.tree.clock() - began) * 1000), result_summary(name, content, success)
        run.log.append(ToolCallLog(name, name, "", summary, success, took))
        node.emit(
            CallEnded(
                *node.stamp(),
                call=_id(name),
                tool=name,
                success=success,
                content=content,
                display_name=name,
                summary=summary,
                duration_ms=took,
                count=run.tally.calls,
                unfinished=not success,
            )
        )

    async def _called(self, name: str, function: Callable[..., object], args: Sequence[object]) -> object:
        """An async function is awaited here, in the program's task; a sync one runs in a daemon thread."""
        if foreign.is_async(function):
            return await cast("Callable[..., asyncio.Future[object]]", function)(*args)
        job = threads.start(lambda: function(*args), asyncio.get_running_loop(), name=f"step {name}")
        try:
            await job.wait()
        except asyncio.CancelledError:
            job.withdraw()
            if job.abandon() and not self._closed:
                self._run.node.left_behind(f"step {name}")
            raise
        value = job.result()
        return await value if inspect.isawaitable(value) else value


def _id(name: str) -> str:
    """A step as a call."""
    return f"{STEP}/{name}"


def _json_of(name: str, value: object) -> str:
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"step({name!r}) must return a JSON value, which can be recorded: {error}") from None
    if len(text) > MOST_TEXT:
        raise UsageError(
            f"step({name!r}) returned {len(text):,} characters of JSON; the maximum is {MOST_TEXT:,}."
        )
    return text


def _plain(value: object) -> object:
    dump = getattr(type(value), "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not a JSON value")
    return dump(value, mode="json")


def _nothing() -> None:
    """A program has no timeout to pause."""
