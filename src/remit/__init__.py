"""remit: recursive subagent delegation. Children are bounded, visible, cancellable and recorded.

The public names are defined in the modules listed in `_ROOMS`. Each module is imported when one of its names is first
used: a command that lists runs needs no engine.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.agent import Agent
    from remit.batches.batch import Batch, batch
    from remit.engine.handle import Running
    from remit.engine.resume import reopen, resume
    from remit.engine.start import run, run_sync, start
    from remit.engine.terminal_prompt import ask_in_terminal
    from remit.engine.tree.approvals import Approver
    from remit.errors import (
        ModelError,
        NoSuchTree,
        OutcomeError,
        RemitError,
        Retry,
        StoreError,
        TreeExists,
        TreeOwned,
        UsageError,
    )
    from remit.observe.otel.instrument import instrument
    from remit.tools.contexts import ProgramContext, RunContext, ToolContext
    from remit.tools.policy import ApprovalRequest, allow, deny
    from remit.tools.result import ToolResult
    from remit.tools.tool import Tier, Tool, tool
    from remit.types.events import Event
    from remit.types.limits import Left, Limits, Usage
    from remit.types.message_json import messages_from_json, messages_to_json
    from remit.types.messages import (
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
    from remit.types.outcome import Outcome, Rejection, Status, ToolCallLog
    from remit.types.ports import Model, Price, Store
    from remit.types.sandbox import Sandbox

__all__ = [
    "Agent",
    "ApprovalRequest",
    "Approver",
    "AssistantMessage",
    "Batch",
    "Call",
    "Delta",
    "Event",
    "FilePart",
    "ImagePart",
    "Left",
    "Limits",
    "Model",
    "ModelError",
    "NoSuchTree",
    "Outcome",
    "OutcomeError",
    "Price",
    "ProgramContext",
    "Rejection",
    "RemitError",
    "Reply",
    "Request",
    "Retry",
    "RunContext",
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
    "TreeExists",
    "TreeOwned",
    "Usage",
    "UsageError",
    "UserMessage",
    "allow",
    "ask_in_terminal",
    "batch",
    "deny",
    "instrument",
    "messages_from_json",
    "messages_to_json",
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
    "batches.batch": "Batch batch",
    "engine.tree.approvals": "Approver",
    "engine.terminal_prompt": "ask_in_terminal",
    "engine.start": "run run_sync start",
    "errors": "ModelError NoSuchTree OutcomeError RemitError Retry StoreError TreeExists TreeOwned UsageError",
    "observe.otel.instrument": "instrument",
    "types.events": "Event",
    "types.limits": "Left Limits Usage",
    "types.messages": "AssistantMessage Call Delta FilePart ImagePart Reply Request TextPart ToolMessage UserMessage",
    "types.message_json": "messages_from_json messages_to_json",
    "types.outcome": "Outcome Rejection Status ToolCallLog",
    "tools.policy": "ApprovalRequest allow deny",
    "types.ports": "Model Price Store",
    "engine.resume": "reopen resume",
    "tools.result": "ToolResult",
    "engine.handle": "Running",
    "types.sandbox": "Sandbox",
    "tools.contexts": "ProgramContext RunContext ToolContext",
    "tools.tool": "Tier Tool tool",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}
_SHIPPED = frozenset(
    {
        "definitions",
        "events",
        "models",
        "observe",
        "patterns",
        "remote",
        "stores",
        "survey",
        "testing",
        "tools",
    }
)
"""Public modules, for `import remit; remit.tools.read_only()`."""


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415 - only for the first use of a name

    if name in _SHIPPED:
        return importlib.import_module(f"remit.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'remit' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"remit.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
