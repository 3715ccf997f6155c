"""Secrets in events of which there is no JSON yet: no text of them is forgotten, and what is written is the same."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from remit.history.redaction import Redactor
from remit.stores.writing.pages import pages_of
from remit.stores.writing.texts import LONG_CHARS, MOST_SEARCHED, TEXTS, Searched, texts_of
from remit.stores.writing.waiting import CHANGEABLE, Waiting, weigh, weighed
from remit.testing.samples import head
from remit.types.event_json import encode
from remit.types.events import CallEnded, CallStarted, Event, ReplyReceived, RunEnded, RunStarted, TurnStarted
from remit.types.limits import Usage
from remit.types.messages import NO_DETAILS, Call, Json, JsonObject, Reply, user
from remit.types.outcome import Outcome, Status

SECRET = "sk-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
OURS = {"run", "parent", "root", "path", "agent", "run_id", "parent_id"}
"""Ids, and the names of agents: those are looked for where a run begins."""


def events(text: str = "words", other: str = "more") -> list[Event]:
    """One of each kind that waits as it is."""
    outcome = Outcome(Status.COMPLETED, "lead", "r.1", text=text, reason=other, label=other, error=other)
    return [
        RunStarted(**head("r", 1), task=user(text), instructions=other, label=other),
        TurnStarted(**head("r", 2), turn=1),
        ReplyReceived(**head("r", 3), turn=1, reply=Reply(text, model=other), usage=Usage(1)),
        CallStarted(**head("r", 4), call="c", tool="look", context=text),
        CallEnded(**head("r", 5), call="c", tool="look", success=True, content=text, note=other),
        CallEnded(**head("r", 6), call="c", tool="look", success=True, content=other, details=NO_DETAILS),
        RunEnded(**head("r", 7), outcome=outcome),
    ]


def waiting(*found: Event) -> list[Waiting]:
    return [weighed(event, weight) if (weight := weigh(event)) else event for event in found]


def written(found: list[Waiting], redactor: Redactor, searched: Searched | None = None) -> str:
    return "\n".join(page.data.decode() for page in pages_of("r", found, redactor, searched or Searched()))


def fill(hint: Any, value: object) -> Iterator[object]:
    """The value with the secret in each place that a text can have in it."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is str:
        yield SECRET
    elif hint is Json:
        yield {"deep": [SECRET]}
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


def test_every_kind_that_waits_is_here() -> None:
    assert {type(event) for event in events()} == set(TEXTS)
    assert not any(map(weigh, events()))


@pytest.mark.parametrize("event", events(), ids=lambda event: f"{event.seq} {event.kind}")
def test_no_text_is_forgotten(event: Event) -> None:
    """A secret in whatever field, also in one that is new, is found before it is written."""
    changed = list(fields(event))
    assert len(changed) >= (event.kind != "turn_started")
    for one in changed:
        assert isinstance(one, Event)
        assert SECRET in encode(one).decode()
        assert weigh(one) == CHANGEABLE or SECRET in texts_of([one]), one
        assert SECRET[3:] not in written(waiting(one), Redactor(environment={}))


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


@given(PIECES, PIECES, st.sampled_from([(), ("hunter2x9",), ("words", "a")]), st.booleans(), st.booleans())
def test_what_is_written_is_what_was_written_line_by_line(
    text: str, other: str, secrets: tuple[str, ...], lengthened: bool, asked: bool
) -> None:
    """With a secret in any text the JSON of each event is looked through; without one, it stays as it is."""
    redactor = Redactor(secrets, environment={})
    found = events("so " * LONG_CHARS + text if lengthened else text, other)
    texts = texts_of(found)
    dirty = not redactor.are_clean(texts)
    assert dirty >= any(redactor.redact_text(one) != one for one in texts)
    if asked:
        reply = Reply(calls=(Call("c", "look", {"words": other}),), stop="calls")
        found.insert(3, ReplyReceived(**head("r", 3), turn=1, reply=reply, usage=Usage(1)))
        dirty = dirty or not redactor.is_clean(encode(found[3]))
    expected = [redactor.redact(encode(e)) if dirty else encode(e) for e in found]
    assert written(waiting(*found), redactor).encode().split(b"\n") == expected


NAMES = ["token=", "secret: ", "passwd=", "--token ", "api_key=", "bearer ", "://a:", "PATH=", "ghp_", ""]
VALUES = ["q7Gd82hsKQ01mvPz55xW", SECRET, "hunter2x9", "/etc/a.b", "./a", "a.b/c@", "words", ""]
BETWEEN = ["\0", "\x01", "\x1b[0m", "\x1f", "\n", "\t", "\x0b", " ", '"', "\\", ",", "\u2028", ""]


def test_a_text_that_is_clean_is_clean_in_json() -> None:
    """What the search of JSON would find the search of texts finds too, whatever stands between two words."""
    redactor = Redactor(["hunter2x9"], environment={})
    for said in product(NAMES, VALUES, BETWEEN, VALUES):
        # With something long in it, each shape is looked for in either.
        text = "".join(said) + f" {'0aB' * 9}"
        data = encode(CallStarted(**head("r", 1), call="c", tool="look", context=text))
        assert not redactor.are_clean([text]) or redactor.redact(data) == data, said


class Watched(Redactor):
    """Tells what it was asked to look through."""

    def __init__(self) -> None:
        super().__init__(environment={})
        self.seen: list[str] = []

    def are_clean(self, texts: Iterable[str]) -> bool:
        given = list(texts)
        self.seen += given
        return super().are_clean(given)

    def is_clean(self, data: bytes) -> bool:
        self.seen.append(data.decode())
        return super().is_clean(data)

    def times(self, text: str) -> int:
        return sum(one.count(text) for one in self.seen)


def asked(args: JsonObject) -> ReplyReceived:
    reply = Reply(calls=(Call("toolu_01A09q90qw90lq917835", "task", args),), stop="calls")
    return ReplyReceived(**head("r", 1), turn=1, reply=reply, usage=Usage(1))


def answered(text: str) -> list[Event]:
    outcome = Outcome(Status.COMPLETED, "child", "r.1", text=text)
    return [
        ReplyReceived(**head("r", 4), turn=1, reply=Reply(text), usage=Usage(1)),
        RunEnded(**head("r", 5), outcome=outcome),
        CallEnded(**head("r", 6), call="toolu_01A09q90qw90lq917835", tool="task", success=True, content=text),
    ]


def test_what_stands_in_several_events_is_looked_through_once() -> None:
    """A child's task is in the call that asked for it too, its answer in three events, and a call's id in all of its own."""
    redactor, searched = Watched(), Searched()
    task, answer = "a task " * LONG_CHARS, "an answer " * LONG_CHARS
    batches: list[list[Event]] = [
        [asked({"agent": "child", "prompt": task})],
        [CallStarted(**head("r", 2), call="toolu_01A09q90qw90lq917835", tool="task")],
        [RunStarted(**head("r", 3), task=user(task), call="toolu_01A09q90qw90lq917835")],
        *([event] for event in answered(answer)),
    ]
    lines = [written(waiting(*batch), redactor, searched) for batch in batches]
    assert lines == [encode(event).decode() for batch in batches for event in batch]
    assert [redactor.times(text) for text in (task, answer, "toolu_01A09q90qw90lq917835")] == [1, 1, 1]


def test_a_secret_is_found_wherever_it_stands() -> None:
    """What was found to have one is not remembered as clean, nor is an argument that was changed after the call."""
    long = "so " * LONG_CHARS
    redactor, searched = Watched(), Searched()
    args: JsonObject = {"prompt": long + SECRET}
    call = waiting(asked(args))
    args["prompt"] = f"{long} and {SECRET}"
    for batch in (call, *([one] for one in waiting(*events(long + SECRET), *answered(str(args["prompt"]))))):
        assert SECRET[3:] not in written(batch, redactor, searched)
    clean: JsonObject = {"prompt": long}
    call = waiting(asked(clean))
    clean["prompt"] = long + SECRET
    assert SECRET not in written(call, redactor, searched)
    begun = RunStarted(**head("r", 2), task=user(str(clean["prompt"])))
    assert SECRET[3:] not in written(waiting(begun), redactor, searched)


def test_what_should_be_a_text_and_is_not_is_written() -> None:
    """A slip in a tool of somebody's is no reason to lose the rest of a tree."""
    odd: Any = 5
    ended = CallEnded(
        **head("r", 1), call="c", tool="look", success=True, content="x" * LONG_CHARS, display_name=odd
    )
    assert '"display_name":5' in written(waiting(ended), Redactor(environment={}))


def test_not_everything_is_remembered() -> None:
    """A tree that goes on for days does not fill the memory with what was said in it."""
    searched = Searched()
    texts = [f"{n} " * MOST_SEARCHED for n in range(3)]
    for text in texts:
        searched.add([text])
    assert searched.without(set(texts)) == set(texts[:2])
    for n in range(MOST_SEARCHED // 50):
        searched.add([f"call_{n}"])
    assert len(searched.without({f"call_{n}" for n in range(MOST_SEARCHED // 50)})) > 1_000


@given(PIECES)
def test_what_is_clean_in_one_event_is_clean_in_another(text: str) -> None:
    """So what a call was given need not be looked through again where it is a task."""
    redactor = Redactor(("hunter2x9",), environment={})
    if redactor.is_clean(encode(asked({"prompt": text}))):
        assert redactor.is_clean(encode(RunStarted(**head("r", 2), task=user(text))))
