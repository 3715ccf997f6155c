"""remit: recursive subagent delegation whose children are bounded, visible, stoppable, paid for once, never lost.

`run`, `run_sync` and `start` are in `door.py`, `resume` in `reopening.py`; agents, tools, limits and outcomes in the rooms of their
names. Nothing heavy is imported here: pydantic comes with the first tool.
"""

import logging

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
from remit.tool import Tier, Tool, tool

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

logging.getLogger("remit").addHandler(logging.NullHandler())
