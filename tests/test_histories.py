"""Recorded histories: journals that every later version has to read, and read the same.

`tests/histories/NAME.jsonl` is a journal as it was written; `NAME.tree.json` is what `fold` makes of it. A change that
makes one of these tests fail breaks trees that people have stored: change the reading, not the recording.

To record one that is new, add its function to `RECORDERS` and run, from the root of the checkout,
`.venv/bin/python tests/test_histories.py NAME`. With `--trees` instead of names only the snapshots are written anew:
for a fact that is added to them, after a look at what else has changed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from remit import Agent, Limits, Request, Usage, allow, deny, resume, run, start, tool
from remit.events import CallStarted, Event, TurnStarted, decode, decode_lines, encode
from remit.history import RunRecord, Tree, elapsed
from remit.messages import AssistantMessage, JsonObject, Message, ToolMessage
from remit.policy import ApprovalRequest, Decision
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, fail, run_virtual, say, wrapped
from remit.testing.scripted import Line
from remit.tree import fold

FOLDER = Path(__file__).parent / "histories"
NAMES = sorted(path.name.removesuffix(".jsonl") for path in FOLDER.glob("*.jsonl"))


def read(name: str) -> list[Event]:
    return list(decode_lines((FOLDER / f"{name}.jsonl").read_bytes()))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_history_folds_as_it_did(name: str) -> None:
    """What was stored stays readable, and means the same in every later version."""
    expected = (FOLDER / f"{name}.tree.json").read_text(encoding="utf-8")
    assert picture(fold(read(name))) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_beginning_of_a_recorded_history_folds(name: str) -> None:
    """A journal that was cut off anywhere is read as far as it goes."""
    events = read(name)
    for cut in range(1, len(events)):
        tree = fold(events[:cut])
        assert tree.seq == events[cut - 1].seq
        assert picture(tree)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_history_can_be_stored_again(name: str) -> None:
    """What was read and is written again, as when a journal moves to another store, is read as the same."""
    events = read(name)
    assert [decode(encode(event)) for event in events] == events


def test_every_recorder_has_its_history() -> None:
    """No history is without a way to make one like it, and the other way round."""
    assert sorted(RECORDERS) == NAMES


def test_a_field_that_is_not_known_is_passed_over() -> None:
    """A later version may say more of an event; what is known of it is read."""
    line = encode(read("plain")[0])
    assert decode(line[:-1] + b',"mood":"fine","nested":{"a":[1]}}') == decode(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"kind":"dreamt","seq":1}',
        b'{"seq":1}',
        b"[" * 5000,
    ],
)
def test_what_is_no_event_is_a_decode_error(line: bytes) -> None:
    """An unknown kind, a cut line or garbage raises one kind of error, whatever is wrong with it."""
    with pytest.raises(msgspec.DecodeError):
        decode(line)


@pytest.mark.parametrize("broken", ["kind", "seq", "at", "run", "root", "path", "v", "task"])
def test_an_event_that_lacks_something_is_a_decode_error(broken: str) -> None:
    """Every field without a default has to be there, and to be of its type."""
    whole = msgspec.json.decode(encode(read("plain")[0]))
    for wrong in ({k: v for k, v in whole.items() if k != broken}, {**whole, broken: {"x": [None]}}):
        with pytest.raises(msgspec.DecodeError):
            decode(msgspec.json.encode(wrong))


def picture(tree: Tree) -> str:
    """What fold gives, for people and for comparing: the facts that others rely on, not how they are kept."""
    facts = {
        "root": tree.root,
        "status": tree.status,
        "seq": tree.seq,
        "usage": tree.usage(),
        "intents": [list(msgspec.structs.astuple(intent)) for intent in tree.intents()],
        "requests": list(tree.requests),
        "asked": tree.asked,
        "grants": [list(msgspec.structs.astuple(grant)) for grant in tree.grants],
        "commands": sorted(tree.commands),
        "artifacts": tree.artifacts,
        "runs": [_run(tree, record) for record in tree.runs.values()],
    }
    return msgspec.json.format(msgspec.json.encode(facts), indent=1).decode() + "\n"


def _run(tree: Tree, record: RunRecord) -> dict[str, object]:
    outcome = tree.outcomes()[record.id]
    bare = msgspec.structs.replace(outcome, children=(), messages=())
    return {
        "id": record.id,
        "parent": record.parent,
        "path": record.path,
        "label": record.label,
        "tools": record.tools,
        "limits": record.limits,
        "seconds": round(elapsed(record, tree.at), 6),
        "spending": tree.spending()[record.id]._asdict(),
        "messages": [_message(m) for m in record.messages],
        "calls": [
            [c.turn, c.call.name, c.call.args, c.started, c.child, c.ended and c.ended.summary]
            for c in record.calls
        ],
        "asking": record.asking is not None,
        "unanswered": record.unanswered is not None,
        "asides": sorted(record.asides),
        "overran": sorted(record.overran),
        "children": record.children,
        "outcome": msgspec.structs.replace(bare, duration_s=round(bare.duration_s, 6)),
    }


def _message(message: Message) -> list[object]:
    if isinstance(message, ToolMessage):
        return ["tool", message.call_id, message.ok, message.content, message.note]
    if isinstance(message, AssistantMessage):
        return ["assistant", message.text, [c.id for c in message.calls]]
    return ["user", message.text]


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks for a second."""
    await asyncio.sleep(1)
    return f"saw {what}"


@tool
async def change(what: str) -> str:
    """Changes something for two seconds."""
    await asyncio.sleep(2)
    return f"changed {what}"


def by_turn(*steps: Line, wrap: str = "in short") -> Callable[[Request], Line]:
    def play(request: Request) -> Line:
        if request.tool_choice == "none":
            return wrapped(wrap)
        return steps[sum(isinstance(m, AssistantMessage) for m in request.messages)]

    return play


LEAF = Agent("leaf", description="Looks.", instructions="Look.", tools=[look, change])
MID = Agent("mid", subagents=[LEAF], limits=Limits(turns=5))
LEAD = Agent("lead", nickname="the lead", subagents=[MID, LEAF], tools=[look, change])
TASK: JsonObject = {"agent": "leaf", "prompt": "a part"}


def three_levels() -> ScriptedModel:
    both = calls(
        call("task", agent="mid", prompt="the left half", description="left"),
        call("look", what="around"),
        call("task", agent="mid", prompt="the right half"),
    )
    return ScriptedModel(
        {
            "lead": by_turn(both, call("change", what="the end"), say("all done")),
            "mid": by_turn(call("task", TASK), say("half done")),
            "leaf": by_turn(
                calls(call("look", what="a"), call("change", what="b")), say("leaf done", delay=1)
            ),
        }
    )


async def plain(store: MemoryStore) -> None:
    model = ScriptedModel([call("look", what="a", text="I look."), say("done", thinking="hm")])
    await run(LEAF, "go", model=model, store=store)


async def levels(store: MemoryStore) -> None:
    await run(LEAD, "go", model=three_levels(), store=store, policy=["allow *"])


async def approvals(store: MemoryStore) -> None:
    answers = [allow(), deny("not this one"), allow(scope="run"), allow(scope="tree")]

    async def person(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(60)
        return answers.pop(0) if answers else deny("never asked")

    steps = [call("change", what=w) for w in "abcde"]
    model = ScriptedModel(
        {
            "lead": by_turn(steps[0], steps[1], call("task", TASK), *steps[:2], say("done")),
            "leaf": by_turn(*steps[2:4], say("ok")),
        }
    )
    await run(LEAD, "go", model=model, store=store, approver=person)


async def waiting(store: MemoryStore) -> None:
    """Dies with an approval, a model call and an observing call open."""
    both = calls(call("change", what="a"), call("task", TASK), call("look", what="b"))
    model = ScriptedModel({"lead": by_turn(both), "leaf": by_turn(say("never", delay=900))})

    async def nobody(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(100_000)
        return deny()

    async with start(LEAD, "go", model=model, store=store, approver=nobody) as running:
        await asyncio.sleep(0.5)
        last = len([event async for event in store.read("r1")])
        await running.cancel()
    await cut(store, last)


async def limits(store: MemoryStore) -> None:
    usage = Usage(1, 400, 100, usd=0.001)
    leaf = by_turn(*[call("look", what=str(n)) for n in range(9)], wrap="three of nine")
    model = ScriptedModel(
        {
            "lead": by_turn(
                call("task", TASK, usage=usage), fail("busy", "overloaded", retry_after=2), say("never")
            ),
            "leaf": leaf,
        }
    )
    lead = Agent("lead", subagents=[Agent("leaf", tools=[look], limits=Limits(turns=3))], tools=[look])
    await run(lead, "go", model=model, store=store, limits=Limits(requests=7, result_chars=100))


async def cancelled(store: MemoryStore) -> None:
    async with start(LEAD, "go", model=three_levels(), store=store, policy=["allow *"]) as running:
        await asyncio.sleep(1.5)
        running.send("look twice", run="r1.2")
        await running.cancel("wrong half", run="r1.1")
        await asyncio.sleep(0.2)
        await running.cancel("enough")


async def crashed(store: MemoryStore) -> None:
    """Dies with a changing call open, and again with a model call open; then ends."""
    await run(LEAD, "go", model=three_levels(), store=store, policy=["allow *"])
    events = store._trees["r1"].events
    for kind, runs in ((CallStarted, "r1.1.1"), (TurnStarted, "r1.2.1")):
        last = max(n for n, e in enumerate(events) if isinstance(e, kind) and e.run == runs)
        await cut(store, last + 1)
        await asyncio.sleep(3600)
        events = store._trees["r1"].events
        await resume(store, "r1", agent=LEAD, model=three_levels(), policy=["allow *"])


async def ended_and_resumed(store: MemoryStore) -> None:
    """Met its turn limit, was resumed with more turns, and then cancelled and resumed."""
    agent = Agent("lead", tools=[look])

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(*[call("look", what=w) for w in "abc"], say("done"), wrap="so far"))

    await run(agent, "go", model=model(), store=store, limits=Limits(turns=2))
    await asyncio.sleep(100)
    await resume(store, "r1", agent=agent, model=model())
    await resume(store, "r1", agent=agent, model=model(), limits=Limits(turns=4))


async def artifacts(store: MemoryStore) -> None:
    writer = Agent("writer", tools=[look], summary="always")
    lead = Agent("lead", subagents=[writer, LEAF])
    model = ScriptedModel(
        {
            "lead": by_turn(
                calls(call("task", agent="writer", prompt="write"), call("task", TASK)),
                call("read_artifact", artifact="r1.1/answer", start=1190),
                say("done"),
            ),
            "writer": by_turn(say("word " * 240), wrap="many words"),
            "leaf": by_turn(say("long " * 60)),
        }
    )
    await run(lead, "go", model=model, store=store, limits=Limits(result_chars=200))


async def ad_hoc(store: MemoryStore) -> None:
    lead = Agent("lead", tools=[look, change], adhoc=True)
    below = call("subagent", label="deep", task_prompt="deeper", allowed_tools=["look"], max_turns=4)

    def worker(request: Request) -> Line:
        if request.messages[0].text == "deeper":
            return by_turn(call("look", what="it"), say("deep answer"), wrap="deep summary")(request)
        return by_turn(below, say("wide answer"), wrap="wide summary")(request)

    first = call("subagent", label="wide", task_prompt="wider")
    await run(
        lead,
        "go",
        model=ScriptedModel({"lead": by_turn(first, say("done")), "subagent": worker}),
        store=store,
    )


async def overrun(store: MemoryStore) -> None:
    much = Usage(1, 50, 9000)
    model = ScriptedModel(
        {
            "lead": by_turn(call("task", TASK), say("done")),
            "leaf": by_turn(call("look", what="a", usage=much), say("never")),
        }
    )
    await run(LEAD, "go", model=model, store=store, limits=Limits(tokens=25_000))


async def cut(store: MemoryStore, after: int) -> None:
    """Let what was recorded after so many events not have happened."""
    store._trees["r1"].events = store._trees["r1"].events[:after]


RECORDERS: dict[str, Callable[[MemoryStore], Awaitable[None]]] = {
    "plain": plain,
    "three_levels": levels,
    "approvals": approvals,
    "died_waiting": waiting,
    "limits": limits,
    "cancelled": cancelled,
    "crashed_and_resumed_twice": crashed,
    "ended_and_resumed": ended_and_resumed,
    "artifacts": artifacts,
    "ad_hoc": ad_hoc,
    "overrun": overrun,
}


async def record(name: str) -> list[Event]:
    store = MemoryStore()
    await RECORDERS[name](store)
    return [event async for event in store.read("r1")]


def main(asked: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES if asked == ["--trees"] else asked or sorted(RECORDERS):
        if asked != ["--trees"]:
            lines = [encode(event) + b"\n" for event in run_virtual(record, name)]
            (FOLDER / f"{name}.jsonl").write_bytes(b"".join(lines))
        (FOLDER / f"{name}.tree.json").write_text(picture(fold(read(name))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
