"""The line of an event: its state at `append`, without secrets in any field."""

from __future__ import annotations

import types
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from remit.history.redaction import Redactor
from remit.stores.writing.lines import line_of
from remit.stores.writing.pages import pages_of
from remit.testing.samples import head
from remit.types.event_json import encode
from remit.types.events import CallEnded, CallStarted, Event, ReplyReceived, RunEnded, RunStarted, TurnStarted
from remit.types.limits import Usage
from remit.types.messages import Call, Json, Reply, user
from remit.types.outcome import Outcome, Status

SECRET = "sk-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
OURS = {"run", "parent", "root", "path", "agent", "run_id", "parent_id"}
"""Fields that are not redacted: ids and names of agents."""


def events(text: str = "words", other: str = "more") -> list[Event]:
    """One event of each of the most frequent kinds."""
    outcome = Outcome(Status.COMPLETED, "lead", "r.1", text=text, reason=other, label=other, error=other)
    return [
        RunStarted(**head("r", 1), task=user(text), instructions=other, label=other),
        TurnStarted(**head("r", 2), turn=1),
        ReplyReceived(**head("r", 3), turn=1, reply=Reply(text, model=other), usage=Usage(1)),
        CallStarted(**head("r", 4), call="c", tool="look", context=text),
        CallEnded(**head("r", 5), call="c", tool="look", success=True, content=text, note=other),
        CallEnded(**head("r", 6), call="c", tool="look", success=True, content=other, details={}),
        RunEnded(**head("r", 7), outcome=outcome),
    ]


def written(found: list[Event], redactor: Redactor) -> list[bytes]:
    pages = pages_of("r", [line_of(event) for event in found], redactor)
    return b"\n".join(page.data for page in pages).split(b"\n")


def fill(hint: Any, value: object) -> Iterator[object]:
    """The value with the secret in each place that holds text."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is str:
        yield SECRET
    elif hint is Json or isinstance(hint, TypeVar):
        yield {"deep": [SECRET]}
    elif isinstance(origin, type) and issubclass(origin, Struct):
        yield from fill(origin, value)
    elif isinstance(hint, type) and issubclass(hint, Struct):
        known = value if isinstance(value, hint) else None
        yield from fields(known) if known is not None else ()
    elif origin in (Union, types.UnionType):
        for one in inside:
            yield from fill(one, value)
    elif origin is tuple:
        for item in fill(inside[0], value[0] if isinstance(value, tuple) and value else None):
            yield (item,)
    elif origin is dict:
        yield {"name": SECRET}
    else:
        assert hint in (int, float, bool, type(None), msgspec.UnsetType, Status) or origin is Literal, hint


def fields(record: Struct) -> Iterator[Struct]:
    for field in msgspec.structs.fields(record):
        if field.name not in OURS:
            for value in fill(field.type, getattr(record, field.name)):
                yield msgspec.structs.replace(record, **{field.name: value})


@pytest.mark.parametrize("event", events(), ids=lambda event: f"{event.seq} {event.kind}")
def test_every_text_field_is_redacted(event: Event) -> None:
    """A secret in any field, also a new one, is redacted before it is written."""
    changed = list(fields(event))
    assert len(changed) >= (event.kind != "turn_started")
    for one in changed:
        assert isinstance(one, Event)
        assert SECRET in encode(one).decode()
        (line,) = written([one], Redactor(environment={}))
        assert SECRET[3:] not in line.decode()


PIECES = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            [
                SECRET,
                "\n",
                "\\",
                '"',
                "password=",
                "PASSWORD: ",
                "hunter2x9",
                "Bearer ",
                "secret=",
                "https://a:",
            ]
        ),
        st.sampled_from(["@host/", "authorization: basic ", "b4dW0rd!", "\x1f", "a" * 25, "ghp_", "0aB" * 9]),
    ),
    max_size=8,
).map("".join)


@given(PIECES, PIECES, st.sampled_from([(), ("hunter2x9",), ("words", "a")]), st.booleans())
def test_redacting_a_page_equals_redacting_its_lines(
    text: str, other: str, secrets: tuple[str, ...], lengthened: bool
) -> None:
    """Searching a page as one text finds the same secrets and keeps the same text."""
    redactor = Redactor(secrets, environment={})
    reply = Reply(calls=(Call("c", "look", {"words": other, other: text}),), stop="calls")
    asked = ReplyReceived(**head("r", 3), turn=1, reply=reply, usage=Usage(1))
    found = [*events("so " * 1_000 + text if lengthened else text, other), asked, *events(other, text)]
    assert written(found, redactor) == [redactor.redact(encode(event)) for event in found]


NAMES = ["token=", "secret: ", "passwd=", "--token ", "api_key=", "bearer ", "://a:", "PATH=", "ghp_", ""]
VALUES = ["q7Gd82hsKQ01mvPz55xW", SECRET, "hunter2x9", "/etc/a.b", "./a", "a.b/c@", "words", ""]
BETWEEN = ["\0", "\x01", "\x1b[0m", "\x1f", "\n", "\t", "\x0b", " ", '"', "\\", ",", "\u2028", ""]


def test_a_text_without_secrets_has_none_in_json() -> None:
    """JSON escapes between two words are not taken for parts of a secret."""
    redactor = Redactor(["hunter2x9"], environment={})
    for said in product(NAMES, VALUES, BETWEEN, VALUES):
        # With a long run in the text, every shape is searched in both forms.
        text = "".join(said) + f" {'0aB' * 9}"
        data = encode(CallStarted(**head("r", 1), call="c", tool="look", context=text))
        assert redactor.redact_text(text) != text or redactor.redact(data) == data, said


def test_a_value_of_the_wrong_type_is_written() -> None:
    """A bug in a user's tool must not lose the rest of a tree."""
    odd: Any = 5
    ended = CallEnded(
        **head("r", 1), call="c", tool="look", success=True, content="x" * 1_000, display_name=odd
    )
    (line,) = written([ended], Redactor(environment={}))
    assert b'"display_name":5' in line
