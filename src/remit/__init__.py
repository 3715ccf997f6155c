"""remit: recursive subagent delegation whose children are bounded, visible, stoppable, paid for once, never lost.

`run`, `run_sync` and `start` are in `door.py`, `resume` in `reopening.py`; agents, tools, limits and outcomes in the rooms
of their names. A room is opened with the first of its names that is used: a command that lists runs needs no engine.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.agent import Agent
    from remit.approval import Approver
    from remit.asking import ask_in_terminal
    from remit.door import run, run_sync, start
    from remit.errors import ModelError, OutcomeError, RemitError, StoreError, TreeOwned, UsageError
    from remit.events import Event
    from remit.limits import Limits, Usage
    from remit.messages import (
        AssistantMessage,
        Call,
        Delta,
        FilePart,
        ImagePart,
        Reply,
        Request,
        TextPart,
        ToolMessage,
        UserMessage,
    )
    from remit.outcome import Outcome, Rejection, Status, ToolCallLog
    from remit.policy import ApprovalRequest, allow, deny
    from remit.ports import Model, Price, Store
    from remit.reopening import reopen, resume
    from remit.result import ToolResult
    from remit.running import Running
    from remit.sandbox import Sandbox
    from remit.signature import ToolContext
    from remit.tooling import Tier, Tool, tool

__all__ = [
    "Agent",
    "ApprovalRequest",
    "Approver",
    "AssistantMessage",
    "Call",
    "Delta",
    "Event",
    "FilePart",
    "ImagePart",
    "Limits",
    "Model",
    "ModelError",
    "Outcome",
    "OutcomeError",
    "Price",
    "Rejection",
    "RemitError",
    "Reply",
    "Request",
    "Running",
    "Sandbox",
    "Status",
    "Store",
    "StoreError",
    "TextPart",
    "Tier",
    "Tool",
    "ToolCallLog",
    "ToolContext",
    "ToolMessage",
    "ToolResult",
    "TreeOwned",
    "Usage",
    "UsageError",
    "UserMessage",
    "allow",
    "ask_in_terminal",
    "deny",
    "reopen",
    "resume",
    "run",
    "run_sync",
    "start",
    "tool",
]

__version__ = "0.1.0.dev0"

_ROOMS = {
    "agent": "Agent",
    "approval": "Approver",
    "asking": "ask_in_terminal",
    "door": "run run_sync start",
    "errors": "ModelError OutcomeError RemitError StoreError TreeOwned UsageError",
    "events": "Event",
    "limits": "Limits Usage",
    "messages": "AssistantMessage Call Delta FilePart ImagePart Reply Request TextPart ToolMessage UserMessage",
    "outcome": "Outcome Rejection Status ToolCallLog",
    "policy": "ApprovalRequest allow deny",
    "ports": "Model Price Store",
    "reopening": "reopen resume",
    "result": "ToolResult",
    "running": "Running",
    "sandbox": "Sandbox",
    "signature": "ToolContext",
    "tooling": "Tier Tool tool",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}
_SHIPPED = frozenset({"definitions", "events", "models", "remote", "stores", "survey", "testing", "tools"})
"""Packages and modules of their own, for `import remit; remit.tools.read_only()`."""


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415 - for those who get this far

    if name in _SHIPPED:
        return importlib.import_module(f"remit.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'remit' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"remit.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger("remit").addHandler(logging.NullHandler())
