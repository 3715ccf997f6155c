"""Wrong: a field that the event does not have, and hooks that return something else."""

from __future__ import annotations

from remit import Agent, Call, RunContext
from remit.events import AnyEvent, CallEnded


def line(event: AnyEvent) -> str:
    match event:
        case CallEnded():
            return event.result  # error
        case _:
            return event.content  # error


def on_call(call: Call, ctx: RunContext) -> bool:
    return True


lead = Agent("lead", on_call=on_call)  # error
