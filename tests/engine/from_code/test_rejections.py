"""Delegations from code that are refused: loops of rejections, previews, mistakes in code, problems with data."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from codebench import WORKER, lead_of, play, results, script, statuses, sync_tool_of, tool_of

from remit import (
    Agent,
    ApprovalRequest,
    Limits,
    OutcomeError,
    Rejection,
    Request,
    ToolContext,
    UsageError,
    deny,
    run,
    tool,
)
from remit.testing import ScriptedModel, call, calls, say
from remit.testing.scripted import Line
from remit.tools.policy import Decision


def after(seconds: float) -> Callable[[Request], Line]:
    return lambda _: say("ok", delay=seconds)


# --- Rule 10: rejections in loops ---------------------------------------------------------------------------


async def test_rejections_let_others_run_and_few_become_events() -> None:
    """Rule 10: code that asks in a loop yields at each rejection, waits longer and longer, and writes 20 events."""
    turns = 0

    async def work(ctx: ToolContext) -> str:
        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        for _ in range(100):
            await ctx.delegate("nobody", "go")
        beside.cancel()
        patient = asyncio.get_running_loop().time()
        for _ in range(100):
            await ctx.delegate("nobody", "go")
        return f"{patient:g} {asyncio.get_running_loop().time():.2f}"

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["0 5.05"]
    assert turns >= 100
    assert len(played.rejected) == 20


async def test_a_child_that_starts_ends_the_row() -> None:
    """Rule 10: only rejections in a row make code wait."""

    async def work(ctx: ToolContext) -> str:
        for _ in range(3):
            for _ in range(90):
                await ctx.delegate("nobody", "go")
            await ctx.delegate(WORKER, "go")
        return f"{asyncio.get_running_loop().time():g}"

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["0"]


async def test_map_does_not_wait_at_its_rejections() -> None:
    """Rule 10: a map whose 500 prompts are rejected takes no time, and still lets others run."""
    turns = 0

    async def work(ctx: ToolContext) -> str:
        nonlocal turns

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        found = await ctx.map("nobody", ["go"] * 500)
        beside.cancel()
        return f"{len(found)} {asyncio.get_running_loop().time():g}"

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["500 0"]
    assert turns >= 500
    assert len(played.rejected) == 20


@pytest.mark.real_time
async def test_a_thread_that_asks_in_a_loop_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 10: a run whose sync tool waits out a row of rejections ends in time, and nothing of it is left on the loop."""
    monkeypatch.setattr("remit.engine.run.from_code.REJECTIONS_BEFORE_DELAY", -100_000)
    monkeypatch.setattr("remit.engine.run.from_code.LONGEST_WAIT_S", 30)
    stop, asked = threading.Event(), 0

    def code(ctx: ToolContext) -> str:
        nonlocal asked
        while not stop.is_set():
            ctx.delegate_sync("nobody", "go")
            asked += 1
        return ""

    agent = Agent("lead", tools=[sync_tool_of(code)])
    began = time.monotonic()
    try:
        outcome = await run(agent, "go", model=script(), limits=Limits(seconds=0.3, call_seconds=None))
        # Half a minute is how long each answer takes here.
        assert time.monotonic() - began < 20
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert 0 < asked < 50
    finally:
        stop.set()
    assert outcome.status == "timed_out"


# --- Rule 12: previews -----------------------------------------------------------------------------------------


async def test_a_preview_cannot_delegate() -> None:
    """Rule 12: a tool that delegates while a person is asked about it starts nothing before the answer."""
    told: list[str] = []

    def preview(ctx: ToolContext) -> str:
        for ask in (
            lambda: ctx.delegate_sync(WORKER, "go"),
            lambda: ctx.map_sync(WORKER, ["go"]),
            lambda: ctx.left,
        ):
            try:
                ask()
            except UsageError as error:
                told.append(str(error))
        return "would publish"

    async def publish(ctx: ToolContext) -> str:
        """Publish."""
        return (await ctx.delegate(WORKER, "go")).text

    async def approver(request: ApprovalRequest) -> Decision:
        assert request.preview == "would publish"
        return deny("no")

    agent = Agent("lead", tools=[tool(publish, preview=preview)])
    model = ScriptedModel({"lead": [call("publish"), say("done")]})
    played = await play(agent, model, approver=approver)
    assert played.outcome.ok
    assert not played.started
    assert len(told) == 3
    assert all("cannot delegate" in words for words in told)


# --- Rule 14: mistakes and data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"agent": 3}, "agent must be an Agent"),
        ({"prompt": 3}, "prompt must be a string"),
        ({"prompt": None}, "prompt must be a string"),
        ({"label": 3}, "label must be a string"),
        ({"limits": {"requests": 1}}, "limits must be a Limits"),
        ({"model": 3}, "model"),
        ({"key": 3}, "key must be a text"),
        ({"key": " "}, "key must be a text"),
    ],
)
async def test_mistakes_in_code_raise_usage_errors(arguments: dict[str, Any], words: str) -> None:
    """Rule 14: a wrong type is a UsageError in the tool, which names the argument."""
    chosen: dict[str, Any] = {"agent": WORKER, "prompt": "go", **arguments}

    async def work(ctx: ToolContext) -> str:
        with pytest.raises(UsageError, match=words):
            await ctx.delegate(chosen.pop("agent"), chosen.pop("prompt"), **chosen)
        return "raised"

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["raised"]
    assert not played.started


@pytest.mark.parametrize(
    ("method", "arguments", "named", "words"),
    [
        (
            "delegate",
            (WORKER, "go"),
            {"lable": "x"},
            r"ctx\.delegate\(\) has no argument 'lable'\. Did you mean 'label'\?",
        ),
        (
            "delegate",
            (WORKER,),
            {},
            r"ctx\.delegate\(\) needs 'prompt': ctx\.delegate\(agent, prompt, label=\.\.\.\)",
        ),
        ("delegate", (), {}, r"needs 'agent' and 'prompt'"),
        ("delegate", (WORKER, "go", "label"), {}, "pass 'label' by name"),
        (
            "map",
            (WORKER,),
            {"prompt": ["go"]},
            r"ctx\.map\(\) has no argument 'prompt'\. Did you mean 'prompts'\?",
        ),
        ("delegate_sync", (WORKER,), {}, r"ctx\.delegate_sync\(\) needs 'prompt'"),
        (
            "map_sync",
            (WORKER, ["go"]),
            {"key": "a"},
            r"ctx\.map_sync\(\) has no argument 'key'\. Did you mean 'keys'\?",
        ),
    ],
)
async def test_wrong_argument_names_raise_usage_errors(
    method: str, arguments: tuple[object, ...], named: dict[str, object], words: str
) -> None:
    """Rule 14: an unknown or missing argument is a UsageError that names the method as the caller wrote it."""

    async def work(ctx: ToolContext) -> str:
        with pytest.raises(UsageError, match=words):
            await getattr(ctx, method)(*arguments, **named)
        return "raised"

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["raised"]
    assert not played.started


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        ("a text", {}, "list of prompts"),
        (3, {}, "list of prompts"),
        (["a"], {"keys": "a"}, "list of strings"),
        (["a"], {"keys": ["a", "b"]}, "one key for each"),
        (["a"], {"concurrency": 0}, "whole number"),
        (["a"], {"concurrency": True}, "whole number"),
        (["a"], {"concurrency": 1.5}, "whole number"),
    ],
)
async def test_mistakes_in_a_map_raise_usage_errors(
    prompts: Any, options: dict[str, Any], words: str
) -> None:
    """Rule 14: the same for `map`; nothing has started then."""

    async def work(ctx: ToolContext) -> str:
        with pytest.raises(UsageError, match=words):
            await ctx.map(WORKER, prompts, **options)
        return "raised"

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["raised"]
    assert not played.started


async def test_the_wrong_thread_or_loop_is_a_usage_error() -> None:
    """Rule 14: `delegate` belongs to the loop of the tree, `delegate_sync` to a thread; the other one says which to use."""

    async def on_loop(ctx: ToolContext) -> str:
        with pytest.raises(UsageError, match=r"await ctx\.delegate"):
            ctx.delegate_sync(WORKER, "go")
        with pytest.raises(UsageError, match=r"await ctx\.map"):
            ctx.map_sync(WORKER, ["go"])
        return "raised"

    def in_thread(ctx: ToolContext) -> str:
        async def elsewhere() -> None:
            with pytest.raises(UsageError, match="delegate_sync"):
                await ctx.delegate(WORKER, "go")
            with pytest.raises(UsageError, match="map_sync"):
                await ctx.map(WORKER, ["go"])

        asyncio.run(elsewhere())
        return ctx.delegate_sync(WORKER, "go").text

    agent = lead_of(tool_of(on_loop, name="a"), sync_tool_of(in_thread, name="b"))
    played = await play(agent, script(lead=[calls(call("a"), call("b")), say("done")]))
    assert results(played.outcome) == ["raised", "ok"]


async def test_several_threads_of_one_tool_may_delegate() -> None:
    """Rule 14: threads that a sync tool starts itself delegate at the same time, as children of one call."""

    def code(ctx: ToolContext) -> str:
        begin, found = threading.Barrier(8), list[Any]()

        def ask(number: int) -> None:
            begin.wait(10)
            found.append(ctx.delegate_sync(WORKER, f"{number}"))

        several = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for one in several:
            one.start()
        for one in several:
            one.join()
        return f"{sum(one.ok for one in found)}"

    played = await play(lead_of(sync_tool_of(code)), script())
    assert results(played.outcome) == ["8"]
    assert len({event.key for event in played.started}) == 8


async def test_problems_with_data_are_rejections() -> None:
    """Rule 14: an empty prompt, an unknown name or model and a missing price reject the child, and the code goes on."""

    async def work(ctx: ToolContext) -> str:
        found = [
            await ctx.delegate(WORKER, ""),
            await ctx.delegate(WORKER, []),
            await ctx.delegate("workr", "go"),
            await ctx.delegate(WORKER, "go", model="nobody:knows"),
            await ctx.delegate(WORKER, "go", limits=Limits(usd=1.0)),
            await ctx.delegate(WORKER, "a \ud800 b"),
        ]
        assert not any(one.ok for one in found)
        assert all(one.text == "" and one.reason for one in found)
        for one in found:
            assert isinstance(one, Rejection)
            with pytest.raises(OutcomeError, match="rejected"):
                one.raise_for_status()
        return "\n".join([*statuses(found), found[2].reason])

    played = await play(lead_of(tool_of(work), subagents=[WORKER]), script())
    kinds = results(played.outcome)[0].split("\n")
    invalid = "invalid_input"
    assert kinds[:6] == [invalid, invalid, "unknown_agent", invalid, invalid, invalid]
    assert "Did you mean 'worker'?" in kinds[6]
    assert not played.started


async def test_a_trouble_below_an_undeclared_agent_is_a_rejection() -> None:
    """Rule 14: the models of everything below an agent are looked at before it starts, as they are for `run`."""
    below = Agent("below", model="nobody:knows")

    async def work(ctx: ToolContext) -> str:
        found = await ctx.delegate(Agent("worker", subagents=[below]), "go")
        return statuses([found])[0]

    played = await play(lead_of(tool_of(work)), script())
    assert results(played.outcome) == ["invalid_input"]


async def test_depth_and_policy_of_the_run_hold_for_code() -> None:
    """Rule 14: a run that may not delegate any deeper gets Rejection(depth)."""

    async def work(ctx: ToolContext) -> str:
        return statuses([await ctx.delegate(WORKER, "go")])[0]

    played = await play(lead_of(tool_of(work)), script(), Limits(depth=0))
    assert results(played.outcome) == ["depth"]
