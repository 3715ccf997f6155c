"""Records are frozen, survive a round trip through JSON, and can be read by older and newer versions."""

from __future__ import annotations

from contextlib import suppress
from typing import cast, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from remit import Agent, Limits, Usage, start
from remit.testing import ScriptedModel, call, say
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.event_json import decode, decode_lines, encode
from remit.types.events import (
    VERSION,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    ArtifactSaved,
    CallChanged,
    CallEnded,
    CallProgressed,
    CallStarted,
    CancelRequested,
    ChildQueued,
    Compacted,
    DelegationRejected,
    DeltaReceived,
    Event,
    EventsMissed,
    InstructionsWritten,
    LimitMet,
    MessageJoined,
    MessageSent,
    ModelCallFailed,
    ModelSwitched,
    Overran,
    ReplyReceived,
    ResultCut,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolsOpened,
    TurnStarted,
    Warned,
    Where,
)
from remit.types.messages import (
    AssistantMessage,
    Call,
    Delta,
    FilePart,
    ImagePart,
    Message,
    Reply,
    Request,
    TextPart,
    Thinking,
    ToolMessage,
    ToolSpec,
    UserMessage,
    user,
)
from remit.types.outcome import Artifact, Outcome, Rejection, Status, ToolCallLog

HEAD = {"seq": 1, "at": 0.0, "where": Where("r1", None, "r1", 0, (), ""), "v": VERSION}
"""The header fields of every event, with minimal values."""

USAGE = Usage(1, 100, 20, 10, 5, 0.0, estimated=True)
THOUGHT = Thinking("hm", "sig", "anthropic")
CALL = Call("c1", "read", {"path": "ä.txt", "deep": {"list": [1, 2.5, None, True]}})
BAD_CALL = Call("c2", "read", "{not json")
REPLY = Reply("hello", (CALL, BAD_CALL), (THOUGHT,), "calls", USAGE, "m-1")
TASK = UserMessage(
    (TextPart("look"), ImagePart("image/gif", b"\x00\xff"), FilePart("a.pdf", url="https://x"))
)
SPOKEN = AssistantMessage("hi", (CALL,), (THOUGHT,))
RESULT = ToolMessage("c1", "read", "no such file", ok=False, note="[remit] try again")
LOG = ToolCallLog("read", "Read", "ä.txt", "3 lines", success=True, duration_ms=0)
ARTIFACT = Artifact("r1/answer", "answer", 10, 12)
REJECTION = Rejection("depth", "too deep", limit=0, used=0)
CHILD = Outcome(
    status=Status.CANCELLED, agent="worker", run_id="r1.1", parent_id="r1", depth=1, reason="by you"
)
OUTCOME = Outcome(
    status=Status.COMPLETED,
    agent="lead",
    run_id="r1",
    text="done",
    calls=(LOG,),
    usage=USAGE,
    total_usage=USAGE,
    children=(CHILD,),
    messages=(TASK, SPOKEN, RESULT),
    output={"answer": [1, "two"]},
    artifacts=(ARTIFACT,),
    error="e",
    failed_tool="read",
    duration_s=1.5,
    warnings=("w",),
)
REQUEST = Request(
    agent="lead",
    run_id="r1",
    depth=0,
    instructions="be kind",
    messages=(TASK, SPOKEN, RESULT),
    tools=(ToolSpec("read", "Reads.", {"type": "object"}),),
    tool_choice="none",
    max_output_tokens=10,
    output_schema=None,
    settings={"temperature": 0.0},
)
QUESTION = ApprovalRequest(
    id="a1", path=("lead",), agent="lead", task="go", tool="write", args={"path": "x"}, total_usage=USAGE
)

RECORDS: list[Struct] = [
    *TASK.content,
    *(CALL, BAD_CALL, Call("c", "n"), THOUGHT, Thinking(), TASK, user(""), SPOKEN, AssistantMessage()),
    *(RESULT, ToolMessage("c", "n", ""), REPLY, Reply(), Delta("a", "b"), Delta(), REQUEST, *REQUEST.tools),
    *(LOG, ToolCallLog("", "", "", "", success=False), ARTIFACT, REJECTION, Rejection("busy", "")),
    *(OUTCOME, CHILD, USAGE, Usage(), Limits(turns=1, usd=None), Limits(), QUESTION, Decision(allowed=True)),
]

BARE: dict[type[Event], dict[str, object]] = {
    RunStarted: {"task": user("")},
    RunResumed: {},
    InstructionsWritten: {"instructions": ""},
    RunEnded: {"outcome": CHILD},
    TurnStarted: {"turn": 0},
    ReplyReceived: {"turn": 0, "reply": Reply(), "usage": Usage()},
    ModelCallFailed: {"turn": 0, "attempt": 0, "error": "", "error_kind": "", "usage": Usage()},
    ModelSwitched: {"before": "", "model": ""},
    DeltaReceived: {"turn": 0},
    CallChanged: {"call": "", "tool": "", "args": {}},
    CallStarted: {"call": "", "tool": ""},
    CallProgressed: {"call": "", "tool": "", "text": ""},
    CallEnded: {"call": "", "tool": "", "success": False, "content": ""},
    ResultCut: {"call": "", "content": ""},
    Compacted: {"summary": "", "task_at": 0, "kept_from": 0, "kept_to": 0},
    ChildQueued: {"call": "", "child": "", "waiting": 0},
    DelegationRejected: {"call": "", "rejection": REJECTION},
    ApprovalRequested: {"request": "", "call": "", "tool": ""},
    ApprovalAnswered: {"request": "", "call": "", "allowed": False},
    MessageSent: {"message": user("")},
    MessageJoined: {"message": user("")},
    CancelRequested: {"by": ""},
    LimitMet: {"limit": ""},
    Overran: {"reserved": 0, "used": 0, "resource": ""},
    ArtifactSaved: {"artifact": ARTIFACT},
    Warned: {"text": ""},
    ToolsOpened: {"source": ""},
    EventsMissed: {"missed": 0},
}
"""For each event, its required fields."""

FULL: dict[type[Event], dict[str, object]] = {
    RunStarted: {
        "task": TASK,
        "label": "l",
        "call": "c1",
        "nickname": "n",
        "model": "m",
        "instructions": "i",
        "tools": ("read",),
        "subagents": ("worker",),
        "limits": Limits(tokens=None, usd=0.5, depth=0),
        "history": (TASK, SPOKEN, RESULT),
    },
    RunEnded: {"outcome": OUTCOME},
    RunResumed: {"limits": Limits(turns=1, usd=None)},
    TurnStarted: {
        "turn": 2,
        "attempt": 3,
        "purpose": "summary",
        "reserved": 9,
        "input_tokens": 4,
        "input_usd": 0.0,
    },
    ReplyReceived: {"turn": 2, "reply": REPLY, "usage": USAGE, "purpose": "wrap_up", "again": True},
    ApprovalAnswered: {
        "request": "a",
        "call": "c",
        "allowed": True,
        "args": {"n": [1]},
        "stopped": True,
        "command": "x",
    },
    CallChanged: {"call": "c", "tool": "read", "args": {"n": [1]}, "hooks": ("h",)},
    MessageJoined: {"message": TASK, "origin": "runtime", "purpose": "wrap_up", "command": "x"},
    ModelCallFailed: {
        "turn": 2,
        "attempt": 1,
        "error": "e",
        "error_kind": "server",
        "usage": USAGE,
        "retry_in_s": 0.0,
    },
    DeltaReceived: {"turn": 1, "text": "t", "thinking": "h"},
    CallEnded: {
        "call": "c1",
        "tool": "read",
        "success": True,
        "content": "ä\u0000",
        "details": {"n": [2**63]},
        "unfinished": True,
    },
}
"""For events with optional fields, all fields."""


def make(kind: type[Event], **fields: object) -> Event:
    return kind(**{**HEAD, **fields})


EVENTS = [make(kind, **fields) for table in (BARE, FULL) for kind, fields in table.items()]


def name(record: object) -> str:
    return type(record).__name__


def test_the_tables_cover_every_event_class() -> None:
    """Each event class is in the tables, and each has its own kind."""
    assert set(get_args(AnyEvent)) == set(BARE) == set(Event.__subclasses__())
    assert len({event.kind for event in EVENTS}) == len(BARE)


@pytest.mark.parametrize("record", [*RECORDS, *EVENTS], ids=name)
def test_every_record_is_frozen(record: Struct) -> None:
    """No field of a record can be assigned."""
    for field in record.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(record, field, None)


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_every_record_round_trips_through_json(record: Struct) -> None:
    """A record is equal after JSON, with the same types at every level."""
    data = msgspec.json.encode(record)
    again = msgspec.json.decode(data, type=type(record))
    assert again == record
    assert msgspec.json.encode(again) == data


@pytest.mark.parametrize("event", EVENTS, ids=name)
def test_every_event_round_trips_through_json(event: Event) -> None:
    """An event is decoded as its own class with all its fields."""
    again = decode(encode(event))
    assert type(again) is type(event)
    assert again == event
    assert decode(encode(event).decode()) == event


@pytest.mark.parametrize("event", EVENTS, ids=name)
def test_every_event_has_its_header_in_json(event: Event) -> None:
    """kind, v, seq, at, run, parent, root, depth, path and agent are in the JSON of every event, even with default values."""
    raw = msgspec.json.decode(encode(event), type=dict[str, object])
    where = {"run": "r1", "parent": None, "root": "r1", "depth": 0, "path": [], "agent": ""}
    assert raw.items() >= {**HEAD, "where": where}.items()
    assert raw["kind"] == event.kind


@pytest.mark.parametrize("event", EVENTS, ids=name)
def test_an_event_of_a_newer_writer_can_still_be_read(event: Event) -> None:
    """Unknown extra fields are ignored, at the top level and in every nested record."""
    raw = msgspec.json.decode(encode(event))
    assert decode(msgspec.json.encode(with_news(raw, ""))) == event


def with_news(value: object, key: str) -> object:
    """Add an unknown field to every record; arguments and answers are user data and stay unchanged."""
    if isinstance(value, list):
        return [with_news(v, key) for v in cast(list[object], value)]
    if not isinstance(value, dict) or key in ("args", "details", "output"):
        return value
    record = cast(dict[str, object], value)
    return {"newer": [1], **{k: with_news(v, k) for k, v in record.items()}}


@pytest.mark.parametrize("missing", [*HEAD, "kind"])
def test_an_event_without_a_header_field_is_not_decoded(missing: str) -> None:
    """A missing header field is an error; the reader does not invent a value."""
    raw = msgspec.json.decode(encode(make(Warned, text="w")), type=dict[str, object])
    del raw[missing]
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode(raw))


def spoilt(**fields: object) -> bytes:
    event = make(RunStarted, task=user("go"), limits=Limits(turns=5))
    return msgspec.json.encode({**msgspec.json.decode(encode(event), type=dict[str, object]), **fields})


CALL_ENDED = encode(make(CallEnded, call="c", tool="t", success=True, content="here", details=1))

GARBAGE: list[bytes | str] = [
    *(
        b"",
        b"{",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"{}",
        b"\xff\xfe",
        b"\x00",
        "",
        "\ud800",
        '"\ud800"',
        "{'a': 1}",
    ),
    encode(make(Warned, text="w"))[:-1],
    encode(make(Warned, text="w")).replace(b'"warned"', b'"unheard_of"'),
    *(
        spoilt(limits={"turns": 0}),
        spoilt(limits={"usd": -1}),
        spoilt(limits={"when_full": "?"}),
        spoilt(seq="x"),
    ),
    *(
        spoilt(task=None),
        spoilt(where={"path": "lead"}),
        spoilt(where=None),
        spoilt(history=[{"role": "nobody"}]),
    ),
    CALL_ENDED.replace(b"here", b"\xff"),
    CALL_ENDED.replace(b'"details":1', b'"details":' + b"[" * 100_000 + b"]" * 100_000),
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_damaged_data_raises_decode_error(data: bytes | str) -> None:
    """Decoding damaged data raises msgspec.DecodeError and nothing else."""
    with pytest.raises(msgspec.MsgspecError):
        decode(data)


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60)))
def test_random_data_raises_decode_error(data: bytes | str) -> None:
    """Random bytes and texts raise msgspec.DecodeError and nothing else."""
    with pytest.raises(msgspec.MsgspecError):
        decode(data)


@given(st.sampled_from(EVENTS), st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_an_overwritten_event_decodes_or_raises_decode_error(event: Event, where: int, damage: bytes) -> None:
    """An event with overwritten bytes decodes or raises msgspec.DecodeError, nothing else."""
    data = bytearray(encode(event))
    where %= len(data)
    data[where : where + len(damage)] = damage
    with suppress(msgspec.MsgspecError):
        assert isinstance(decode(bytes(data)), Event)


def test_blank_lines_of_a_journal_are_skipped() -> None:
    """Blank lines between events are ignored."""
    lines = [b"\n", *(line for event in EVENTS for line in (encode(event), b"  \n"))]
    assert decode_lines(b"".join(lines)) == EVENTS


def test_a_message_is_known_by_its_role() -> None:
    """A conversation survives JSON: each message is decoded as its own class."""
    conversation: list[Message] = [TASK, SPOKEN, RESULT]
    data = msgspec.json.encode(conversation)
    assert msgspec.json.decode(data, type=list[Message]) == conversation
    roles = [m["role"] for m in msgspec.json.decode(data, type=list[dict[str, object]])]
    assert roles == ["user", "assistant", "tool"]


def test_the_text_of_a_message() -> None:
    """Each message has a text: the user's text parts, the model's text, or the result followed by remit's note."""
    assert (TASK.text, SPOKEN.text, RESULT.text) == ("look", "hi", "no such file\n\n[remit] try again")


async def test_the_events_of_a_real_tree_round_trip_through_json() -> None:
    """The events of a real run survive JSON, and their JSON has the header fields."""
    lead = Agent("lead", subagents=[Agent("worker", description="Works.")])
    script = {"lead": [call("task", agent="worker", prompt="go"), say("done")], "worker": [say("found")]}
    async with start(lead, "go", model=ScriptedModel(script)) as running:
        events = [event async for event in running.events()]
    assert {event.depth for event in events} == {0, 1}
    for event in events:
        raw = msgspec.json.decode(encode(event), type=dict[str, object])
        assert raw.keys() >= {*HEAD, "kind"}
        assert decode(encode(event)) == event


def test_the_repr_of_an_outcome_is_short() -> None:
    """The repr is one short line: asyncio calls repr() when a program ends, and that of a large tree would take longer than the tree ran."""
    child = Outcome(Status.COMPLETED, "child", "r.1", text="found\n" * 100_000)
    outcome = Outcome(
        Status.INCOMPLETE,
        "lead",
        "r",
        partial="so far " * 100_000,
        reason="turns",
        turns=3,
        children=(child,) * 1_000,
        messages=(user("look " * 100_000),),
    )
    shown = repr(outcome)
    assert shown.startswith(
        "Outcome(status='incomplete', agent='lead', run_id='r', reason='turns', partial='so far "
    )
    assert shown.endswith("...', turns=3, calls=0, children=1000, messages=1)")
    assert max(map(len, (shown, repr(child)))) < 600
    assert "\n" not in repr(child)
    # The reason for a stop can be of any length.
    assert len(repr(Outcome(Status.CANCELLED, "lead", "r", reason="because " * 100_000))) < 600
