"""Stopping code that ignores cancels, and cancels that come from the caller's code."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path

import anyio
import pytest

import remit
from remit import (
    Agent,
    Event,
    Limits,
    Outcome,
    Reply,
    Request,
    Running,
    Status,
    Tool,
    ToolContext,
    run,
    start,
    tool,
)
from remit.tasks.guest import MOST_ABANDONED
from remit.testing import ScriptedModel, VirtualTimeLoop, call, calls, fixed_ids, say, wait, wrapped
from remit.types.events import CallStarted, CancelRequested, RunEnded, TurnStarted
from remit.types.ports import Emit

LONG = 10_000.0
FREE = Limits(seconds=None, call_seconds=None, stall_seconds=None)


def alive() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def begun(running: Running, kind: type[Event] = CallStarted) -> None:
    async for event in running.events():
        if isinstance(event, kind):
            await asyncio.sleep(0.5)
            return


async def cancelled(agent: Agent, model: remit.Model, kind: type[Event] = CallStarted) -> Outcome:
    """Start a run, cancel it in the middle of its first call or turn, and check that nothing is alive."""
    async with start(agent, "go", model=model, limits=FREE) as running:
        await begun(running, kind)
        await running.cancel("enough")
        assert alive() == []
        outcome = await running.outcome()
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "cancelled by the caller: enough")
    return outcome


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """Unset during the test and set afterwards, so that no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


def stuck_tool(gate: threading.Event) -> Tool:
    @tool(tier="observe")
    def stuck(n: int = 0) -> str:
        """Never returns."""
        gate.wait()
        return "late"

    return stuck


def in_impatient_time(main: Callable[[], Coroutine[object, object, None]]) -> None:
    """Virtual time with a short wait for threads, for tests whose threads never return."""
    with (
        fixed_ids(),
        asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(timeout_s=30, grace_s=0.02)) as runner,
    ):
        runner.run(main())


async def test_a_thread_that_checks_cancelled_ends_by_itself() -> None:
    """`ctx.cancelled` becomes true in a tool's thread, and a tool that checks it is not abandoned."""
    ended = threading.Event()

    @tool(tier="observe")
    def patient(ctx: ToolContext) -> str:
        """Waits for a stop."""
        while not ctx.cancelled:
            ended.wait(0.005)
        ended.set()
        return "stopped"

    outcome = await cancelled(Agent("lead", tools=[patient]), ScriptedModel([call("patient")]))
    assert ended.is_set()
    assert outcome.warnings == ()


def test_a_thread_that_never_ends_is_abandoned(gate: threading.Event) -> None:
    """Law 4: a thread that cannot be stopped is abandoned after the grace period and named in the warnings."""
    stuck = stuck_tool(gate)

    async def main() -> None:
        outcome = await cancelled(Agent("lead", tools=[stuck]), ScriptedModel([call("stuck")]))
        (warning,) = outcome.warnings
        assert "tool stuck" in warning
        assert outcome.failed_tool == "stuck"

    in_impatient_time(main)


def test_a_stuck_thread_of_a_child_delays_no_other_run(gate: threading.Event) -> None:
    """Laws 4 and 5: during the grace period of a stuck child, its siblings continue, and its parent continues afterwards."""
    stuck = stuck_tool(gate)
    both = calls(call("task", agent="bad", prompt="x"), call("task", agent="good", prompt="y"))
    scripts = {"lead": [both, say("done")], "bad": [call("stuck")], "good": [say("fine", delay=2)]}
    lead = Agent("lead", subagents=[Agent("bad", tools=[stuck]), Agent("good")])

    async def main() -> None:
        async with start(lead, "go", model=ScriptedModel(scripts), limits=FREE) as running:
            await begun(running)
            await running.cancel("hung", run=f"{running.run_id}.1")
            events = [e async for e in running.events()]
            outcome = await running.outcome()
        assert [e.agent for e in events if isinstance(e, RunEnded)] == ["good", "bad", "lead"]
        assert outcome.text == "done"
        bad = next(c for c in outcome.children if c.agent == "bad")
        assert "tool stuck" in bad.warnings[0]

    in_impatient_time(main)


class Stubborn:
    """Waits for ever and swallows an exception a given number of times."""

    def __init__(self, swallowed: type[BaseException], times: float) -> None:
        self.swallowed = swallowed
        self.times = times
        self.in_flight = 0

    async def wait(self) -> None:
        self.in_flight += 1
        try:
            while True:
                # In one frame: closing a coroutine first closes the coroutine that it awaits, separately.
                try:
                    await asyncio.sleep(LONG)
                except self.swallowed:
                    self.times -= 1
                    if self.times < 0:
                        raise
        finally:
            self.in_flight -= 1


def stubborn_agent(will: Stubborn) -> tuple[Agent, ScriptedModel]:
    @tool(tier="observe")
    async def stay() -> str:
        """Swallows cancels."""
        await will.wait()
        return "stayed"

    return Agent("lead", tools=[stay]), ScriptedModel([call("stay", said="had this")])


@pytest.mark.parametrize("times", [1, 5])
async def test_a_tool_that_swallows_a_cancel_is_cancelled_again(times: int) -> None:
    """A tool that swallows one cancel is cancelled again, ends within the grace period and is not abandoned."""
    will = Stubborn(asyncio.CancelledError, times)
    outcome = await cancelled(*stubborn_agent(will))
    assert will.in_flight == 0
    assert outcome.warnings == ()


async def test_a_tool_that_swallows_every_cancel_is_closed() -> None:
    """Law 4: a tool that swallows every cancel is closed after the grace period, its result dropped, and its name in the warnings."""
    will = Stubborn(asyncio.CancelledError, float("inf"))
    outcome = await cancelled(*stubborn_agent(will))
    assert will.in_flight == 0
    assert len(outcome.warnings) == 1
    assert "tool stay" in outcome.warnings[0]
    assert outcome.partial == "had this"


async def test_a_tool_that_cannot_be_closed_is_abandoned() -> None:
    """Law 4: a tool that cannot be closed delays no other code and is named in the warnings."""
    will = Stubborn(BaseException, float("inf"))
    outcome = await cancelled(*stubborn_agent(will))
    assert len(outcome.warnings) == 1
    assert "tool stay" in outcome.warnings[0]
    assert outcome.partial == "had this"


@pytest.mark.parametrize("swallowed", [asyncio.CancelledError, BaseException])
async def test_a_model_that_swallows_every_cancel_is_abandoned(swallowed: type[BaseException]) -> None:
    """Law 4: a model that ignores every cancel is abandoned like a tool, and its call is still paid for."""
    will = Stubborn(swallowed, float("inf"))

    class Model:
        name = "stubborn"

        async def reply(self, request: Request, emit: Emit) -> Reply:
            await will.wait()
            return Reply("late")

    outcome = await cancelled(Agent("lead"), Model(), TurnStarted)
    assert "model stubborn" in outcome.warnings[0]
    assert outcome.usage.requests == 1
    assert outcome.usage.estimated


async def test_a_model_that_never_waits_can_be_cancelled() -> None:
    """The stop flag is checked after every await, so a model and tools that never yield are stopped too."""

    @tool(tier="observe")
    async def stop(n: int, ctx: ToolContext) -> str:
        """Cancels the run the third time."""
        if n == 3:
            assert isinstance(ctx.deps, list)
            await ctx.deps[0].cancel("three is enough")
        return "more"

    class Model:
        name = "eager"
        sent = 0

        async def reply(self, request: Request, emit: Emit) -> Reply:
            self.sent += 1
            return Reply(calls=(remit.Call(f"c{self.sent}", "stop", {"n": self.sent}),), stop="calls")

    model, handle = Model(), list[Running]()
    async with start(Agent("lead", tools=[stop]), "go", model=model, limits=FREE, deps=handle) as running:
        handle.append(running)
        outcome = await running.outcome()
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "cancelled by the caller: three is enough")
    assert model.sent == 3


async def test_a_tool_that_cancels_itself_is_a_failed_call() -> None:
    """Law 5: a CancelledError that remit did not cause is the tool's failure, not the end of the run."""

    @tool(tier="observe")
    async def confused() -> str:
        """Raises CancelledError itself."""
        raise asyncio.CancelledError

    model = ScriptedModel([call("confused"), say("went on")])
    outcome = await run(Agent("lead", tools=[confused]), "go", model=model)
    assert outcome.text == "went on"
    assert [c.success for c in outcome.calls] == [False]


async def test_a_model_that_cancels_itself_is_a_failed_run() -> None:
    """Law 5: a CancelledError from a model fails its run; the parent reads that and continues."""

    class Model:
        name = "confused"

        async def reply(self, request: Request, emit: Emit) -> Reply:
            raise asyncio.CancelledError

    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x"), say("went on")]})
    lead = Agent("lead", subagents=[Agent("kid", model=Model())])
    outcome = await run(lead, "go", model=model)
    assert outcome.text == "went on"
    assert [c.status for c in outcome.children] == [Status.FAILED]


def test_no_call_starts_with_too_many_abandoned_calls(gate: threading.Event) -> None:
    """Law 4: the number of abandoned calls is capped; above the cap no new call starts, and the model reads why."""
    stuck = stuck_tool(gate)

    @tool(tier="observe")
    async def more() -> str:
        """Would work."""
        return "worked"

    flood = calls(*(call("stuck", n=n) for n in range(MOST_ABANDONED)))
    model = ScriptedModel([flood, call("more"), say("done")])

    async def main() -> None:
        limits = Limits(seconds=None, call_seconds=1)
        outcome = await run(Agent("lead", tools=[stuck, more]), "go", model=model, limits=limits)
        assert outcome.text == "done"
        assert len(outcome.warnings) == MOST_ABANDONED
        assert outcome.calls[-1].name == "more"
        assert outcome.calls[-1].success is False

    in_impatient_time(main)


# --- The caller's own cancellation ---------------------------------------------------------------


def endless() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x")], "kid": [wait(LONG)]})
    return Agent("lead", subagents=[Agent("kid")]), model


async def test_a_cancelled_caller_is_cancelled_after_everything_stopped() -> None:
    """`run` passes the caller's cancellation on when nothing below it runs any more."""
    lead, model = endless()
    caller = asyncio.create_task(run(lead, "go", model=model, limits=FREE))
    await asyncio.sleep(1)
    assert model.in_flight == 1
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert model.in_flight == 0
    assert alive() == []


async def test_a_caller_cancelled_repeatedly_still_waits_for_the_end() -> None:
    """Law 4: further cancels of the caller do not shorten the grace period of a stubborn tool."""
    will = Stubborn(asyncio.CancelledError, 3)
    lead, model = stubborn_agent(will)
    caller = asyncio.create_task(run(lead, "go", model=model, limits=FREE))
    await asyncio.sleep(1)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert will.in_flight == 0
    assert alive() == []


async def test_a_timeout_around_run_is_a_timeout() -> None:
    """`asyncio.timeout` around `run` raises TimeoutError after everything has stopped."""
    lead, model = endless()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await run(lead, "go", model=model, limits=FREE)
    assert model.in_flight == 0
    assert alive() == []


@pytest.mark.parametrize("seconds", [0.0, 3.0])
async def test_an_anyio_scope_around_run_ends_without_an_error(seconds: float) -> None:
    """`anyio.move_on_after` around `run` ends without an exception after everything has stopped."""
    lead, model = endless()
    with anyio.move_on_after(seconds) as scope:
        await run(lead, "go", model=model, limits=FREE)
    assert scope.cancelled_caught
    assert model.in_flight == 0
    assert alive() == []


async def test_an_anyio_scope_around_a_stubborn_tool_waits_for_its_grace() -> None:
    """Law 4: a scope that repeats its cancel in every iteration of the loop does not shorten the grace period."""
    lead, model = stubborn_agent(Stubborn(asyncio.CancelledError, float("inf")))
    with anyio.move_on_after(3) as scope:
        await run(lead, "go", model=model, limits=FREE)
    assert scope.cancelled_caught
    assert alive() == []


async def test_the_events_say_that_the_caller_left() -> None:
    """Law 4: the events of a tree whose caller was cancelled name the cause, and each run has an end."""
    lead, model = endless()
    seen: list[Event] = []
    with anyio.move_on_after(3):
        await run(lead, "go", model=model, limits=FREE, on_event=seen.append)
    (asked,) = (e for e in seen if isinstance(e, CancelRequested))
    assert (asked.run, asked.by) == ("r1", "the caller")
    ends = [e.outcome for e in seen if isinstance(e, RunEnded)]
    assert [(o.agent, o.status) for o in ends] == [("kid", "cancelled"), ("lead", "cancelled")]


async def test_a_tree_inside_a_tool_stops_with_the_tool() -> None:
    """Law 4: a tool that runs its own tree is stopped together with that tree."""
    inner_agent, inner = endless()

    @tool(tier="observe")
    async def nested() -> str:
        """Runs another tree."""
        return (await run(inner_agent, "go", model=inner, limits=FREE)).text

    async with start(
        Agent("outer", tools=[nested]), "go", model=ScriptedModel([call("nested")]), limits=FREE
    ) as running:
        await asyncio.sleep(1)
        assert inner.in_flight == 1
        await running.cancel("enough")
        assert inner.in_flight == 0
        assert alive() == []


async def test_a_stubborn_tool_leaves_time_for_the_wrap_up() -> None:
    """At a soft deadline, a tool that swallows every cancel is abandoned in time for the wrap-up."""
    will = Stubborn(asyncio.CancelledError, float("inf"))
    lead, _ = stubborn_agent(will)
    model = ScriptedModel([call("stay", said="had this"), wrapped("what I have")])
    outcome = await run(lead, "go", model=model, limits=Limits(seconds=10, call_seconds=None))
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "what I have")
    assert "tool stay" in outcome.warnings[0]


# --- The process -----------------------------------------------------------------------------------

PROGRAM = """
import asyncio, threading
from remit import Agent, Limits, run, tool
from remit.testing import ScriptedModel, VirtualTimeLoop, call

@tool(tier="observe")
def thread():
    threading.Event().wait()

@tool(tier="observe")
async def swallow():
    while True:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            pass

@tool(tier="observe")
async def swallow_all():
    while True:
        try:
            await asyncio.sleep(10_000)
        except BaseException:
            pass

async def main():
    agent = Agent("lead", tools=[{name}])
    outcome = await run(agent, "go", model=ScriptedModel([call("{name}")]), limits=Limits(seconds=60))
    print(outcome.status, len(outcome.warnings))

with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(timeout_s=30, grace_s=0.02)) as runner:
    runner.run(main())
print("closed")
"""


@pytest.mark.parametrize("name", ["thread", "swallow", "swallow_all"])
def test_the_process_exits_despite_abandoned_code(name: str) -> None:
    """Law 4: abandoned code blocks neither the event loop nor the process exit, and prints nothing."""
    source = Path(remit.__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("{name}", name)],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.split() == ["timed_out", "1", "closed"], ended.stderr
    assert ended.stderr == ""
    assert ended.returncode == 0


INTERRUPTED = """
from remit import Agent, Limits, run_sync
from remit.testing import ScriptedModel, call, wait
model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x")], "kid": [wait(10_000)]})
lead = Agent("lead", subagents=[Agent("kid")])
told = lambda event: event.agent == "kid" and event.kind == "turn_started" and print("ready", flush=True)
try:
    run_sync(lead, "go", model=model, limits=Limits(seconds=None), on_event=told)
except KeyboardInterrupt:
    print("interrupted", model.in_flight)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_ctrl_c_stops_the_tree_and_reaches_the_caller() -> None:
    """Ctrl-C during `run_sync` stops the tree and raises KeyboardInterrupt in the caller, without other output."""
    source = Path(remit.__file__).parents[1]
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env={"PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        try:
            out, err = program.communicate(timeout=60)
        finally:
            # Leaving the `with` block waits for the process without a limit.
            program.kill()
    assert (out, err, program.returncode) == ("interrupted 0\n", "", 0)
