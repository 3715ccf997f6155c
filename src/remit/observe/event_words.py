"""An event as a short text on one line, for `remit show --events`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import remit.observe.words as words
import remit.types.events as events
from remit.types.events import Event
from remit.types.outcome import Outcome

E = TypeVar("E", bound=Event)

_SAYS: dict[type[Event], Callable[[Event], str]] = {}


def in_words(event: Event) -> str:
    """Describe an event. Untrusted text in it is not escaped: escape the result before printing it."""
    say = _SAYS.get(type(event))
    return event.kind.replace("_", " ") if say is None else say(event)


def _says(kind: type[E]) -> Callable[[Callable[[E], str]], Callable[[E], str]]:
    def register(say: Callable[[E], str]) -> Callable[[E], str]:
        _SAYS[kind] = cast("Callable[[Event], str]", say)
        return say

    return register


@_says(events.RunStarted)
def _(event: events.RunStarted) -> str:
    return _with("started", event.task.text)


@_says(events.RunResumed)
def _(event: events.RunResumed) -> str:
    del event
    return "resumed"


@_says(events.RunEnded)
def _(event: events.RunEnded) -> str:
    return _ended(event.outcome)


def _ended(outcome: Outcome) -> str:
    return _with(str(outcome.status).replace("_", " "), outcome.text or outcome.reason)


@_says(events.ToolsOpened)
def _(event: events.ToolsOpened) -> str:
    words = f"{event.source}: {len(event.tools)} tool{'' if len(event.tools) == 1 else 's'}"
    return _with(words, event.trouble)


@_says(events.TurnStarted)
def _(event: events.TurnStarted) -> str:
    what = f"turn {event.turn}" if event.purpose == "turn" else event.purpose.replace("_", "-")
    return f"{what}: model call" + (f", attempt {event.attempt}" if event.attempt > 1 else "")


@_says(events.ReplyReceived)
def _(event: events.ReplyReceived) -> str:
    reply = event.reply
    calls = f"calls {', '.join(call.name for call in reply.calls)}" if reply.calls else "answers"
    again = "replayed from the journal" if event.again else f"{event.usage.tokens:,} tokens"
    return _with(f"{calls} ({again})", reply.text)


@_says(events.ModelCallFailed)
def _(event: events.ModelCallFailed) -> str:
    if event.error_kind == "stopped":
        return _with("model call stopped", "" if event.error == "stopped" else event.error)
    then = "" if event.retry_in_s is None else f"; retry in {event.retry_in_s:.1f} s"
    return f"model call failed ({event.error_kind}): {event.error}{then}"


@_says(events.ModelSwitched)
def _(event: events.ModelSwitched) -> str:
    return _with(f"switched from {event.before} to {event.model}", event.reason)


@_says(events.InstructionsWritten)
def _(event: events.InstructionsWritten) -> str:
    return _with("instructions written", event.instructions)


@_says(events.CallChanged)
def _(event: events.CallChanged) -> str:
    return f"{event.tool}: arguments changed by {', '.join(event.hooks)}"


@_says(events.CallStarted)
def _(event: events.CallStarted) -> str:
    return f"{event.tool} started: {event.context}" if event.context else f"{event.tool} started"


@_says(events.CallEnded)
def _(event: events.CallEnded) -> str:
    how = "ended" if event.success else "failed"
    return _with(f"{event.tool} {how} ({event.duration_ms:,} ms)", event.summary)


@_says(events.ResultCut)
def _(event: events.ResultCut) -> str:
    return f"result of {event.call} truncated"


@_says(events.Compacted)
def _(event: events.Compacted) -> str:
    return f"conversation compacted from {event.before:,} to {event.after:,} tokens"


@_says(events.ChildQueued)
def _(event: events.ChildQueued) -> str:
    return f"{event.child} queued ({event.waiting} waiting)"


@_says(events.DelegationRejected)
def _(event: events.DelegationRejected) -> str:
    return f"delegation rejected ({event.rejection.kind}): {event.rejection.message}"


@_says(events.ApprovalRequested)
def _(event: events.ApprovalRequested) -> str:
    return _with(f"approval requested for {event.tool} ({event.request})", event.context)


@_says(events.ApprovalAnswered)
def _(event: events.ApprovalAnswered) -> str:
    if event.stopped:
        return f"{event.request}: stopped before an answer"
    scope = "" if event.scope == "once" else f" for the {event.scope}"
    return _with(f"{event.request}: {'allowed' if event.allowed else 'denied'}{scope}", event.reason)


@_says(events.MessageSent)
def _(event: events.MessageSent) -> str:
    return _with("message sent", event.message.text)


@_says(events.MessageJoined)
def _(event: events.MessageJoined) -> str:
    return _with(
        "reads a message" if event.origin == "sent" else "reads a note from remit", event.message.text
    )


@_says(events.CancelRequested)
def _(event: events.CancelRequested) -> str:
    return _with(f"cancelled by {event.by}", event.reason)


@_says(events.LimitMet)
def _(event: events.LimitMet) -> str:
    return _with(_MET.get(event.limit, f"reached its {event.limit} limit"), event.detail)


_MET = {"deadline": "ran out of time", "budget": "ran out of budget", "repeating": "repeated itself"}


@_says(events.Overran)
def _(event: events.Overran) -> str:
    used, reserved = (
        words.money(amount / 1e6) if event.resource == "usd" else f"{amount:,} {event.resource}"
        for amount in (event.used, event.reserved)
    )
    return f"used {used}, more than the reserved {reserved}"


@_says(events.ArtifactSaved)
def _(event: events.ArtifactSaved) -> str:
    return f"saved artifact {event.artifact.name} ({event.artifact.chars:,} characters)"


@_says(events.Warned)
def _(event: events.Warned) -> str:
    return f"warning: {event.text}"


def _with(words: str, more: str) -> str:
    return f"{words}: {more}" if more.strip() else words
