"""Records of a run, a tree and a question for the page: no texts, and the same for live and ended trees."""

from __future__ import annotations

from msgspec import Struct

RUNNING = "running"


class Amount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was used."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    """Input tokens that a cache gave."""
    input: int = 0
    usd: float | None = None
    """None: a price is not known, or nothing was used."""
    estimated: bool = False


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. `own` is the run alone, `sum` includes everything below it."""

    id: str
    parent: str | None = None
    agent: str
    label: str = ""
    task: str = ""
    """Its first line, cut."""
    model: str = ""
    status: str
    """`running`, or how it ended; `interrupted` when it has no end and no process runs it."""
    state: str = ""
    """Of a running one: `asks` (a person), `waits` (for children or a place), `works`."""
    doing: str = ""
    """What it does, in words; of an ended one why it ended, unless it completed."""
    turn: int = 0
    turns: int | None = None
    own: Amount
    sum: Amount
    held: int = 0
    """Tokens that model calls in flight have reserved, everything below included."""
    calls: int = 0
    """Tool calls that were charged, everything below included."""
    start: float
    queued: float | None = None
    """Since when it waited for a place, before it started."""
    end: float | None = None
    worked_s: float = 0.0
    """Seconds on its own clock up to `since`; the clock is paused while a person is asked."""
    since: float | None = None
    """When its clock last began to run; None while it is paused."""
    asks: tuple[str, ...] = ()
    """Questions that it waits for, by their ids."""
    children: int = 0
    runs: int = 1
    """The run and everything below it."""
    errors: int = 0
    """Calls and model calls of its own that failed."""
    warnings: int = 0
    entries: int = 0
    """How long its conversation is."""
    artifacts: int = 0
    program: bool = False
    key: str = ""
    """Not empty if code started it."""
    limits: dict[str, float | None] = {}
    """Those that are set on the run itself; null is unlimited."""
    changed: int = 0
    """The number of the event that changed this row last."""


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person, in short."""

    request: str
    run: str
    path: tuple[str, ...]
    tool: str
    what: str
    """The call in words."""
    at: float


class Head(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tree as a whole."""

    root: str
    agent: str
    task: str = ""
    status: str
    live: bool = False
    """Whether a process runs it."""
    owner: str = ""
    """Which, in words."""
    hosted: bool = False
    """Whether it is this server's process."""
    resumable: str = ""
    """`here`: this server can resume it; `command`: `remit resume` can; `program`: only the program that started it."""
    seq: int
    at: float
    """When its last event happened."""
    started_at: float
    runs: int
    events: int
    questions: tuple[Question, ...] = ()


class Listed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tree in the list of runs."""

    root: str
    agent: str
    task: str = ""
    status: str
    live: bool = False
    owner: str = ""
    hosted: bool = False
    doing: str = ""
    started_at: float
    last_at: float
    events: int = 0
    runs: int = 0
    requests: int = 0
    tokens: int = 0
    usd: float | None = None
    cap_usd: float | None = None
    """Its limit on money, if it has one and is live."""
    questions: tuple[Question, ...] = ()
    unread: bool = False
    """It is live, but too large to be read for the list: its questions are not known here."""
