"""The trees whose journals are in `histories/`: one function each, which runs a tree in virtual time in a given store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parts import Decision, JsonObject, Line, MemoryStore

from remit import (
    Agent,
    ApprovalRequest,
    AssistantMessage,
    Limits,
    Request,
    Usage,
    allow,
    deny,
    resume,
    run,
    start,
    tool,
)
from remit.events import CallStarted, Event, TurnStarted
from remit.testing import ScriptedModel, call, calls, fail, say, wrapped


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks for a second."""
    await asyncio.sleep(1)
    return f"saw {what}"


@tool
async def change(what: str) -> str:
    """Changes something for two seconds."""
    await asyncio.sleep(2)
    return f"changed {what}"


def by_turn(*steps: Line, wrap: str = "in short") -> Callable[[Request], Line]:
    def play(request: Request) -> Line:
        if request.tool_choice == "none":
            return wrapped(wrap)
        return steps[sum(isinstance(m, AssistantMessage) for m in request.messages)]

    return play


LEAF = Agent("leaf", description="Looks.", instructions="Look.", tools=[look, change])
MID = Agent("mid", subagents=[LEAF], limits=Limits(turns=5))
LEAD = Agent("lead", nickname="the lead", subagents=[MID, LEAF], tools=[look, change])
TASK: JsonObject = {"agent": "leaf", "prompt": "a part"}


def three_levels() -> ScriptedModel:
    both = calls(
        call("task", agent="mid", prompt="the left half", description="left"),
        call("look", what="around"),
        call("task", agent="mid", prompt="the right half"),
    )
    return ScriptedModel(
        {
            "lead": by_turn(both, call("change", what="the end"), say("all done")),
            "mid": by_turn(call("task", TASK), say("half done")),
            "leaf": by_turn(
                calls(call("look", what="a"), call("change", what="b")), say("leaf done", delay=1)
            ),
        }
    )


async def plain(store: MemoryStore) -> None:
    model = ScriptedModel([call("look", what="a", said="I look."), say("done", thinking="hm")])
    await run(LEAF, "go", model=model, store=store)


async def levels(store: MemoryStore) -> None:
    await run(LEAD, "go", model=three_levels(), store=store, policy=["allow *"])


async def approvals(store: MemoryStore) -> None:
    answers = [allow(), deny("not this one"), allow(scope="run"), allow(scope="tree")]

    async def person(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(60)
        return answers.pop(0) if answers else deny("never asked")

    steps = [call("change", what=w) for w in "abcde"]
    model = ScriptedModel(
        {
            "lead": by_turn(steps[0], steps[1], call("task", TASK), *steps[:2], say("done")),
            "leaf": by_turn(*steps[2:4], say("ok")),
        }
    )
    await run(LEAD, "go", model=model, store=store, approver=person)


async def waiting(store: MemoryStore) -> None:
    """Dies with an approval, a model call and an observing call open."""
    both = calls(call("change", what="a"), call("task", TASK), call("look", what="b"))
    model = ScriptedModel({"lead": by_turn(both), "leaf": by_turn(say("never", delay=900))})

    async def nobody(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(100_000)
        return deny()

    async with start(LEAD, "go", model=model, store=store, approver=nobody) as running:
        await asyncio.sleep(0.5)
        last = len([event async for event in store.read("r1")])
        await running.cancel()
    await cut(store, last)


async def limits(store: MemoryStore) -> None:
    usage = Usage(1, 400, 100, usd=0.001)
    leaf = by_turn(*[call("look", what=str(n)) for n in range(9)], wrap="three of nine")
    model = ScriptedModel(
        {
            "lead": by_turn(
                call("task", TASK, usage=usage), fail("busy", "overloaded", retry_after=2), say("never")
            ),
            "leaf": leaf,
        }
    )
    lead = Agent("lead", subagents=[Agent("leaf", tools=[look], limits=Limits(turns=3))], tools=[look])
    await run(lead, "go", model=model, store=store, limits=Limits(requests=7, result_chars=100))


async def cancelled(store: MemoryStore) -> None:
    async with start(LEAD, "go", model=three_levels(), store=store, policy=["allow *"]) as running:
        await asyncio.sleep(1.5)
        running.send("look twice", run="r1.2")
        await running.cancel("wrong half", run="r1.1")
        await asyncio.sleep(0.2)
        await running.cancel("enough")


async def crashed(store: MemoryStore) -> None:
    """Dies with a changing call open, and again with a model call open; then ends."""
    await run(LEAD, "go", model=three_levels(), store=store, policy=["allow *"])
    events = store._trees["r1"].events
    for kind, runs in ((CallStarted, "r1.1.1"), (TurnStarted, "r1.2.1")):
        last = max(n for n, e in enumerate(events) if isinstance(e, kind) and e.run == runs)
        await cut(store, last + 1)
        await asyncio.sleep(3600)
        events = store._trees["r1"].events
        await resume(store, "r1", agent=LEAD, model=three_levels(), policy=["allow *"])


async def ended_and_resumed(store: MemoryStore) -> None:
    """Met its turn limit, was resumed with more turns, and then cancelled and resumed."""
    agent = Agent("lead", tools=[look])

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(*[call("look", what=w) for w in "abc"], say("done"), wrap="so far"))

    await run(agent, "go", model=model(), store=store, limits=Limits(turns=2))
    await asyncio.sleep(100)
    await resume(store, "r1", agent=agent, model=model())
    await resume(store, "r1", agent=agent, model=model(), limits=Limits(turns=4))


async def artifacts(store: MemoryStore) -> None:
    writer = Agent("writer", tools=[look], summary="always")
    lead = Agent("lead", subagents=[writer, LEAF])
    model = ScriptedModel(
        {
            "lead": by_turn(
                calls(call("task", agent="writer", prompt="write"), call("task", TASK)),
                call("read_artifact", artifact="r1.1/answer", start=1190),
                say("done"),
            ),
            "writer": by_turn(say("word " * 240), wrap="many words"),
            "leaf": by_turn(say("long " * 60)),
        }
    )
    await run(lead, "go", model=model, store=store, limits=Limits(result_chars=200))


async def ad_hoc(store: MemoryStore) -> None:
    lead = Agent("lead", tools=[look, change], adhoc=True)
    below = call("subagent", label="deep", task_prompt="deeper", allowed_tools=["look"], max_turns=4)

    def worker(request: Request) -> Line:
        if request.messages[0].text == "deeper":
            return by_turn(call("look", what="it"), say("deep answer"), wrap="deep summary")(request)
        return by_turn(below, say("wide answer"), wrap="wide summary")(request)

    first = call("subagent", label="wide", task_prompt="wider")
    await run(
        lead,
        "go",
        model=ScriptedModel({"lead": by_turn(first, say("done")), "subagent": worker}),
        store=store,
    )


async def overrun(store: MemoryStore) -> None:
    much = Usage(1, 50, 9000)
    model = ScriptedModel(
        {
            "lead": by_turn(call("task", TASK), say("done")),
            "leaf": by_turn(call("look", what="a", usage=much), say("never")),
        }
    )
    await run(LEAD, "go", model=model, store=store, limits=Limits(tokens=25_000))


async def cut(store: MemoryStore, after: int) -> None:
    """Let what was recorded after so many events not have happened."""
    store._trees["r1"].events = store._trees["r1"].events[:after]


RECORDERS: dict[str, Callable[[MemoryStore], Awaitable[None]]] = {
    "plain": plain,
    "three_levels": levels,
    "approvals": approvals,
    "died_waiting": waiting,
    "limits": limits,
    "cancelled": cancelled,
    "crashed_and_resumed_twice": crashed,
    "ended_and_resumed": ended_and_resumed,
    "artifacts": artifacts,
    "ad_hoc": ad_hoc,
    "overrun": overrun,
}


async def record(name: str) -> list[Event]:
    store = MemoryStore()
    await RECORDERS[name](store)
    return [event async for event in store.read("r1")]
