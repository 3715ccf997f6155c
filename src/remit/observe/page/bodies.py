"""Records that the page fetches on demand: texts, calls, entries, events, questions, a run's terms."""

from __future__ import annotations

from msgspec import Struct

from remit.observe.page.markup import Nodes
from remit.observe.page.rows import Amount
from remit.types.outcome import Artifact


class Text(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text, or the beginning of one."""

    nodes: Nodes = ()
    chars: int = 0
    """How long it is."""
    shown: int = 0
    """How much of it is here."""
    ref: str = ""
    """What to ask for the rest by, as plain text."""


class PartView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image or a document. Remote ones are named, never loaded."""

    kind: str
    name: str = ""
    media_type: str = ""
    bytes: int = 0
    url: str = ""
    ref: str = ""
    """What to ask for its bytes by; empty for a remote one."""


class CallLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call in short."""

    key: str
    """What to ask for its details by."""
    tool: str
    what: str = ""
    """The argument that matters most."""
    turn: int = 0
    tier: str = ""
    state: str
    """`waiting`, `asks`, `running`, `done`, `failed`, `stopped`, or `not finished` if the process died before its end."""
    summary: str = ""
    ms: int | None = None
    child: str = ""
    code: tuple[str, ...] = ()
    """Runs that its tool's code started."""
    request: str = ""


class Argument(Struct, frozen=True):
    name: str
    text: Text


class CallView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call with everything that is known of it."""

    call: CallLine
    args: tuple[Argument, ...] = ()
    result: Text | None = None
    note: str = ""
    """The runtime's own words to the model."""
    preview: Text | None = None
    """What it would change, as it was shown when it was asked about."""
    answer: str = ""
    parts: tuple[PartView, ...] = ()


class EntryView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a conversation."""

    n: int
    seq: int
    changed: int
    at: float
    kind: str
    """`task`, `reply`, `message`, `failed`, `note`, `step`, `child` or `end`."""
    turn: int = 0
    purpose: str = ""
    origin: str = ""
    text: Text | None = None
    thinking: Text | None = None
    words: str = ""
    """What happened, on one line."""
    status: str = ""
    calls: tuple[CallLine, ...] = ()
    parts: tuple[PartView, ...] = ()
    usage: Amount | None = None
    model: str = ""
    again: bool = False
    """Taken from the journal after a resume; it is above already."""
    child: str = ""
    artifact: str = ""


class EventRow(Struct, frozen=True, kw_only=True):
    seq: int
    at: float
    run: str
    agent: str
    kind: str
    words: str


class Asked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question with everything that the answer depends on."""

    request: str
    run: str
    path: tuple[str, ...]
    tool: str
    what: str = ""
    task: str = ""
    at: float
    args: tuple[Argument, ...] = ()
    preview: Text | None = None
    reasons: tuple[str, ...] = ()
    sum: Amount
    """What the tree has spent."""


class About(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's task and terms, and how it ended."""

    run: str
    path: tuple[str, ...]
    nickname: str = ""
    model: str = ""
    program: bool = False
    key: str = ""
    task: Text
    instructions: Text
    history: int = 0
    """Messages of an earlier conversation that it began with."""
    tools: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    limits: dict[str, float | str | None] = {}
    workspace: str = ""
    sandbox: str = ""
    policy: tuple[str, ...] = ()
    status: str = ""
    answer: Text | None = None
    reason: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
