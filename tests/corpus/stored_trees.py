"""Trees that are stored in a database: finished, cancelled, at a limit, and killed in the middle.

Each is played in a process of its own (`record.py --play`), in virtual time. A tree that is to be killed says when it
is ready and then waits; the recorder kills its process and posts commands that nobody has read yet.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from blocking_store import BlockingStore
from parts import EPOCH, Answer, AnyCommand, JsonObject, Line, Options, Send, Step, keep_options
from staging import always, answering, by_task, by_turn, change, look, publish

from remit import (
    Agent,
    Event,
    Limits,
    Model,
    Outcome,
    Request,
    Running,
    Usage,
    allow,
    deny,
    reopen,
    start,
    tool,
)
from remit.remote import ask_elsewhere
from remit.testing import ScriptedModel, call, calls, fail, fixed_ids, run_virtual, say, wrapped

APART_S = 100_000.0
"""Virtual seconds between the beginnings of two trees: more than the whole of one takes."""

LATER_S = 10_000.0
"""Virtual seconds between two lives of a tree."""

READY = "ready to be killed"


class Stored(NamedTuple):
    """One tree: how it is started, what happens to it, and how it is resumed."""

    agent: Agent
    model: Callable[[int], Model | list[Model]]
    """The model of its first, second, third life."""
    drive: tuple[Callable[[Running, BlockingStore], Awaitable[object]], ...] = ()
    """What happens in each life before the last; a life without it goes on to its end."""
    killed: bool = True
    task: str = "go"
    start: Mapping[str, Any] = MappingProxyType({})
    resume: Mapping[str, Any] = MappingProxyType({})
    called: Options | None = None
    """How the command line was called, where it was."""
    commands: tuple[AnyCommand, ...] = ()
    """What other processes ask of it after it was killed."""


async def die(running: Running, store: BlockingStore) -> None:
    """Wait to be killed, with everything on disk that happened so far."""
    del running
    await asyncio.sleep(30.5)
    await store.flush()
    print(READY, flush=True)  # noqa: T201 - for the recorder
    sys.stdin.read()


def root_of(name: str) -> str:
    return f"{name}1"


def play(name: str, life: int, url: str) -> None:
    """One life of a tree, in this process. One that is killed does not return."""
    run_virtual(_life(name, life, url))


async def _life(name: str, life: int, url: str) -> None:
    tree, store = STORED[name], BlockingStore(url)
    await asyncio.sleep(list(STORED).index(name) * APART_S + life * LATER_S)
    with fixed_ids(name):
        async with _opened(name, life, store) as running:
            if life == 0 and tree.called is not None:
                await keep_options(store, root_of(name), tree.called)
            if life < len(tree.drive):
                await tree.drive[life](running, store)
            await running.outcome()
    await store.close()


def _opened(name: str, life: int, store: BlockingStore) -> Running:
    tree, root = STORED[name], root_of(name)
    if life == 0:
        return start(tree.agent, tree.task, model=tree.model(0), store=store, **tree.start)
    return reopen(store, root, agent=tree.agent, model=tree.model(life), **tree.resume)


def resumed(name: str, url: str) -> tuple[Outcome, list[Event]]:
    """The outcome of a stored tree that is resumed, and its events from there on."""
    return run_virtual(_resumed(name, url))


async def _resumed(name: str, url: str) -> tuple[Outcome, list[Event]]:
    store = BlockingStore(url)
    try:
        root = root_of(name)
        last = max([event.seq async for event in store.read(root)])
        life = max(1, len(STORED[name].drive))
        await asyncio.sleep(list(STORED).index(name) * APART_S + life * LATER_S)
        async with _opened(name, life, store) as running:
            outcome = await running.outcome()
        return outcome, [event async for event in store.read(root, last)]
    finally:
        await store.close()


# --- Tools and agents -----------------------------------------------------------------------------


@tool(tier="observe")
async def watch(what: str, seconds: float = 50.0) -> str:
    """Watch something for long."""
    await asyncio.sleep(seconds)
    return f"{what} did not move"


@tool
async def rebuild(what: str, seconds: float = 50.0) -> str:
    """Build something anew, which takes long."""
    await asyncio.sleep(seconds)
    return f"{what} is new"


TOKEN = "ghp_" + "a1" * 18
"""Looks like a secret, so it is not stored as it is."""

SCRIBE = Agent("scribe", description="Writes.", summary="always", tools=[look])
LEAF = Agent("leaf", description="Looks.", tools=[look, watch, rebuild])
MID = Agent("mid", nickname="the middle", subagents=[LEAF, SCRIBE], tools=[publish])
LEAD = Agent(
    "lead",
    instructions="Lead. Grüße \u2028 𝄞 \\ \" '",
    subagents=[SCRIBE, MID],
    tools=[look, watch, rebuild, publish, change],
)


def task(agent: str, prompt: str, **more: object) -> Step:
    return call("task", {"agent": agent, "prompt": prompt, **more})


def after(life: int, last: int, step: Line) -> Line:
    """A reply that does not come before the life after `last`."""
    return step if life > last else say("never", delay=900)


# --- The trees ------------------------------------------------------------------------------------


def finished_model(life: int) -> Model:
    del life
    wide = calls(
        task("scribe", "write a lot"),
        task("mid", "the middle \0 part", description="half"),
        call("change", what="x"),
        call("lok", what="?"),
        said="Off we go. ä€𝄞",
    )
    return ScriptedModel(
        {
            "lead": by_turn(
                wide, call("read_artifact", artifact="finished1.1/answer", start=300), say("Done.")
            ),
            "scribe": by_turn(say("word " * 90), wrap="Many words."),
            "mid": by_turn(call("publish", page="p"), task("leaf", "look"), say("Half done. " * 20)),
            "leaf": by_turn(call("look", what="é", said="I look."), say("Seen.", thinking="hm", delay=1)),
        }
    )


def busy_model(life: int) -> Model:
    wide = calls(
        task("mid", "left half"),
        task("mid", "right half", description="right"),
        call("watch", what="the door"),
        call("rebuild", what="the roof"),
        call("publish", page="news"),
    )
    left = calls(task("leaf", "model is asked"), task("leaf", "tools run"))
    tools = calls(
        call("look", what="a"), call("rebuild", what="the wall"), call("watch", what=f"the token {TOKEN}")
    )
    return ScriptedModel(
        {
            "lead": by_turn(task("scribe", "write"), wide, say("All of it is done.")),
            "scribe": by_turn(call("look", what="books"), say("line " * 60), wrap="Lines."),
            "mid": by_task(
                left=by_turn(left, say("Left done."), say("Left done, and looked twice.")),
                right=by_turn(task("leaf", "quick"), call("publish", page="right"), say("Right done.")),
            ),
            "leaf": by_task(
                model=by_turn(after(life, 0, say("Model done."))),
                tools=by_turn(tools, say("Tools done.")),
                quick=by_turn(call("look", what="q"), say("Quick done.", usage=Usage(1, 40, 9, usd=0.001))),
            ),
        }
    )


def twice_model(life: int) -> Model:
    summary = wrapped("never", delay=900) if life == 1 else wrapped("A summary.")
    return ScriptedModel(
        {
            "lead": by_turn(calls(task("mid", "a"), task("scribe", "look")), say("Alive.")),
            "mid": by_turn(calls(task("scribe", "write"), call("publish", page="m")), say("Mid done.")),
            "scribe": by_task(
                write=by_turn(call("look", what="s"), after(life, 0, say("text " * 50)), wrap=summary),
                look=by_turn(after(life, 1, say("Looked.")), wrap="L."),
            ),
        }
    )


def retrying_model(life: int) -> list[Model]:
    locked = by_turn(fail("no key", "auth"))
    first = ScriptedModel({"lead": locked, "leaf": locked}, name="first")
    later = fail("busy", "overloaded", retry_after=60, usage=Usage(1, 30, 0))
    second = ScriptedModel(
        {
            "lead": by_turn(task("leaf", "look"), say("Got through.")),
            "leaf": by_turn(call("look", what="a"), later if life == 0 else say("Seen."), wrap="Not much."),
        },
        name="second",
    )
    return [first, second]


def cancelled_model(life: int) -> Model:
    del life
    return ScriptedModel(
        {
            "lead": by_turn(
                calls(task("mid", "left"), task("mid", "right"), call("rebuild", what="r", seconds=3)),
                say("After all."),
            ),
            "mid": by_turn(
                calls(task("leaf", "one"), call("publish", page="m")),
                say("Half done."),
                say("Heard, half done."),
            ),
            "leaf": by_turn(calls(call("look", what="a"), call("watch", what="b", seconds=5)), say("Seen.")),
        }
    )


async def cancel(running: Running, store: BlockingStore) -> None:
    del store
    await asyncio.sleep(1.5)
    running.send("look twice", run="cancelled1.2")
    await running.cancel("wrong half", run="cancelled1.1")
    await asyncio.sleep(0.2)
    await running.cancel("enough")


def limited_model(life: int) -> Model:
    del life
    steps: list[Line] = [call("look", what=letter) for letter in "abcdef"]
    return ScriptedModel(
        {
            "lead": by_turn(
                calls(task("leaf", "one"), task("leaf", "two")), call("look", what="z"), say("Done.")
            ),
            "leaf": by_turn(*steps[:4], say("Four letters."), wrap="Some letters."),
        }
    )


def called_model(life: int) -> Model:
    return ScriptedModel(called_script(life))


def called_script(life: int) -> Callable[[Request], Line]:
    return by_turn(call("fetch_all", page="x"), after(life, 0, say('{"n": 3}')))


SCOUT_FILE = """---
name: scout
description: Looks around.
tools: read, ls
---
You look around.
"""
"""The file of the agent that `remit run --agent scout` ran."""

SCHEMA: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

SCOUT = Agent(
    "scout",
    description="Looks around.",
    instructions="You look around.",
    tools=["read", "ls"],
    output=SCHEMA,
)

ANN = "the user ann"


def _at(seconds: float) -> float:
    return EPOCH + seconds


STORED = {
    "finished": Stored(
        LEAD,
        finished_model,
        killed=False,
        task="Say grüße,\nthen go.",
        start={
            "limits": Limits(result_chars=100, usd=None),
            "policy": ["ask publish", "allow rebuild"],
            "approver": answering(allow(), allow(scope="tree"), deny()),
        },
    ),
    "cancelled": Stored(
        LEAD,
        cancelled_model,
        (cancel,),
        killed=False,
        start={"policy": ["allow rebuild"], "approver": ask_elsewhere},
        resume={"approver": always()},
    ),
    "limited": Stored(
        Agent("lead", subagents=[LEAF], tools=[look]),
        limited_model,
        killed=False,
        start={"limits": Limits(requests=6, concurrency=2)},
        resume={"limits": Limits(requests=30)},
    ),
    "busy": Stored(
        LEAD,
        busy_model,
        (die,),
        start={
            "limits": Limits(result_chars=100, tokens=500_000),
            "policy": ["allow rebuild"],
            "approver": ask_elsewhere,
        },
        resume={"approver": always(scope="run")},
        commands=(
            Send(id="cmdaaaaaaa", at=_at(1), by=ANN, run="busy1", text="hurry"),
            Send(id="cmdbbbbbbb", at=_at(2), by=ANN, run="busy1.2", text="look twice"),
            Send(id="cmdccccccc", at=_at(3), by=ANN, run="busy1.1", text="too late"),
            Answer(id="cmdddddddd", at=_at(4), by=ANN, request="busy1/approval1", allowed=True),
        ),
    ),
    "twice": Stored(
        LEAD,
        twice_model,
        (die, die),
        start={"limits": Limits(result_chars=100), "approver": ask_elsewhere},
        resume={"approver": ask_elsewhere},
        commands=(
            Answer(
                id="cmdfffffff",
                at=_at(6),
                request="twice1/approval1",
                allowed=False,
                scope="run",
                reason="not now",
            ),
        ),
    ),
    "retrying": Stored(
        Agent("lead", subagents=[LEAF]),
        retrying_model,
        (die,),
        start={"limits": Limits(seconds=200, turns=5)},
    ),
    "called": Stored(
        SCOUT,
        called_model,
        (die,),
        start={"limits": Limits(turns=7), "policy": ["allow read"]},
        called=Options(agent="scout", model="scripted", limits="turns=7", allow=("read",), schema=SCHEMA),
    ),
}
