"""What broke when what is hot was made faster, and must not again."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from types import MethodType
from typing import cast

import pytest

import remit.agent
from remit import Agent, Call, Outcome, Reply, Request, Status, run, tool
from remit.agent import PerAgent
from remit.messages import AssistantMessage
from remit.ports import Emit, Model


@tool(tier="observe")
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


class Says:
    """Says who it is; with a tool, it calls that first."""

    def __init__(self, name: str, uses: str = "") -> None:
        self.name = name
        self.uses = uses

    async def reply(self, request: Request, emit: Emit) -> Reply:
        calls = (Call("c", self.uses, {}),) if self.uses else ()
        return Reply(self.name, calls, stop="calls" if calls else "end")


def said(outcome: Outcome) -> list[str]:
    return [m.text for m in outcome.messages if isinstance(m, AssistantMessage)]


class Chosen:
    """Which model it stands for is decided whenever it is looked for."""

    name = "chosen"

    def __init__(self) -> None:
        self.now = Says("a", "change")

    def __getattr__(self, name: str) -> object:
        if name != "reply":
            raise AttributeError(name)
        return self.now.reply


class Staged:
    """What its `reply` is depends on how far it has come."""

    name = "staged"
    begun = False

    @property
    def reply(self) -> Callable[[Request, Emit], object]:
        return self._second if self.begun else self._first

    async def _first(self, request: Request, emit: Emit) -> Reply:
        self.begun = True
        return Reply("first", (Call("c", "look", {}),), stop="calls")

    async def _second(self, request: Request, emit: Emit) -> Reply:
        return Reply("second")


async def test_a_model_that_stands_for_others_chooses_for_every_request() -> None:
    """Which model answers is found when it is asked, not once for the whole tree."""
    model = Chosen()

    @tool(tier="observe")
    async def change() -> str:
        """Change."""
        model.now = Says("b")
        return "changed"

    outcome = await run(Agent("lead", tools=[change], model=cast(Model, model)), "go")
    assert said(outcome) == ["a", "b"]


async def test_a_reply_that_is_a_property_is_read_for_every_request() -> None:
    outcome = await run(Agent("lead", tools=[look], model=cast(Model, Staged())), "go")
    assert (outcome.status, said(outcome)) == (Status.COMPLETED, ["first", "second"])


async def test_a_method_made_of_an_odd_callable_is_asked_like_any_other() -> None:
    """Law 5: what somebody else's function says of its code is not relied on."""

    class Odd:
        __code__ = "nothing that can be read"

        async def __call__(self, me: object, request: Request, emit: Emit) -> Reply:
            return Reply("a")

    class Strange:
        name = "odd"

        def __init__(self) -> None:
            self.reply = MethodType(Odd(), self)

    assert (await run(Agent("lead", model=cast(Model, Strange())), "go")).text == "a"


def test_who_is_interrupted_leaves_nothing_to_the_next_agent_with_that_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is kept of an agent is only found while somebody is there to forget it: ids are used again."""

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    kept, agent = PerAgent[str](), Agent("one")
    monkeypatch.setattr(remit.agent.weakref, "ref", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.keep(agent, "its tools")
    monkeypatch.undo()
    assert kept.found == {}
    assert kept.keep(agent, "its tools") == "its tools"
    there = weakref.ref(agent)
    del agent
    gc.collect()
    assert there() is None
    assert kept.found == {}


class Sleeper:
    name = "sleeper"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def reply(self, request: Request, emit: Emit) -> Reply:
        await asyncio.sleep(self.seconds)
        return Reply("done")


async def test_how_long_a_run_took_is_rounded_and_not_cut_off() -> None:
    """Law 14: what takes 0.3 s by the clock of a test took 0.3 s, whenever it begins."""
    await asyncio.sleep(1000)
    assert (await run(Agent("lead", model=Sleeper(0.3)), "go")).duration_s == 0.3
