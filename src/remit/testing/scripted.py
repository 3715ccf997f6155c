"""A model that plays scripts, and the steps of a script.

Each run plays its agent's script from the start. A request without a step, or a step without a request, is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

import anyio
import msgspec
from msgspec import Struct

from remit.errors import ModelError, ModelErrorKind
from remit.types.limits import Usage
from remit.types.messages import (
    AssistantMessage,
    Call,
    Delta,
    Json,
    JsonObject,
    Reply,
    Request,
    Stop,
    Thinking,
)
from remit.types.ports import Emit, Price

STEP_USAGE = Usage(requests=1, input_tokens=10, output_tokens=5)
"""The default usage of a step; a `Reply` used as a step keeps its own usage."""


class Answer(Struct, frozen=True):
    """A reply. Calls without an id get one when the step is played."""

    reply: Reply
    delay: float = 0.0
    chunks: int = 0
    wrap_up: bool = False


class Failure(Struct, frozen=True):
    """An exception, created again each time it is raised."""

    make: Callable[[], BaseException]
    delay: float = 0.0


class Pause(Struct, frozen=True):
    """A wait, then another step."""

    seconds: float
    then: Step | None = None


Step = Answer | Failure | Pause
Line = Step | Reply | str
Script = Sequence[Line | Callable[[Request], Line]] | Callable[[Request], Line]
"""A list of steps, each of which may be a function of the request; or one function that answers every request."""


class ScriptError(AssertionError):
    """Raised when a request has no step or a step was not used."""


def say(
    text: str,
    *,
    stop: Stop = "end",
    usage: Usage | None = None,
    chunks: int = 0,
    delay: float = 0.0,
    thinking: str = "",
) -> Answer:
    """Answer with text. With `chunks`, the text is emitted in that many non-empty pieces during the delay."""
    thoughts = (Thinking(thinking),) if thinking else ()
    return Answer(Reply(text, (), thoughts, stop, usage or STEP_USAGE), delay, chunks)


def wrapped(text: str, *, usage: Usage | None = None, delay: float = 0.0) -> Answer:
    """Answer a request that allows no calls (a wrap-up or a summary); skipped for other requests."""
    return Answer(Reply(text, usage=usage or STEP_USAGE), delay, wrap_up=True)


def refuse(text: str, *, usage: Usage | None = None, delay: float = 0.0) -> Answer:
    """Decline to answer."""
    return say(text, stop="refusal", usage=usage, delay=delay)


def call(
    tool: str,
    args: JsonObject | str | None = None,
    /,
    *,
    id: str | None = None,  # noqa: A002 - the name it has in `Call`
    said: str = "",
    delay: float = 0.0,
    usage: Usage | None = None,
    **named: Json,
) -> Answer:
    """Call one tool, after the text `said`. Other keywords are the tool's arguments.

    Use `args` for tool parameters named `id`, `said`, `delay` or `usage`. A string as `args` is passed on as raw text,
    which may be invalid JSON.
    """
    if isinstance(args, str):
        if named:
            raise TypeError(f"call({tool!r}): pass the arguments either as a string or by name, not both.")
        arguments: JsonObject | str = args
    else:
        arguments = {**(args or {}), **named}
    asked = (Call(id or "", tool, arguments),)
    return Answer(Reply(said, asked, stop="calls", usage=usage or STEP_USAGE), delay)


def calls(*steps: Answer, said: str = "", delay: float = 0.0, usage: Usage | None = None) -> Answer:
    """Make several calls in one reply."""
    for step in steps:
        if not step.reply.calls or step.reply.text or step.delay or step.reply.usage is not STEP_USAGE:
            raise TypeError(
                "calls() takes call() steps. Pass said, delay and usage to calls(), not to call()."
            )
    asked = tuple(one for step in steps for one in step.reply.calls)
    return Answer(Reply(said, asked, stop="calls", usage=usage or STEP_USAGE), delay)


def fail(
    message: str,
    kind: ModelErrorKind = "server",
    *,
    retryable: bool | None = None,
    retry_after: float | None = None,
    delay: float = 0.0,
    usage: Usage | None = None,
) -> Failure:
    """Raise ModelError, as if the provider failed."""

    def make() -> ModelError:
        return ModelError(message, kind=kind, retryable=retryable, retry_after=retry_after, usage=usage)

    # Called once here, so that an invalid argument raises where the script is written.
    make()
    return Failure(make, delay)


def crash(problem: BaseException | str = "a bug in the model", *, delay: float = 0.0) -> Failure:
    """Raise the given exception, or a RuntimeError with the given text, as if the model had a bug."""
    if isinstance(problem, str):
        return Failure(lambda: RuntimeError(problem), delay)
    return Failure(lambda: problem.with_traceback(None), delay)


def wait(seconds: float, then: Step | Reply | str | None = None) -> Pause:
    """Wait, then play `then` or the next step."""
    return Pause(seconds, None if then is None else _as_step(then, "the step after wait()"))


class _Playing:
    """The position of one run in its script."""

    def __init__(self, script: Script, request: Request) -> None:
        self.agent = request.agent
        self.script = script
        self.next = 0
        self.used: set[int] = set()
        # A continued conversation already has calls, and ids must not repeat.
        self.numbered = sum(len(m.calls) for m in request.messages if isinstance(m, AssistantMessage))

    def take(self, request: Request) -> Step | None:
        """The step for this request; None after the last step."""
        if callable(self.script):
            return _as_step(self.script(request), f"the result of the script of {self.agent!r}")
        at = self._position(request.tool_choice == "none")
        if at >= len(self.script):
            return None
        self.next = at + 1
        self.used.add(at)
        line = self.script[at]
        which = f"step {at + 1} of the script of {self.agent!r}"
        return _as_step(line(request), f"the result of {which}") if callable(line) else _as_step(line, which)

    def _position(self, wrapping_up: bool) -> int:
        script = cast("Sequence[object]", self.script)
        ahead = range(self.next, len(script))
        if not wrapping_up:
            return next((i for i in ahead if not _is_wrap_up(script[i])), len(script))
        found = next((i for i in ahead if _is_wrap_up(script[i])), self.next)
        self.used.update(range(self.next, found))
        return found

    def number(self, asked: tuple[Call, ...]) -> tuple[Call, ...]:
        first = self.numbered + 1
        self.numbered += len(asked)
        return tuple(
            one if one.id else msgspec.structs.replace(one, id=f"c{n}") for n, one in enumerate(asked, first)
        )

    def unused(self) -> list[int]:
        if callable(self.script):
            return []
        return [i for i in range(len(self.script)) if i not in self.used]


class ScriptedModel:
    """A `Model` that plays scripts: one per agent name, or one for every agent.

    Contract: each run plays its agent's script from the start, one step per request. A request that allows no calls
    skips to the next `wrapped` step; other requests skip `wrapped` steps. Every reply yields to the loop at least once.
    As a context manager, it calls `assert_finished` at the end of a block that raised nothing.
    """

    price: Price | None = None

    def __init__(
        self,
        scripts: Mapping[str, Script] | Script,
        *,
        name: str = "scripted",
        price: Price | None = None,
        streams: bool = False,
    ) -> None:
        self.name = name
        # A subclass may set its own price, as any other model.
        if price is not None:
            self.price = price
        self.streams = streams
        self.requests: list[Request] = []
        """Every request, in order."""
        self.complaints: list[str] = []
        """Messages about requests without a step."""
        self.in_flight = 0
        self.peak = 0
        """The highest number of replies in flight at once."""
        self._scripts: Mapping[str, Script] | None = None
        self._for_all: Script = ()
        if isinstance(scripts, Mapping):
            for agent, script in cast("Mapping[str, object]", scripts).items():
                _check_script(script, f"the script of {agent!r}")
            self._scripts = scripts
        else:
            _check_script(scripts, "the script")
            self._for_all = scripts
        self._playing: dict[str, _Playing] = {}

    @property
    def calls_made(self) -> int:
        """The number of requests."""
        return len(self.requests)

    async def reply(self, request: Request, emit: Emit) -> Reply:
        self.requests.append(request)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            playing = self._playing_of(request)
            step = self._take(playing, request)
            while isinstance(step, Pause):
                await anyio.sleep(step.seconds)
                step = step.then or self._take(playing, request)
            if isinstance(step, Failure):
                await anyio.sleep(step.delay)
                raise step.make()
            await _speak(step, emit)
            return msgspec.structs.replace(step.reply, calls=playing.number(step.reply.calls))
        finally:
            self.in_flight -= 1

    def assert_finished(self) -> None:
        """Raises ScriptError for requests without a step, unused steps and agents that never ran."""
        problems = list(self.complaints)
        ran = {playing.agent for playing in self._playing.values()}
        if self._scripts is None and not ran:
            problems.append("the script was never started")
        problems += [
            f"agent {agent!r} has a script but never ran" for agent in self._scripts or () if agent not in ran
        ]
        for run_id, playing in self._playing.items():
            if unused := playing.unused():
                script = cast("Sequence[object]", playing.script)
                listed = "; ".join(f"{i + 1} of {len(script)}: {_show(script[i])}" for i in unused)
                problems.append(f"agent {playing.agent!r} (run {run_id}) did not use step {listed}")
        if problems:
            raise ScriptError("\n".join(problems))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.assert_finished()

    def _playing_of(self, request: Request) -> _Playing:
        playing = self._playing.get(request.run_id)
        if playing is None:
            playing = self._playing[request.run_id] = _Playing(self._script_of(request), request)
        return playing

    def _script_of(self, request: Request) -> Script:
        if self._scripts is None:
            return self._for_all
        if request.agent not in self._scripts:
            known = ", ".join(self._scripts) or "none"
            raise self._complaint(request, f"has no script (agents with a script: {known})")
        return self._scripts[request.agent]

    def _take(self, playing: _Playing, request: Request) -> Step:
        step = playing.take(request)
        if step is None:
            many = len(playing.used)
            played = f"{many} step was" if many == 1 else f"{many} steps were"
            raise self._complaint(request, f"sent a request after its script ended; {played} played")
        return step

    def _complaint(self, request: Request, problem: str) -> ScriptError:
        last = request.messages[-1].text if request.messages else ""
        words = (
            f"agent {request.agent!r} (run {request.run_id}) {problem}; the last message was {_cut(last)!r}"
        )
        self.complaints.append(words)
        return ScriptError(words)


async def _speak(step: Answer, emit: Emit) -> None:
    if not step.chunks:
        await anyio.sleep(step.delay)
        return
    pieces = _pieces(step.reply.text, step.chunks)
    for thought in step.reply.thinking:
        emit(Delta(thinking=thought.text))
    for piece in pieces:
        await anyio.sleep(step.delay / len(pieces))
        emit(piece)


def _pieces(text: str, count: int) -> list[str]:
    """`text` in `count` pieces of nearly equal length; fewer if a piece would be empty."""
    count = max(1, min(count, len(text)))
    cuts = [len(text) * i // count for i in range(count + 1)]
    return [text[a:b] for a, b in itertools.pairwise(cuts)]


def _check_script(script: object, which: str) -> None:
    """Raises TypeError for an invalid script, before any request."""
    if callable(script):
        return
    if isinstance(script, str) or not isinstance(script, Sequence):
        hint = " Put it in a list." if isinstance(script, Line) else ""
        what = type(script).__name__
        raise TypeError(f"{which} must be a list of steps or a function of the request, not {what}.{hint}")
    for number, line in enumerate(cast("Sequence[object]", script), 1):
        if not callable(line):
            _as_step(line, f"step {number} of {which}")


def _as_step(line: object, which: str) -> Step:
    if isinstance(line, str):
        return say(line)
    if isinstance(line, Reply):
        return Answer(line)
    if isinstance(line, Step):
        return line
    raise TypeError(
        f"{which} is {_cut(repr(line))}, which is not a step. A step is a text, a Reply, or the result of say(), call(),"
        " calls(), wrapped(), refuse(), fail(), crash() or wait()."
    )


def _is_wrap_up(line: object) -> bool:
    return isinstance(line, Answer) and line.wrap_up


def _show(line: object) -> str:
    if not isinstance(line, Answer):
        return _cut(repr(line))
    said = repr(_cut(line.reply.text)) if line.reply.text else ""
    asked = ", ".join(f"call {one.name}" for one in line.reply.calls)
    return (
        " ".join(part for part in ("wrapped" if line.wrap_up else "", said, asked) if part)
        or "an empty answer"
    )


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
