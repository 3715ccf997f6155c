"""Runs that provoke the texts models and callers read: rejections, tool results, denials, notes, outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remit import (
    Agent,
    ApprovalRequest,
    Event,
    Limits,
    Outcome,
    Price,
    Reply,
    Request,
    StoreError,
    ToolContext,
    ToolMessage,
    Usage,
    allow,
    deny,
    run,
    start,
    tool,
)
from remit.engine.run.compaction import SUMMARISE_ALL
from remit.engine.run.loop import GO_ON
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, crash, fail, refuse, run_virtual, say, wrapped
from remit.testing.scripted import Line

Texts = dict[str, str]
"""Texts of one room, by what provokes them."""


@tool(tier="observe")
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


@tool(tier="observe", timeout_s=5)
async def dawdle() -> str:
    """Take too long."""
    await asyncio.sleep(60)
    return "done"


@tool(tier="observe")
async def explode() -> str:
    """Fail."""
    raise ValueError("no fuse")


@tool(tier="observe", inline_chars=100)
async def print_long() -> str:
    """Print a long text."""
    return "0123456789" * 30


@tool
async def change(what: str) -> str:
    """Change something."""
    return f"changed {what}"


@tool(tier="observe")
async def hire(who: str, ctx: ToolContext) -> str:
    """Delegate from code."""
    found = await ctx.delegate(who, "work")
    return getattr(found, "message", "") or found.reason


CHILD = Agent("child", description="Helps.", tools=[look])


def lead(**fields: Any) -> Agent:
    return Agent(
        "lead", **({"tools": [look, dawdle, explode, print_long, change], "subagents": [CHILD]} | fields)
    )


async def told(
    lines: Sequence[Line], child: Sequence[Line] = (), agent: Agent | None = None, **options: Any
) -> Outcome:
    """The outcome of a run in which the lead and its children play these lines."""
    scripts = {"lead": list(lines), "child": list(child), "subagent": list(child)}
    return await run(agent or lead(), "go", model=ScriptedModel(scripts, price=Price(1, 1)), **options)


def read(outcome: Outcome, number: int = -1) -> str:
    """One tool result as the model reads it."""
    found = [m for m in outcome.messages if isinstance(m, ToolMessage)][number]
    return f"{found.content}\n{found.note}" if found.note else found.content


def task(prompt: object = "help", agent: str = "child") -> Any:
    return call("task", agent=agent, prompt=prompt)


def each(cases: Mapping[str, Callable[[], Any]]) -> Texts:
    return {title: run_virtual(make) for title, make in cases.items()}


# --- Delegations that do not start ----------------------------------------------------------------


def rejections() -> Texts:
    async def second(limits: Limits, **options: Any) -> str:
        return read(await told([task(), task(), say("done")], ["found"], limits=limits, **options))

    async def first(line: Any, agent: Agent | None = None, **options: Any) -> str:
        return read(await told([line, say("done")], agent=agent, **options))

    async def at_once() -> str:
        limits = Limits(concurrency=1, when_full="reject")
        return read(await told([calls(task(), task()), say("done")], ["found"], limits=limits))

    adhoc = lead(adhoc=True)
    return each(
        {
            "unknown agent": lambda: first(task(agent="chlid")),
            "no subagents": lambda: first(task(), lead(subagents=[])),
            "no prompt": lambda: first(call("task", agent="child")),
            "prompt is not a string": lambda: first(task(7)),
            "depth": lambda: first(task(), limits=Limits(depth=0)),
            "delegations": lambda: second(Limits(delegations=1)),
            "requests": lambda: second(Limits(requests=3)),
            "concurrency": at_once,
            "subagent: unknown tool": lambda: first(
                call("subagent", label="a", task_prompt="b", allowed_tools=["lok"]), adhoc
            ),
            "subagent: delegate tool": lambda: first(
                call("subagent", label="a", task_prompt="b", allowed_tools=["task"]), adhoc
            ),
            "subagent: too many turns": lambda: first(
                call("subagent", label="a", task_prompt="b", max_turns=99), adhoc
            ),
            "code: unknown agent": lambda: first(call("hire", who="chlid"), lead(tools=[hire])),
            "code: depth": lambda: first(
                call("hire", who="child"), lead(tools=[hire]), limits=Limits(depth=0)
            ),
        }
    )


# --- Results of calls -----------------------------------------------------------------------------


def tool_results() -> Texts:
    async def own(*lines: Any, number: int = -1, **options: Any) -> str:
        return read(await told([*lines, say("done")], **options), number)

    async def child(*lines: Line, limits: Limits | None = None, **fields: Any) -> str:
        below = Agent("child", tools=[look], limits=limits, **fields)
        above = lead(subagents=[below], limits=Limits(result_chars=100))
        return read(await told([task(), say("done")], lines, above))

    return each(
        {
            "unknown tool": lambda: own(call("lok")),
            "wrong arguments": lambda: own(call("look", what=7, where="here")),
            "the tool raises": lambda: own(call("explode")),
            "the tool times out": lambda: own(call("dawdle")),
            "long result": lambda: own(call("print_long")),
            "unknown artifact": lambda: own(call("read_artifact", artifact="r2/text")),
            "no calls left": lambda: own(
                call("look", what="a"), call("look", what="b"), limits=Limits(calls=1)
            ),
            "the same call three times": lambda: own(*[call("look", what="a")] * 3),
            "child: server errors": lambda: child(*[fail("upstream is down")] * 6),
            "child: wrong key": lambda: child(fail("no such key", "auth")),
            "child: the model raises": lambda: child(crash("index out of bounds")),
            "child: times out": lambda: child(say("late", delay=60), limits=Limits(seconds=10)),
            "child: turns": lambda: child(call("look", what="a"), wrapped("saw a"), limits=Limits(turns=1)),
            "child: refuses": lambda: child(refuse("I will not.")),
            "child: says nothing": lambda: child(say("")),
            "child: output limit": lambda: child(Reply("so long that", stop="length")),
            "child: long answer": lambda: child(say("word " * 200)),
        }
    )


# --- Calls that are not allowed -------------------------------------------------------------------


class Full(MemoryStore):
    """A store that other processes could read, and that cannot flush."""

    volatile = False

    async def flush(self, root: str | None = None) -> None:
        raise StoreError(f"The disk is full ({root}).")


def denials() -> Texts:
    def no_opinion(call: object, scope: object) -> str:
        raise RuntimeError(f"no opinion on {type(call).__name__}, {type(scope).__name__}")

    def broken(request: ApprovalRequest) -> Any:
        raise LookupError(f"nobody answers for {request.agent}")

    async def denied(**options: Any) -> str:
        outcome = await told([call("change", what="a"), say("done")], **options)
        return "\n".join([read(outcome), *(f"warning: {warning}" for warning in outcome.warnings)])

    return each(
        {
            "policy: a rule": lambda: denied(policy=["deny change"]),
            "policy: a function that raises": lambda: denied(policy=no_opinion),
            "no approver": denied,
            "approver: no": lambda: denied(approver=lambda _: deny()),
            "approver: no, with a reason": lambda: denied(approver=lambda _: deny("not on a Friday")),
            "approver: raises": lambda: denied(approver=broken),
            "approver: returns True": lambda: denied(approver=lambda _: True),
            "the store is down": lambda: denied(approver=lambda _: allow(), store=Full()),
        }
    )


# --- Texts for models -----------------------------------------------------------------------------


def notes() -> Texts:
    async def offered(name: str, agent: Agent) -> str:
        with ScriptedModel([say("done")]) as model:
            await run(agent, "go", model=model)
        (spec,) = [spec for spec in model.requests[0].tools if spec.name == name]
        about: Any = spec.parameters["properties"]
        return "\n".join(
            [spec.description, *(f"  {n}: {p.get('description', '')}" for n, p in about.items())]
        )

    async def last_message(lines: Sequence[Line], agent: Agent, **options: Any) -> str:
        model = ScriptedModel(list(lines))
        await run(agent, "go", model=model, **options)
        asked: Request = model.requests[-1]
        return asked.messages[-1].text

    plain, many = Agent("lead", tools=[look]), [call("look", what=str(n)) for n in range(1)]
    return each(
        {
            "tool task": lambda: offered("task", lead()),
            "tool subagent_child": lambda: offered("subagent_child", lead(surface="subagent_<name>")),
            "tool subagent": lambda: offered("subagent", lead(adhoc=True)),
            "tool read_artifact": lambda: offered("read_artifact", lead()),
            "turn limit": lambda: last_message([*many, wrapped("so far")], plain, limits=Limits(turns=1)),
            "summary": lambda: last_message([say("long"), wrapped("short")], Agent("lead", summary="always")),
            "invalid answer": lambda: last_message([say("three"), say("3")], Agent("lead", output=int)),
        }
    ) | {"compaction": SUMMARISE_ALL, "resumed in the middle of an answer": GO_ON}


# --- Outcomes -------------------------------------------------------------------------------------


def outcomes() -> Texts:
    async def ended(*lines: Line, agent: Agent | None = None, **options: Any) -> str:
        return _described(await told(lines, agent=agent, **options))

    async def cancelled(reason: str) -> str:
        model = ScriptedModel({"lead": [say("late", delay=60)]})
        async with start(lead(), "go", model=model) as running:
            await asyncio.sleep(1)
            await running.cancel(reason)
            return _described(await running.outcome())

    async def left() -> str:
        model = ScriptedModel({"lead": [say("late", delay=60)]})
        async with start(lead(), "go", model=model) as running:
            await asyncio.sleep(1)
        return _described(await running.outcome())

    async def sent_too_late() -> str:
        model = ScriptedModel({"lead": [say("late", delay=60)]})
        async with start(lead(), "go", model=model) as running:
            await asyncio.sleep(1)
            running.send("be brief")
            await running.cancel()
            return _described(await running.outcome())

    def noisy(event: Event) -> None:
        raise OSError(f"no space for {event.kind}")

    async def program(ctx: object) -> str:
        raise KeyError(f"no plan for {type(ctx).__name__}")

    looks = [call("look", what="a")] * 6
    return each(
        {
            "turns": lambda: ended(call("look", what="a"), wrapped("so far"), limits=Limits(turns=1)),
            "time": lambda: ended(say("late", delay=60), limits=Limits(seconds=10)),
            "no time": lambda: ended(limits=Limits(seconds=0)),
            "requests": lambda: ended(call("look", what="a"), limits=Limits(requests=1)),
            "tokens": lambda: ended(limits=Limits(tokens=20)),
            "usd": lambda: ended(limits=Limits(usd=0.00001)),
            "the same call six times": lambda: ended(*looks, wrapped("stuck")),
            "used more than reserved": lambda: ended(
                say("much", usage=Usage(1, 90_000, 9)), limits=Limits(tokens=20_000)
            ),
            "server errors": lambda: ended(*[fail("upstream is down")] * 6),
            "rate limit": lambda: ended(*[fail("slow down", "rate_limit")] * 6),
            "the model raises": lambda: ended(crash("index out of bounds")),
            "refusal without a text": lambda: ended(refuse("")),
            "invalid answers": lambda: ended(*[say("three")] * 3, agent=Agent("lead", output=int)),
            "the program raises": lambda: ended(agent=Agent("lead", program=program)),
            "cancelled": lambda: cancelled(""),
            "cancelled, with a reason": lambda: cancelled("changed my mind"),
            "the block is left early": left,
            "a message comes too late": sent_too_late,
            "on_event raises": lambda: ended(say("done"), on_event=noisy),
            "events are not stored": lambda: ended(say("done"), store=Full()),
        }
    )


def _described(outcome: Outcome) -> str:
    reason = f": {outcome.reason}" if outcome.reason else ""
    return "\n".join([f"{outcome.status}{reason}", *(f"warning: {text}" for text in outcome.warnings)])
