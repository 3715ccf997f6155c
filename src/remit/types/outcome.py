"""How a run ended (`Outcome`), and delegations that never started (`Rejection`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, NoReturn, final

from msgspec import Struct

from remit.errors import OutcomeError
from remit.types.limits import Usage
from remit.types.messages import Json, Message


class Status(StrEnum):
    """The closed set of ways a run can end."""

    COMPLETED = "completed"
    """The model finished by itself with a non-empty answer."""
    INCOMPLETE = "incomplete"
    """It stopped short; `reason` is `turns`, `length`, `empty` or `repeating`."""
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    """The model went silent in the middle of a reply, again after every retry."""
    OVER_BUDGET = "over_budget"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """The model declined to answer."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The process died."""


SHOWN_CHARS = 200
"""Of an answer, where an outcome is shown to a programmer."""


def _head(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


class ToolCallLog(Struct, frozen=True, gc=False, omit_defaults=True):
    """One requested call, in short: also unknown, malformed, denied and rejected ones."""

    name: str
    display_name: str
    context: str
    """The argument that matters most, cut short."""
    result: str
    """What came of it, in a few words."""
    success: bool
    duration_ms: int | None = None


class Artifact(Struct, frozen=True, gc=False):
    """A text kept whole in the store because it was too long to be read inline."""

    id: str
    name: str
    chars: int
    bytes: int


RejectionKind = Literal[
    "invalid_input", "unknown_agent", "unknown_tool", "depth", "cancelled", "budget", "busy"
]


@final
class Rejection(Struct, frozen=True, omit_defaults=True):
    """A delegation that never started, and the numbers behind it. Nothing was spent on it."""

    kind: RejectionKind
    message: str
    limit: int | float | None = None
    used: int | float | None = None

    @property
    def ok(self) -> bool:
        """False, as for an outcome that is not `completed`: code that delegates may get either."""
        return False

    @property
    def text(self) -> str:
        return ""

    @property
    def reason(self) -> str:
        return self.message

    def raise_for_status(self) -> NoReturn:
        """Raises OutcomeError."""
        raise OutcomeError(f"The delegation was rejected ({self.kind}): {self.message}", None)


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """How one run ended, with everything it had. Whatever ended it, there is exactly one."""

    status: Status
    agent: str
    run_id: str
    text: str = ""
    """The answer; empty unless `status` is `completed`."""
    partial: str = ""
    """What there was when it ended otherwise: the wrap-up's words, or the last text it said."""
    reason: str = ""
    """Why it did not complete. For `incomplete` one of the codes above; empty when completed."""
    label: str = ""
    parent_id: str | None = None
    depth: int = 0
    model: str = ""
    """The model that answered."""
    turns: int = 0
    calls: tuple[ToolCallLog, ...] = ()
    usage: Usage = Usage()
    """This run alone."""
    total_usage: Usage = Usage()
    """This run and everything below it."""
    children: tuple[Outcome, ...] = ()
    messages: tuple[Message, ...] = ()
    """The whole conversation; give it to `run(history=...)` to continue it."""
    output: Json = None
    """The structured answer, when the agent has `output=`."""
    artifacts: tuple[Artifact, ...] = ()
    error: str | None = None
    failed_tool: str | None = None
    """The tool whose call the run ended in. None when it ended in the model."""
    duration_s: float = 0.0
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # In one line: asyncio asks for it at the end of a program, and all of a large tree takes longer than to run it.
        return f"Outcome({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # as msgspec has it
        shown = [("status", str(self.status)), ("agent", self.agent), ("run_id", self.run_id)]
        shown += [("reason", _head(self.reason))] if self.reason else []
        shown += [("text", _head(self.text)) if self.ok else ("partial", _head(self.partial))]
        lists = {"calls": self.calls, "children": self.children, "messages": self.messages}
        return [*shown, ("turns", self.turns), *((name, len(some)) for name, some in lists.items())]

    @property
    def ok(self) -> bool:
        return self.status is Status.COMPLETED

    def raise_for_status(self) -> Outcome:
        """Itself when completed.

        Raises OutcomeError otherwise.
        """
        if self.ok:
            return self
        why = self.reason or self.error or "no reason given"
        raise OutcomeError(f"Run {self.run_id} ({self.agent}) ended {self.status}: {why}", self)
