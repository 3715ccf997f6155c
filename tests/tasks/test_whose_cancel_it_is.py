"""Tasks cancelled early, late or by other code; replies and tools that change during a run."""

from __future__ import annotations

import asyncio
import copy
import signal
import sys
from collections.abc import Callable

import pytest

from remit import (
    Agent,
    Call,
    Limits,
    Reply,
    Request,
    Running,
    Status,
    Tool,
    ToolContext,
    Usage,
    allow,
    run,
    run_sync,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.tool import Tier
from remit.types.event_json import decode, encode
from remit.types.messages import ToolMessage

pytestmark = pytest.mark.real_time


class Sleeper:
    """A model that waits and counts its calls in flight."""

    name = "sleeper"

    def __init__(self) -> None:
        self.in_flight = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        self.in_flight += 1
        try:
            await asyncio.sleep(30)
        finally:
            self.in_flight -= 1
        return Reply("late")


def others() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def cancel_all(but: asyncio.Task[object] | None) -> None:
    for task in asyncio.all_tasks():
        if task is not but:
            task.cancel()


async def test_everything_cancelled_when_a_tree_first_waits() -> None:
    """Law 4: a tree cancelled before the first step of its task has stopped when `run` returns."""
    model = Sleeper()
    running = asyncio.ensure_future(run(Agent("lead"), "go", model=model))
    # In the iteration after the tree starts, before the first step of its task.
    asyncio.get_running_loop().call_soon(cancel_all, asyncio.current_task())
    with pytest.raises(asyncio.CancelledError):
        await running
    assert model.in_flight == 0
    await asyncio.sleep(0)
    assert others() == []


async def test_a_started_tree_cancelled_before_its_first_step() -> None:
    """The tree still has an outcome, and its readers see the end."""
    async with start(Agent("lead"), "go", model=Sleeper()) as running:
        cancel_all(asyncio.current_task())
        seen = [event.kind async for event in running.events()]
        outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert seen[-1] == "run_ended"
    await asyncio.sleep(0)
    assert others() == []


async def test_a_cancel_while_a_tree_closes_does_not_stop_the_closing() -> None:
    """Laws 4 and 9: readers see the end, the journal is released, and nothing of the tree runs."""
    store, me = MemoryStore(), asyncio.current_task()

    @tool(tier="observe")
    async def shut_down() -> str:
        """Cancels all other tasks, as many programs do when they end."""
        for task in asyncio.all_tasks() - {asyncio.current_task(), me, reader}:
            task.cancel()
        return "done"

    async def read(running: Running) -> list[str]:
        return [event.kind async for event in running.events()]

    agent, model = Agent("lead", tools=[shut_down]), ScriptedModel([call("shut_down"), say("over")])
    async with start(agent, "go", model=model, store=store) as running:
        reader = asyncio.get_running_loop().create_task(read(running))
        await asyncio.wait({reader}, timeout=10)
    assert reader.done()
    assert reader.result()[-1] == "run_ended"
    await asyncio.sleep(0)
    assert others() == []
    # Raises if the tree is still claimed.
    await store.claim(running.run_id, new=False)


def tools_of(*functions: Callable[..., object]) -> list[object]:
    return [tool(tier="observe")(f) for f in functions]


async def test_cancelling_a_call_that_has_ended_has_no_effect() -> None:
    """Cancelling the task of an ended call cancels neither the next call nor the model."""
    lent: list[asyncio.Task[object] | None] = []

    async def quick() -> str:
        lent.append(asyncio.current_task())
        return "quick"

    async def kill() -> str:
        assert lent[0] is not None
        lent[0].cancel()
        await asyncio.sleep(0.01)
        return "killed"

    class Waits(ScriptedModel):
        async def reply(self, request: Request, emit: object) -> Reply:
            await asyncio.sleep(0.001)
            return await super().reply(request, emit)  # pyright: ignore[reportArgumentType]

    model = Waits([call("quick"), call("kill"), call("quick"), say("done")])
    outcome = await run(Agent("lead", tools=tools_of(quick, kill)), "go", model=model)  # pyright: ignore[reportArgumentType]
    assert outcome.ok, outcome.reason
    assert [entry.success for entry in outcome.calls] == [True, True, True]


async def test_cancelling_the_previous_call_does_not_cancel_this_one() -> None:
    """A search that cancels its predecessor's task does not cancel itself."""
    last: list[asyncio.Task[object] | None] = []

    async def search(what: str) -> str:
        if last and last[0] is not None:
            last[0].cancel()
        last[:] = [asyncio.current_task()]
        await asyncio.sleep(0.001)
        return f"found {what}"

    model = ScriptedModel([call("search", what="a"), call("search", what="b"), say("done")])
    outcome = await run(Agent("lead", tools=tools_of(search)), "go", model=model)  # pyright: ignore[reportArgumentType]
    assert [entry.success for entry in outcome.calls] == [True, True]


async def test_a_call_can_cancel_another_that_has_just_started() -> None:
    """Also right after its first step; a cancel that is taken back does not affect timeouts."""
    began: list[asyncio.Task[object] | None] = []

    async def slow() -> str:
        began.append(asyncio.current_task())
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    async def other() -> str:
        assert began[0] is not None
        began[0].cancel()
        return "done"

    async def forgives() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)
        except TimeoutError:
            return "timed out"
        except asyncio.CancelledError:
            # Before 3.13, asyncio raises even a cancel that was taken back.
            return "timed out" if sys.version_info < (3, 13) else "cancelled"
        return "not timed out"

    model = ScriptedModel([calls(call("slow"), call("other"), call("forgives")), say("done")])
    outcome = await run(Agent("lead", tools=tools_of(slow, other, forgives)), "go", model=model)  # pyright: ignore[reportArgumentType]
    results = [message.content for message in outcome.messages if isinstance(message, ToolMessage)]
    assert results == ["cancelled", "done", "timed out"]


class Bomb:
    """Raises when compared."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
async def test_an_unreadable_reply_is_paid_for(error: BaseException) -> None:
    """Law 8: the reservation of an unreadable reply is settled, so the next call has room; the run fails because of its model."""

    class Hostile:
        name = "hostile"

        def __init__(self) -> None:
            self.asked = 0

        async def reply(self, request: Request, emit: object) -> Reply:
            self.asked += 1
            if request.agent == "kid":
                return Reply("x", stop=Bomb(error), usage=Usage(1, 10, 5))  # pyright: ignore[reportArgumentType]
            if self.asked < 6:
                return Reply(calls=(Call("c", "task", {"agent": "kid", "prompt": "go"}),), stop="calls")
            return Reply("done")

    lead = Agent("lead", subagents=[Agent("kid")])
    limits = Limits(tokens=20_000, seconds=20)
    outcome = await asyncio.wait_for(run(lead, "go", model=Hostile(), limits=limits), 30)
    assert outcome.ok, outcome.reason
    assert [child.usage.requests for child in outcome.children] == [1] * len(outcome.children)
    assert all("cannot be read" in child.reason for child in outcome.children)


async def test_raising_the_tier_of_a_tool_requires_approval() -> None:
    """A tool whose tier is raised after use requires approval, and so does a copy of it."""

    @tool(tier="observe")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    async def said(one: object) -> str:
        model = ScriptedModel([call("wipe"), say("done")])
        outcome = await run(Agent("lead", tools=[one]), "go", model=model)  # pyright: ignore[reportArgumentType]
        return str(outcome.messages[2])

    assert "wiped" in await said(wipe)
    stricter = copy.copy(wipe)
    stricter.tier = Tier.CONFIRM
    assert "Denied" in await said(stricter)
    wipe.tier = "confirm"  # pyright: ignore[reportAttributeAccessIssue]
    assert "Denied" in await said(wipe)


class Plainly(Tool):
    """A tool that defines its own `__getstate__`."""

    def __getstate__(self) -> dict[str, object]:
        return dict(self.__dict__)


class Loudly(Tool):
    """A wrapper that changes the results of another tool."""

    def __init__(self, inner: Tool) -> None:
        self.__dict__["inner"] = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["inner"], name)

    def invoke(self, kwargs: dict[str, object], ctx: ToolContext) -> object:
        async def loudly() -> str:
            return str(await self.__dict__["inner"].invoke(kwargs, ctx)).upper()

        return loudly()


@pytest.mark.parametrize(
    ("made_of", "says"), [(copy.copy, "wiped"), (Loudly, "WIPED")], ids=["a copy", "a wrapper"]
)
async def test_a_tool_made_without_its_constructor(made_of: Callable[[Tool], Tool], says: str) -> None:
    """Values cached for a tool are its own, even if its attributes were never set."""

    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    def model() -> ScriptedModel:
        return ScriptedModel([call("wipe"), say("done")])

    first = Plainly(wipe, tier="observe")
    await run(Agent("lead", tools=[first]), "go", model=model())
    outcome = await run(Agent("lead", tools=[made_of(first)]), "go", model=model())
    assert outcome.ok, outcome.reason
    assert says in str(outcome.messages[2])


@pytest.mark.parametrize("tier", ["observe", "confirm"])
@pytest.mark.parametrize("said", [None, 5, ["a"], "half \ud800", "a\nb", ValueError("no words")], ids=ascii)
async def test_a_broken_description_of_a_call_ends_no_run(said: object, tier: str) -> None:
    """Law 5: a tool's methods that raise or return no text end no run and leave no unreadable event."""

    class Odd(Tool):
        def describe(self, args: object) -> str:
            if isinstance(said, Exception):
                raise said
            return said  # pyright: ignore[reportReturnType] - that is the point

        summarise = describe  # pyright: ignore[reportAssignmentType] - as above

    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    async def yes(_: object) -> object:
        return allow()

    lead = Agent("lead", tools=[Odd(wipe, tier=tier)])
    model = ScriptedModel([call("wipe"), say("done")])
    async with start(lead, "go", model=model, approver=yes) as running:  # pyright: ignore[reportArgumentType]
        events = [event async for event in running.events()]
        outcome = await running.outcome()
    assert outcome.ok, outcome.reason
    assert "wiped" in str(outcome.messages[2])
    assert [decode(encode(event)) for event in events] == events


def test_signals_wake_the_loop_of_run_sync() -> None:
    """Law 4: a Ctrl-C just before the loop goes to sleep is handled at once, not when the loop next wakes up."""
    seen: list[int] = []

    @tool(tier="observe")
    async def look() -> str:
        """The current wakeup descriptor of signals."""
        seen.append(signal.set_wakeup_fd(-1))
        signal.set_wakeup_fd(seen[0])
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.sleep(0.01)
        return "looked"

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        outcome = run_sync(
            Agent("lead", tools=[look]), "go", model=ScriptedModel([call("look"), say("done")])
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert outcome.ok
    assert seen[0] != -1
    assert signal.set_wakeup_fd(-1) == -1, "the wakeup descriptor was not restored"
