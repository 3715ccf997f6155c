"""Everything that the corpus imports from modules of remit that are not public.

When a module moves, this file is the only one here that changes. The rest of the corpus imports `remit`,
`remit.events`, `remit.remote`, `remit.stores` and `remit.testing`, which stay where they are.
"""

from __future__ import annotations

from remit.cli.main import main as run_command
from remit.cli.options import Options
from remit.cli.options import keep as keep_options
from remit.history.fold import fold
from remit.history.records import RunRecord, Tree, elapsed
from remit.stores.memory import MemoryStore
from remit.testing.scripted import Answer as Step
from remit.testing.scripted import Line
from remit.testing.virtual import EPOCH
from remit.tools.policy import Decision
from remit.tools.source import Choice
from remit.types.commands import Answer, AnyCommand, Cancel, Send
from remit.types.messages import JsonObject, Message
from remit.types.outcome import RejectionKind
from remit.types.ports import Emit, Posted, TreeInfo

__all__ = [
    "EPOCH",
    "Answer",
    "AnyCommand",
    "Cancel",
    "Choice",
    "Decision",
    "Emit",
    "JsonObject",
    "Line",
    "MemoryStore",
    "Message",
    "Options",
    "Posted",
    "RejectionKind",
    "RunRecord",
    "Send",
    "Step",
    "Tree",
    "TreeInfo",
    "elapsed",
    "fold",
    "keep_options",
    "run_command",
]
