"""How a run's turns ended: the record and its messages."""

from __future__ import annotations

from msgspec import Struct

from remit.engine.run.model_call import ModelFailed
from remit.engine.run.state import Run
from remit.engine.tree.life import Cause, Limit
from remit.tools.result import FAILURE_CHARS
from remit.types.messages import Json
from remit.types.outcome import Status
from remit.types.text import clean, shorten

KIND_WORDS = {
    "rate_limit": "Rate limit of the provider",
    "overloaded": "provider overloaded",
    "server": "Server error from the provider",
    "timeout": "provider timed out",
    "connection": "connection to the provider failed",
    "auth": "credentials refused by the provider",
    "quota": "provider quota exhausted",
    "not_found": "unknown to the provider",
    "context": "conversation too long for the model",
    "filter": "blocked by the provider's content filter",
    "invalid": "request refused by the provider as invalid",
}


class Ending(Struct, frozen=True):
    """How the turns of a run ended."""

    status: Status
    text: str = ""
    reason: str = ""
    output: Json = None
    error: str | None = None


def limited(limit: Limit, run: Run) -> Ending:
    """The ending after a soft limit, before the wrap-up."""
    if limit.kind in ("turns", "repeating"):
        return Ending(Status.INCOMPLETE, run.talk.text, limit.kind)
    status = Status.OVER_BUDGET if limit.kind == "budget" else Status.TIMED_OUT
    return Ending(status, run.talk.text, limit.detail, error=run.asking.last_error)


def failed_with(failed: ModelFailed) -> Ending:
    """The ending after a model failed permanently."""
    status = Status.STALLED if failed.error.kind == "stalled" else Status.FAILED
    # The provider's message is shortened here, because the parent reads it; the event has all of it.
    kind = failed.error.kind
    said = shorten(clean(str(failed)), FAILURE_CHARS, FAILURE_CHARS - 3)
    tried = f" ({failed.attempts} attempts)" if failed.attempts > 1 else ""
    why = said if kind in ("bug", "stalled") else f"{KIND_WORDS.get(kind, kind)}{tried}: {said}"
    return Ending(status, reason=why, error=f"{kind}: {said}")


def stopped(run: Run, cause: Cause) -> Ending:
    """The ending after a cancel or the hard deadline, which override any soft limit."""
    status = Status.TIMED_OUT if cause.kind == "deadline" else Status.CANCELLED
    return Ending(status, run.talk.text, cause.words)
