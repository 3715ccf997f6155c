"""How a run ended (`Outcome`), and delegations that never started (`Rejection`)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, final

from msgspec import Struct

from remit.errors import OutcomeError
from remit.types.limits import Usage
from remit.types.messages import Message
from remit.types.type_variables import OutputOut

if TYPE_CHECKING:
    from os import PathLike

    from remit.observe.display.drawings import OutcomeDrawing, TreeDrawing


class Status(StrEnum):
    """The closed set of ways a run can end."""

    COMPLETED = "completed"
    """The model finished by itself with a non-empty answer."""
    INCOMPLETE = "incomplete"
    """The run ended without a complete answer; `reason` is `turns`, `length`, `empty` or `repeating`."""
    TIMED_OUT = "timed_out"
    """The time limit (`seconds`) of the run ended before its answer."""
    STALLED = "stalled"
    """The model stopped sending in the middle of a reply, also in every retry."""
    OVER_BUDGET = "over_budget"
    """The next model call did not fit within a limit; `reason` has the numbers."""
    CANCELLED = "cancelled"
    """The caller, another process or a parent stopped the run; `reason` says who and why."""
    REFUSED = "refused"
    """The model declined to answer."""
    FAILED = "failed"
    """The model failed permanently, or no answer matched the agent's `output`."""
    INTERRUPTED = "interrupted"
    """The process died, and the run was not resumed."""


SHOWN_CHARS = 200
"""Most characters of a text in the repr of an outcome."""


def _head(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


class ToolCallLog(Struct, frozen=True, gc=False, omit_defaults=True):
    """A short record of one requested call, including unknown, malformed, denied and rejected calls."""

    name: str
    display_name: str
    context: str
    """The most important argument, shortened."""
    result: str
    """A few words about the result."""
    success: bool
    duration_ms: int | None = None


class Artifact(Struct, frozen=True, gc=False):
    """A text that was too long to be read inline, saved whole in the store."""

    id: str
    name: str
    chars: int
    bytes: int


RejectionKind = Literal[
    "invalid_input", "unknown_agent", "unknown_tool", "depth", "cancelled", "budget", "busy"
]


@final
class Rejection(Struct, frozen=True, omit_defaults=True):
    """A delegation that never started, with the numbers that explain why. Nothing was spent on it."""

    kind: RejectionKind
    message: str
    limit: int | float | None = None
    used: int | float | None = None

    @property
    def ok(self) -> bool:
        """Always False. A delegation returns an `Outcome` or a `Rejection`, and both have `ok`."""
        return False

    @property
    def text(self) -> str:
        return ""

    @property
    def reason(self) -> str:
        return self.message

    def raise_for_status(self) -> NoReturn:
        """Always raises OutcomeError."""
        raise OutcomeError(f"The delegation was rejected ({self.kind}): {self.message}", None)


class Outcome(Struct, Generic[OutputOut], frozen=True, gc=False, omit_defaults=True):
    """How one run ended, with all its results. Every run has exactly one outcome."""

    status: Status
    agent: str
    run_id: str
    text: str = ""
    """The answer; empty unless `status` is `completed`."""
    partial: str = ""
    """If the run did not complete: its wrap-up text, or the last text of its model."""
    reason: str = ""
    """Why the run did not complete; for `incomplete`, a code (see `Status`). Empty if completed."""
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
    children: tuple[Outcome[Any], ...] = ()
    messages: tuple[Message, ...] = ()
    """The whole conversation; give it to `run(history=...)` to continue it."""
    output: OutputOut | None = None
    """The structured answer, if the agent has `output=` and the run completed."""
    artifacts: tuple[Artifact, ...] = ()
    error: str | None = None
    failed_tool: str | None = None
    """The tool that was running when the run ended; None if the run ended in a model call."""
    duration_s: float = 0.0
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # Short: asyncio calls repr() when a program ends, and the repr of a whole tree takes longer than the tree ran.
        return f"Outcome({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # Any: the signature in msgspec
        shown = [("status", str(self.status)), ("agent", self.agent), ("run_id", self.run_id)]
        shown += [("reason", _head(self.reason))] if self.reason else []
        shown += [("text", _head(self.text)) if self.ok else ("partial", _head(self.partial))]
        lists = {"calls": self.calls, "children": self.children, "messages": self.messages}
        return [*shown, ("turns", self.turns), *((name, len(some)) for name, some in lists.items())]

    def __rich__(self) -> OutcomeDrawing:
        from remit.observe.display.drawings import OutcomeDrawing  # noqa: PLC0415 - only if it is displayed

        return OutcomeDrawing(self)

    def _repr_html_(self) -> str:
        return self.__rich__().html

    def tree(self) -> TreeDrawing:
        """The run and everything below it, one line each: for `print`, rich and notebooks."""
        return self.__rich__().tree

    def save(self, path: str | PathLike[str]) -> None:
        """Write the outcome to a file as JSON, with all conversations; only the current user can read the file.

        Nothing is redacted. Raises OSError if the file cannot be written.
        """
        from remit.types.outcome_file import save  # noqa: PLC0415 - only if it is saved

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Outcome:
        """The outcome that `save` wrote; its `output` is plain JSON.

        Raises OSError if the file cannot be read, and UsageError if it has other content.
        """
        from remit.types.outcome_file import load  # noqa: PLC0415 - as above

        return load(path)

    @property
    def ok(self) -> bool:
        return self.status is Status.COMPLETED

    def raise_for_status(self) -> Self:
        """Return this outcome if it is completed. Raises OutcomeError otherwise."""
        if self.ok:
            return self
        why = self.reason or self.error or "no reason given"
        raise OutcomeError(f"Run {self.run_id} ({self.agent}) ended {self.status}: {why}", self)
