"""Scripted trees that meet a limit, a failure or a stop."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from parts import Emit, Line
from staging import Stage, answering, by_task, by_turn, change, look, publish, stare

from remit import (
    Agent,
    ApprovalRequest,
    AssistantMessage,
    Call,
    Limits,
    ModelError,
    Price,
    Reply,
    Request,
    Running,
    Usage,
    allow,
    tool,
)
from remit.testing import ScriptedModel, call, calls, crash, fail, refuse, say, wait, wrapped

LEAF = Agent("leaf", tools=[look, change])
LEAD = Agent("lead", subagents=[LEAF], tools=[look, change])
TASK = call("task", agent="leaf", prompt="a part")


def endless(*names: str) -> list[Line]:
    return [call("look", what=name) for name in names]


async def retries_and_fallback(stage: Stage) -> None:
    """Failures in passing are tried again, the next model takes over, and one child fails for good."""
    busy, broken = fail("busy", "overloaded", retry_after=3), fail("no such key", "auth")
    first = ScriptedModel(
        {
            "lead": [fail("try later"), calls(TASK, TASK), broken],
            "leaf": by_turn(fail("cut off", "connection", usage=Usage(1, 40, 2))),
        },
        name="first",
    )
    second = ScriptedModel(
        {
            "lead": [say("Done by another.")],
            "leaf": by_task(a=lambda request: busy if request.run_id == "r1.1" else say("Second try.")),
        },
        name="second",
    )
    await stage.run(LEAD, model=[first, second])


class Narrow:
    """A provider that answers two requests at once and refuses the rest."""

    name = "narrow"

    def __init__(self) -> None:
        self.working = 0

    async def reply(self, request: Request, emit: Emit) -> Reply:
        del emit
        if self.working >= 2:
            raise ModelError("too many requests", kind="rate_limit", retry_after=2)
        self.working += 1
        await asyncio.sleep(1)
        self.working -= 1
        if request.agent == "lead" and len(request.messages) == 1:
            wide = [Call(f"c{n}", "task", {"agent": "leaf", "prompt": f"part {n}"}) for n in range(5)]
            return Reply(calls=tuple(wide), stop="calls", usage=Usage(1, 30, 20))
        return Reply(f"Done: {request.messages[0].text}", usage=Usage(1, 10, 5))


async def rate_limits(stage: Stage) -> None:
    """What the provider refuses for the rate slows the whole tree down."""
    await stage.run(LEAD, model=Narrow())


async def requests_used_up(stage: Stage) -> None:
    """Six children under `requests=6`: some end over budget, the rest are rejected, the parent has the last word."""
    wide = calls(*(call("task", agent="leaf", prompt=f"part {n}") for n in range(6)))
    leaf = by_turn(*endless(*"abcdefgh"), wrap="As far as I got.")
    model = ScriptedModel({"lead": by_turn(wide, say("What there is.")), "leaf": leaf})
    await stage.run(LEAD, model=model, limits=Limits(requests=6, concurrency=3))


async def tokens_used_up(stage: Stage) -> None:
    """Children use up the tokens; the parent's last word is a wrap-up whose results are cut to what was withheld."""
    leaf = Agent("leaf", tools=[look])
    lead = Agent("lead", subagents=[leaf], settings={"max_output_tokens": 700})
    some = Usage(1, 100, 500)
    model = ScriptedModel(
        {
            "lead": by_turn(calls(TASK, TASK), say("never"), wrap="A last word."),
            "leaf": by_turn(call("look", what="a", usage=some), say("long " * 500, usage=some), wrap="Cut."),
        }
    )
    await stage.run(lead, model=model, limits=Limits(tokens=3600))


async def money_and_overrun(stage: Stage) -> None:
    """Money is counted; a reply that used more than was reserved is paid for, told of, and closes the account."""
    model = ScriptedModel(
        {
            "lead": by_turn(calls(TASK), TASK, say("Dear."), wrap="Too dear."),
            "leaf": by_turn(
                call("look", what="a", usage=Usage(1, 50, 90_000, cache_read_tokens=20)),
                say("never"),
                wrap="It cost too much.",
            ),
        },
        price=Price(input=3.0, output=15.0),
    )
    await stage.run(LEAD, model=model, limits=Limits(usd=0.5))


async def few_turns(stage: Stage) -> None:
    """At the limit of turns each level is asked for what it has; one says nothing and one tries to call a tool."""
    leaf = Agent("leaf", tools=[look], limits=Limits(turns=2))
    mute = Agent("mute", tools=[look], limits=Limits(turns=1))
    stubborn = Agent("stubborn", tools=[look], limits=Limits(turns=1))
    lead = Agent("lead", subagents=[leaf, mute, stubborn])
    wide = calls(*(call("task", agent=name, prompt="look") for name in ("leaf", "mute", "stubborn")))
    model = ScriptedModel(
        {
            "lead": by_turn(wide, TASK, TASK, wrap="Three turns' worth."),
            "leaf": by_turn(*endless("a", "b", "c"), wrap="Saw a and b."),
            "mute": by_turn(*endless("a", "b"), wrap=say("")),
            "stubborn": by_turn(*endless("a", "b"), wrap=call("look", what="more", said="One more.")),
        }
    )
    await stage.run(lead, model=model, limits=Limits(turns=3))


async def little_time(stage: Stage) -> None:
    """Near their deadlines a child and its parent wrap up; a call in flight is stopped; one has no reply to wrap up."""
    slow = Agent("slow", tools=[stare])
    silent = Agent("silent")
    lead = Agent("lead", subagents=[slow, silent])
    wide = calls(
        call("task", agent="slow", prompt="stare"),
        call("task", agent="silent", prompt="think"),
    )
    model = ScriptedModel(
        {
            "lead": by_turn(wide, say("never", delay=900), wrap=wrapped("In time.", delay=2)),
            "slow": by_turn(call("stare", seconds=500), wrap=wrapped("Stared.", delay=1)),
            "silent": by_turn(say("never", delay=900)),
        }
    )
    await stage.run(lead, model=model, limits=Limits(seconds=100))


async def calls_used_up(stage: Stage) -> None:
    """Calls, delegations and requests run out one after another; what does not fit is refused."""
    lead = Agent("lead", subagents=[LEAF], tools=[look])
    model = ScriptedModel(
        {
            "lead": by_turn(
                calls(TASK, call("look", what="a"), call("look", what="b")), TASK, wrap="Wrapped up."
            ),
            "leaf": by_turn(*endless("c", "d", "e", "f"), wrap="Three calls."),
        }
    )
    await stage.run(lead, model=model, limits=Limits(calls=4, requests=5, delegations=1))


async def bad_endings(stage: Stage) -> None:
    """Children that refuse, say nothing, are cut off, stall, crash and fail; their parent goes on."""
    names = ("polite", "empty", "long", "halting", "staller", "buggy", "locked")
    lead = Agent("lead", subagents=[Agent(name, tools=[look]) for name in names])
    wide = calls(*(call("task", agent=name, prompt="do it") for name in names))
    halves = say("half an answer " * 3, chunks=2, delay=90)
    model = ScriptedModel(
        {
            "lead": by_turn(wide, say("None of them did.")),
            "polite": by_turn(refuse("I will not.")),
            "empty": by_turn(say(" \n")),
            "long": by_turn(say("so long that", stop="length")),
            "halting": by_turn(
                Reply("cut", (Call("h1", "look", {"what": "x"}),), stop="length", usage=Usage(1, 9, 9)),
                say("whole"),
            ),
            "staller": by_turn(halves),
            "buggy": by_turn(crash("off by one")),
            "locked": by_turn(fail("no key", "auth")),
        }
    )
    await stage.run(lead, model=model, limits=Limits(stall_seconds=30))


async def rejections(stage: Stage) -> None:
    """Delegations that never start: bad input, unknown names, depth, budget, and no place."""
    deep = Agent("deep", adhoc=True, subagents=[Agent("deeper")])
    lead = Agent("lead", subagents=[deep, LEAF], tools=[look], adhoc=True)
    wrong = calls(
        call("task", agent="deep"),
        call("task", agent="depe", prompt="x"),
        call("task", agent="deep", prompt=7),
        call("subagent", label="x", task_prompt="y", allowed_tools=["lok"]),
        call("subagent", label="x", task_prompt="y", allowed_tools=["task"]),
        call("subagent", label="", task_prompt="y", max_turns=99),
    )
    busy = calls(TASK, TASK, TASK)
    model = ScriptedModel(
        {
            "lead": by_turn(
                wrong, call("task", agent="deep", prompt="go deeper"), busy, TASK, TASK, say("Enough.")
            ),
            "deep": by_turn(
                calls(call("task", agent="deeper", prompt="x"), call("subagent", label="l", task_prompt="y")),
                say("Too deep."),
            ),
            "leaf": by_turn(say("Done.", delay=1)),
        }
    )
    most = Limits(depth=1, delegations=4, concurrency=2, when_full="reject")
    await stage.run(lead, model=model, limits=most)


async def cancelled_branch(stage: Stage) -> None:
    """One branch is cancelled with all below it, one while it waits for a place; the rest goes on."""
    mid = Agent("mid", subagents=[LEAF])
    lead = Agent("lead", subagents=[mid])
    wide = calls(*(call("task", agent="mid", prompt=side) for side in ("left", "right")))
    pair = calls(TASK, TASK)
    model = ScriptedModel(
        {
            "lead": by_turn(wide, say("Half of it.")),
            "mid": by_turn(pair, say("Done.")),
            "leaf": by_turn(call("look", what="a"), say("Seen.", delay=5)),
        }
    )

    async def drive(running: Running) -> None:
        await asyncio.sleep(2)
        await running.cancel("wrong half", run="r1.1")
        await running.cancel("again", run="r1.1")

    await stage.run(lead, model=model, drive=drive, limits=Limits(concurrency=3))


async def cancelled_root(stage: Stage) -> None:
    """The whole tree is cancelled while a person is asked, a model is asked, a tool runs and a child queues."""
    wide = calls(call("publish", page="x"), call("stare", seconds=50), *[TASK] * 3)
    lead = Agent("lead", subagents=[LEAF], tools=[publish, stare])
    model = ScriptedModel({"lead": by_turn(wide), "leaf": by_turn(say("never", delay=500, chunks=5))})

    async def drive(running: Running) -> None:
        await asyncio.sleep(150)
        running.send("too late")
        await running.cancel("changed my mind")

    approver = answering(allow(), after_s=1000)
    await stage.run(lead, model=model, approver=approver, drive=drive, limits=Limits(concurrency=2))


@tool(tier="observe")
async def cling(seconds: float) -> str:
    """Ignore every wish to stop."""
    for _ in range(int(seconds)):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue
    return "held on"


async def left_behind(stage: Stage) -> None:
    """A tool that cannot be stopped is left behind after its grace; the outcome names it."""
    agent = Agent("lead", tools=[cling, look])
    model = ScriptedModel(by_turn(calls(call("cling", seconds=300), call("look", what="a")), say("Free.")))
    await stage.run(agent, model=model, limits=Limits(call_seconds=10))


async def going_in_circles(stage: Stage) -> None:
    """The same call with the same result is remarked on, and in the end stopped."""
    agent = Agent("lead", tools=[look])
    await stage.run(agent, model=ScriptedModel(by_turn(*endless(*["a"] * 9), wrap="I went in circles.")))


@tool(tier="observe")
async def page(number: int) -> str:
    """Read a page."""
    return f"page {number}: " + "text " * 300


async def long_conversation(stage: Stage) -> None:
    """Old results are shortened, then the conversation is summarised; the provider refuses one as too long."""

    class Reader:
        name = "reader"
        context_window = 3600

        async def reply(self, request: Request, emit: Emit) -> Reply:
            del emit
            size = sum(len(message.text) // 3 + 4 for message in request.messages)
            usage = Usage(1, size, 20)
            if request.tool_choice == "none":
                return Reply("SUMMARY: many pages were read.", usage=usage)
            turns = sum(isinstance(message, AssistantMessage) for message in request.messages)
            summed_up = "SUMMARY" in "".join(message.text for message in request.messages)
            if summed_up and turns > 4:
                return Reply("All pages are read.", usage=usage)
            return Reply(
                f"Page {turns}. " * 60, (Call("c", "page", {"number": turns}),), stop="calls", usage=usage
            )

    await stage.run(Agent("lead", tools=[page]), model=Reader(), limits=Limits(turns=30))


def undecided(call: Call, scope: object) -> NoReturn:
    raise RuntimeError(f"no opinion on {call.name}")


async def absent(request: ApprovalRequest) -> NoReturn:
    raise LookupError(f"nobody answers for {request.agent}")


async def broken_helpers(stage: Stage) -> None:
    """A policy function and an approver that fail deny the call; the run goes on."""
    leaf = Agent("leaf", tools=[look], policy=undecided)
    lead = Agent("lead", tools=[change], subagents=[leaf])
    model = ScriptedModel(
        {
            "lead": [calls(TASK, call("change", what="b")), wait(3), say("Denied.")],
            "leaf": [call("look", what="a"), say("Denied too.")],
        }
    )
    await stage.run(lead, model=model, approver=absent)


ENDING = {
    function.__name__: function
    for function in (
        retries_and_fallback,
        rate_limits,
        requests_used_up,
        tokens_used_up,
        money_and_overrun,
        few_turns,
        little_time,
        calls_used_up,
        bad_endings,
        rejections,
        cancelled_branch,
        cancelled_root,
        left_behind,
        going_in_circles,
        long_conversation,
        broken_helpers,
    )
}
