"""Agents that are programs: as root, as a child of a model and of code; their time, their ends, what they may not have."""

from __future__ import annotations

import asyncio
import enum
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from codebench import WORKER, lead_of, play, program_of, results, script, statuses, tool_of
from pydantic import BaseModel

from remit import (
    Agent,
    Limits,
    Outcome,
    ProgramContext,
    Request,
    ToolContext,
    UsageError,
    run,
    start,
)
from remit.testing import ScriptedModel, call, say
from remit.testing.scripted import Line

if TYPE_CHECKING:
    from decimal import Decimal

LONG = 1_000.0


def after(seconds: float) -> Callable[[Request], Line]:
    return lambda _: say("ok", delay=seconds)


def now() -> str:
    return f"{asyncio.get_running_loop().time():g}"


async def hello(ctx: ProgramContext) -> str:
    return f"{ctx.task}: {ctx.run_id} {'/'.join(ctx.path)} {ctx.depth} {ctx.deps} {ctx.prompt.text}"


# --- Where a program may stand ------------------------------------------------------------------------


async def test_a_program_is_a_root_without_a_model() -> None:
    """Rule 18: a program needs no model; it knows its task, its place and the caller's object."""
    outcome = await run(program_of(hello), "say hello", deps="deps")
    assert outcome.text == "say hello: r1 program 0 deps say hello"
    assert (outcome.turns, outcome.usage.requests, outcome.model) == (0, 0, "")


async def test_a_program_is_a_child_of_a_model() -> None:
    """Rule 18: a model delegates to a program by `task`, as to any agent, and reads its result."""
    lead = [call("task", agent="program", prompt="look"), say("done")]
    played = await play(Agent("lead", subagents=[program_of(hello)]), script(lead=lead))
    assert results(played.outcome) == ["look: r1.1 lead/program 1 None look"]
    (started,) = played.started
    assert (started.program, started.key, started.call) == (True, "", "c1")


async def test_a_program_is_a_child_of_code() -> None:
    """Rule 18: a tool and a program delegate to programs, by name and by agent."""

    async def work(ctx: ToolContext) -> str:
        found = [
            await ctx.delegate("program", "one"),
            await ctx.delegate(program_of(hello, name="other"), "two"),
        ]
        return " | ".join(one.text for one in found)

    played = await play(lead_of(tool_of(work), subagents=[program_of(hello)]), script())
    assert results(played.outcome) == ["one: r1.1 lead/program 1 None one | two: r1.2 lead/other 1 None two"]


async def test_a_programs_settings_are_for_its_descendants() -> None:
    """Rule 18: model, settings and limits of a program hold for the runs below it."""
    seen: list[Request] = []

    def worker(request: Request) -> Line:
        seen.append(request)
        return say("ok")

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map("worker", ["a", "b"])
        return " ".join(statuses(found))

    agent = Agent(
        "program",
        program=work,
        subagents=[WORKER],
        model=ScriptedModel({"worker": worker}, name="own"),
        settings={"temperature": 0.5},
        limits=Limits(requests=1, turns=3),
    )
    played = await play(agent, None)
    assert played.outcome.text == "completed budget"
    assert seen[0].settings == {"temperature": 0.5}
    assert played.started[0].limits.turns == 3
    assert played.outcome.children[0].model == "own"


# --- Rule 18: what a program has not ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [tool_of(lambda ctx: asyncio.sleep(0, ctx))]}, "tools cannot be set"),
        ({"instructions": "Be brief."}, "instructions cannot be set"),
        ({"adhoc": True}, "adhoc cannot be set"),
        ({"summary": "always"}, "summary cannot be set"),
    ],
)
def test_what_a_program_cannot_have_is_an_error(options: dict[str, Any], words: str) -> None:
    """Rule 18: tools, instructions, adhoc and summary are for models: an error when the agent is made."""
    with pytest.raises(UsageError, match=words):
        Agent("program", program=hello, **options)


@pytest.mark.parametrize(
    "program", [3, lambda ctx: "text", "hello", WORKER], ids=["3", "def", "text", "agent"]
)
def test_a_program_must_be_an_async_function(program: Any) -> None:
    """Rule 18: a plain function, or something else, is an error when the agent is made."""
    with pytest.raises(UsageError, match="async function"):
        Agent("program", program=program)


async def test_history_and_messages_are_refused() -> None:
    """Rule 18: a program has no conversation: `history=` is an error, and `send()` is refused."""
    earlier = (await run(WORKER, "go", model=script())).messages
    with pytest.raises(UsageError, match="history"):
        await run(program_of(hello), "go", history=earlier)

    async def work(ctx: ProgramContext) -> str:
        await asyncio.sleep(10)
        return "done"

    async with start(program_of(work), "go") as running:
        await asyncio.sleep(1)
        assert running.send("hello") is False
        outcome = await running.outcome()
    assert outcome.ok
    assert not outcome.warnings


async def test_a_program_may_be_any_async_callable() -> None:
    """Rule 18: a partial function, a method and an object with an async `__call__` are programs too."""

    class Reviewer:
        async def review(self, ctx: ProgramContext) -> int:
            return len(ctx.task)

        async def __call__(self, ctx: ProgramContext) -> int:
            return len(ctx.task)

    async def work(word: str, ctx: ProgramContext) -> str:
        return f"{word} {ctx.task}"

    partly = Agent("a", program=functools.partial(work, "partly"))
    assert (await run(partly, "go")).text == "partly go"
    for program in (Reviewer().review, Reviewer()):
        assert (await run(Agent("b", program=program), "go")).output == 2


async def needs_decimal(ctx: ProgramContext, more: Decimal | None = None) -> int:
    return len(ctx.task)


async def test_only_the_return_annotation_has_to_be_resolved() -> None:
    """Rule 17: a parameter whose type is imported for type checkers only does not matter."""
    assert (await run(Agent("program", program=needs_decimal), "go")).output == 2


# --- Rule 16: time ----------------------------------------------------------------------------------------


async def test_at_its_soft_deadline_a_program_goes_on_and_starts_nothing_new() -> None:
    """Rule 16: at the soft deadline nothing of a program is cancelled and new children are rejected; it wraps up by itself."""

    async def work(ctx: ProgramContext) -> str:
        await asyncio.sleep(92)
        found = await ctx.delegate(WORKER, "late")
        await asyncio.sleep(5)
        return f"{statuses([found])} {ctx.left.seconds} {now()}"

    played = await play(program_of(work), script(), Limits(seconds=100))
    assert played.outcome.text == "['budget'] 0.0 97"
    assert played.outcome.ok


async def test_children_end_before_their_program_has_to() -> None:
    """Rule 16: a child's deadline is its program's soft deadline less a margin, so the program reads what the child has."""

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.delegate(WORKER, "go")
        return f"{statuses([found])} {now()}"

    played = await play(program_of(work), script(after(LONG)), Limits(seconds=100))
    # Its own soft deadline is a tenth before that: it had no reply, so it has nothing to wrap up.
    assert played.outcome.text == "['timed_out'] 80.1"


async def test_at_its_hard_deadline_a_program_is_cancelled() -> None:
    """Rule 16: the hard deadline stops the program; what it returns then is its partial result."""

    async def work(ctx: ProgramContext) -> str:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            return f"what I have at {now()}, {ctx.cancelled}"
        return "never"

    played = await play(program_of(work), None, Limits(seconds=100))
    assert (played.outcome.status, played.outcome.text) == ("timed_out", "")
    assert played.outcome.partial == "what I have at 100, True"


@pytest.mark.real_time
async def test_a_program_that_spun_past_its_deadline_is_not_completed() -> None:
    """Rule 16: the clock is looked at when a program returns: one that never awaited is `timed_out`."""

    async def work(ctx: ProgramContext) -> str:
        time.sleep(0.15)  # noqa: ASYNC251 - code that never awaits
        return "too late"

    outcome = await run(program_of(work), "go", limits=Limits(seconds=0.1))
    assert (outcome.status, outcome.partial) == ("timed_out", "too late")


@pytest.mark.real_time
async def test_a_program_that_spun_into_its_last_tenth_is_completed() -> None:
    """Rule 16: the last tenth of its time is the program's own."""

    async def work(ctx: ProgramContext) -> str:
        time.sleep(0.46)  # noqa: ASYNC251 - as above
        return "in time"

    assert (await run(program_of(work), "go", limits=Limits(seconds=0.5))).ok


async def test_a_program_that_ignores_its_end_is_left_behind() -> None:
    """Rule 16: a program that swallows every cancel is abandoned after its grace period, and the tree ends."""

    async def work(ctx: ProgramContext) -> str:
        while True:
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                continue

    played = await play(program_of(work), None, Limits(seconds=100))
    assert played.outcome.status == "timed_out"
    assert played.outcome.duration_s == pytest.approx(105)
    assert "program program could not be stopped" in played.outcome.warnings[0]


# --- Rule 17: how programs end ---------------------------------------------------------------------------------


async def test_a_program_that_raises_has_failed() -> None:
    """Rule 17: what a program raises is its run's error in words; its children keep their outcomes."""

    async def work(ctx: ProgramContext) -> str:
        await ctx.delegate(WORKER, "go")
        raise ValueError("no such part")

    played = await play(program_of(work), script())
    assert played.outcome.status == "failed"
    assert played.outcome.reason == "the program raised ValueError: no such part"
    assert played.outcome.children[0].ok


@pytest.mark.parametrize("value", [None, "", "  \n"])
async def test_a_program_that_returns_nothing_is_incomplete(value: str | None) -> None:
    """Rule 17: None and empty text are `incomplete`, for the reason `empty`."""

    async def work(ctx: ProgramContext) -> str | None:
        return value

    outcome = await run(program_of(work), "go")
    assert (outcome.status, outcome.reason, outcome.text) == ("incomplete", "empty", "")


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt", "cancelled"])
async def test_a_program_cannot_end_the_process(how: str) -> None:
    """Rule 17: a program that exits or cancels itself has failed, and its parent goes on."""

    async def work(ctx: ProgramContext) -> str:
        if how == "cancelled":
            raise asyncio.CancelledError
        raise SystemExit(3)

    async def lead(ctx: ProgramContext) -> str:
        found = await ctx.delegate(program_of(work, name="below"), "go")
        return statuses([found])[0]

    assert (await run(program_of(lead), "go")).text == "failed"


async def test_a_stopped_program_keeps_what_it_returned_as_its_partial() -> None:
    """Rule 17: cancelled while it waits for children, a program may return what it has; that is its `partial`."""

    async def work(ctx: ProgramContext) -> str:
        done: list[str] = []
        try:
            for n in range(10):
                found = await ctx.delegate(WORKER, f"{n}")
                done.append(found.text)
        except asyncio.CancelledError:
            return f"{len(done)} parts"
        return "all"

    async with start(program_of(work), "go", model=script(after(10))) as running:
        await asyncio.sleep(35)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert (outcome.status, outcome.text, outcome.partial) == ("cancelled", "", "3 parts")
    assert [one.status for one in outcome.children] == ["completed"] * 3 + ["cancelled"]


async def test_a_program_stopped_with_its_parent_says_so() -> None:
    """Rule 17: a program below a cancelled run is cancelled with it, at whatever depth, and nothing is left."""

    async def below(ctx: ProgramContext) -> str:
        await ctx.map(WORKER, ["a", "b", "c"])
        return "never"

    lead = [call("task", agent="program", prompt="go"), say("never")]
    agent = Agent("lead", subagents=[program_of(below)])
    async with start(agent, "go", model=script(after(LONG), lead)) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
        outcome = await running.outcome()
    program = outcome.children[0]
    assert program.reason.startswith("stopped with lead")
    assert [one.status for one in program.children] == ["cancelled"] * 3


class Report(BaseModel):
    title: str
    parts: list[int]


@dataclass
class Point:
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


async def typed(kind: object, value: object) -> Outcome:
    async def work(ctx: ProgramContext) -> Any:
        return value

    work.__annotations__["return"] = kind
    return await run(program_of(work), "go")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 0),
        (bool, False),
        (list[int], []),
        (Report, Report(title="t", parts=[1])),
        (list[Report], [Report(title="t", parts=[1])]),
        (Point, Point(1, 2)),
        (dict[str, int], {"a": 1}),
        (str | None, "hello"),
        (Literal["yes", "no"], "yes"),
        (Colour, Colour.RED),
        (date, date(2026, 1, 2)),
        (Path, Path("a/b")),
        (int | str, "some words"),
    ],
    ids=str,
)
async def test_the_output_of_a_program_has_its_return_type(kind: object, value: object) -> None:
    """Rule 17: `output` defaults to the return annotation, and the outcome has a value of that type."""
    outcome = await typed(kind, value)
    assert (outcome.status, outcome.output) == ("completed", value), outcome.reason


@pytest.mark.parametrize("kind", [str, object, Any, None])
async def test_a_program_without_a_type_has_text(kind: object) -> None:
    """Rule 17: a program that returns text, or does not say what, has no structured output."""
    outcome = await typed(kind, "words")
    assert (outcome.text, outcome.output) == ("words", None)


async def test_a_result_of_another_type_has_failed_without_another_try() -> None:
    """Rule 17: a result that does not fit its type is `failed`, and the program is not asked again."""
    runs = 0

    async def work(ctx: ProgramContext) -> Report:
        nonlocal runs
        runs += 1
        return {"title": 3}  # pyright: ignore[reportReturnType]

    outcome = await run(program_of(work), "go")
    assert (outcome.status, runs) == ("failed", 1)
    assert outcome.reason.startswith("the program's result failed validation")


async def test_output_overrides_the_annotation() -> None:
    """Rule 17: `output=` is the type, whatever the annotation says."""

    async def work(ctx: ProgramContext) -> dict[str, object]:
        return {"title": "t", "parts": [1]}

    outcome = await run(Agent("program", program=work, output=Report), "go")
    assert outcome.output == Report(title="t", parts=[1])


async def test_code_reads_the_typed_result_of_a_program() -> None:
    """Rule 17: a program below code gives its typed result to it."""

    async def below(ctx: ProgramContext) -> Report:
        return Report(title=ctx.task, parts=[])

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map(program_of(below, name="below"), ["a", "b"])
        return " ".join(one.output.title for one in found if isinstance(one, Outcome) and one.output)

    assert (await run(program_of(work), "go")).text == "a b"


async def test_a_program_reports_what_it_does() -> None:
    """A program's `emit` reaches the stream, and stops with the program."""

    async def work(ctx: ProgramContext) -> str:
        ctx.emit("half-way")
        return "done"

    played = await play(program_of(work), None)
    assert [(e.kind, getattr(e, "text", "")) for e in played.events][1] == ("call_progressed", "half-way")


async def test_cancelling_one_program_of_several_stops_only_that_one() -> None:
    """Rule 17: a person cancels one program of a map; the others and the parent go on."""

    async def below(ctx: ProgramContext) -> str:
        return (await ctx.delegate(WORKER, ctx.task)).text

    async def work(ctx: ProgramContext) -> str:
        return " ".join(statuses(await ctx.map(program_of(below, name="below"), ["a", "b", "c"])))

    async with start(program_of(work), "go", model=script(after(10))) as running:
        await asyncio.sleep(5)
        await running.cancel("this one", run="r1.2")
        outcome = await running.outcome()
    assert outcome.text == "completed cancelled completed"
