"""What a surface asks the engine for: who should do what, within which bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from remit.agent import Agent
from remit.execution import Kit, Run
from remit.messages import UserMessage
from remit.outcome import Outcome, Rejection


@dataclass(frozen=True, slots=True)
class Plan:
    """A child as its surface wants it. Everything in it is checked; nothing in it can widen a limit."""

    agent: Agent
    prompt: UserMessage
    task: str
    """The prompt as text, for people."""
    label: str = ""
    turns: int | None = None
    """An ad hoc child's own limit."""
    summary: str = "never"
    summary_prompt: str = ""
    kit: Kit | None = None
    """An ad hoc child's tools; None: the agent's own."""
    inline_bytes: int | None = None
    """How much of the answer the parent reads inline; None: the parent's `result_chars`."""


Delegate = Callable[[Run, Plan, str], Awaitable[Outcome | Rejection]]
"""Has a child do a plan for a run's call. Raises nothing."""
