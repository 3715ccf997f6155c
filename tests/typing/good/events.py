"""Events are a union that `match` narrows, and type checkers know when a case is missing. Checked, never run."""

from __future__ import annotations

from typing import assert_type

from remit import Agent, Call, RunContext, ToolResult, deny, start
from remit.events import AnyEvent, CallEnded, CallStarted, Event, RunEnded
from remit.tools.policy import Decision


def line(event: AnyEvent) -> str:
    match event:
        case CallStarted():
            return f"{event.tool} {event.context}"
        case CallEnded(tool=name, success=success):
            assert_type(success, bool)
            return name
        case RunEnded(outcome=outcome):
            return str(outcome.status)
        case _:
            return event.kind


def on_event(event: Event) -> None:
    print(event.kind)


def on_call(call: Call, ctx: RunContext) -> Decision | None:
    return deny("no") if call.name == "write" else None


async def on_result(call: Call, result: ToolResult, ctx: RunContext) -> str | None:
    return None if result.ok else "failed"


async def watch() -> None:
    agent = Agent("lead", on_call=on_call, on_result=[on_result])
    async with start(agent, "go", on_event=on_event, on_call=[on_call], on_result=on_result) as running:
        async for event in running.events():
            print(line(event))
