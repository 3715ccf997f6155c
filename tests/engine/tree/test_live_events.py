"""Live events: everybody who looks sees everything, nobody who looks can disturb, and every run tells the same story."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable
from itertools import groupby

import msgspec
import pytest

from remit import (
    Agent,
    ApprovalRequest,
    Event,
    Limits,
    Outcome,
    Running,
    ToolContext,
    UsageError,
    allow,
    run,
    start,
    tool,
)
from remit.engine.tree.stream import BUFFER
from remit.stores.memory import MemoryStore
from remit.testing import (
    ScriptedModel,
    VirtualTimeLoop,
    call,
    calls,
    fail,
    fixed_ids,
    run_virtual,
    say,
    wrapped,
)
from remit.tools.policy import Decision
from remit.types.event_json import decode, encode, encode_flat
from remit.types.events import (
    ApprovalRequested,
    CallProgressed,
    DeltaReceived,
    EventsMissed,
    RunEnded,
    RunStarted,
)

LONG = 10_000.0


@tool(tier="observe")
async def look(ctx: ToolContext) -> str:
    """Reads, and says so."""
    ctx.emit("looking")
    await asyncio.sleep(1)
    return "seen"


@tool(tier="observe")
def count_words(text: str) -> int:
    """Counts, in a thread."""
    return len(text.split())


@tool(tier="confirm")
async def publish() -> str:
    """Changes things."""
    return "published"


@tool(tier="observe")
async def chatty(lines: int, ctx: ToolContext) -> str:
    """Says a lot."""
    for n in range(lines):
        ctx.emit(f"line {n}")
    return "said it all"


def family() -> tuple[Agent, ScriptedModel]:
    """Two children with tools, one of which fails once; every step takes time."""
    both = calls(call("task", agent="kid", prompt="x"), call("task", agent="kid", prompt="y"))
    model = ScriptedModel(
        {
            "lead": [both, say("done", delay=1)],
            "kid": [call("look", delay=1), fail("busy"), say("kid is done", chunks=3, delay=1)],
        }
    )
    return Agent("lead", subagents=[Agent("kid", tools=[look])]), model


async def read(running: Running) -> list[Event]:
    return [e async for e in running.events()]


async def quietly() -> tuple[Outcome, list[Event]]:
    """The family run with one well-behaved reader; always with the same ids, so that delays are the same."""
    lead, model = family()
    with fixed_ids():
        async with start(lead, "go", model=model) as running:
            events = await read(running)
            return await running.outcome(), events


async def watched(on_event: Callable[[Event], object]) -> Outcome:
    """The same, with a plain function."""
    lead, model = family()
    with fixed_ids():
        return await run(lead, "go", model=model, on_event=on_event)


# --- Readers -------------------------------------------------------------------------------------------


async def test_every_reader_sees_everything() -> None:
    """Law 9: several readers, early and late, each see every event in order, and their loops end with the root."""
    lead, model = family()
    async with start(lead, "go", model=model) as running:
        early = [asyncio.create_task(read(running)) for _ in range(3)]
        await asyncio.sleep(1.5)
        late = asyncio.create_task(read(running))
        seen = [await reader for reader in (*early, late)]
        after = await read(running)
    assert [e.seq for e in after] == list(range(1, len(after) + 1))
    assert all(events == after for events in seen)
    assert isinstance(after[-1], RunEnded)
    assert after[-1].run == after[0].root


async def test_events_come_while_it_happens() -> None:
    """Law 9: a reader sees each event at the moment it happened, not after the end."""
    lead, model = family()
    clock = asyncio.get_running_loop()
    async with start(lead, "go", model=model) as running:
        first = None
        async for event in running.events():
            first = first if first is not None else event.at - clock.time()
            assert event.at - clock.time() == pytest.approx(first)


async def test_events_can_still_be_read_after_the_end() -> None:
    """Section 6: after the root has ended `events()` gives what happened and ends; it never waits for more."""
    lead, model = family()
    async with start(lead, "go", model=model) as running:
        await running.outcome()
    events = await read(running)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)


def test_events_before_the_block_are_a_mistake() -> None:
    """Section 6: a tree that does not run yet has no events, and says what to do."""
    lead, model = family()
    with pytest.raises(UsageError, match="async with"):
        start(lead, "go", model=model).events()


async def gives_up(running: Running) -> None:
    async for _ in running.events():
        return


async def stops_reading(running: Running) -> None:
    stream = running.events()
    await anext(stream)
    await running.outcome()
    async for _ in stream:
        pass


async def raises(running: Running) -> None:
    async for _ in running.events():
        raise ZeroDivisionError


async def is_slow(running: Running) -> None:
    async for _ in running.events():
        await asyncio.sleep(100)


@pytest.mark.parametrize("reader", [gives_up, stops_reading, raises, is_slow])
async def test_no_reader_disturbs_a_run(reader: Callable[[Running], object]) -> None:
    """Law 9: a reader that leaves, stops, raises or dawdles changes neither the run nor what others see."""
    expected, expected_events = await quietly()
    lead, model = family()
    with fixed_ids():
        async with start(lead, "go", model=model) as running:
            bad = asyncio.create_task(reader(running))  # pyright: ignore[reportArgumentType]
            events = await read(running)
            outcome = await running.outcome()
            bad.cancel()
            await asyncio.wait({bad})
            assert bad.cancelled() or isinstance(bad.exception(), ZeroDivisionError | None)
    assert outcome.duration_s == expected.duration_s
    assert [e.kind for e in events] == [e.kind for e in expected_events]


async def test_a_reader_that_is_too_slow_is_told_what_it_missed() -> None:
    """Law 9: a reader that falls behind by more than its buffer is told how many events it lost, and sees the rest."""
    extra = 50
    model = ScriptedModel([call("chatty", lines=BUFFER + extra), say("done")])
    async with start(Agent("lead", tools=[chatty]), "go", model=model) as running:
        stream = running.events()
        first = await anext(stream)
        outcome = await running.outcome()
        rest = [e async for e in stream]
    assert first.seq == 1
    assert outcome.text == "done"
    gap = rest[0]
    assert isinstance(gap, EventsMissed)
    assert len(rest) - 1 == BUFFER
    assert gap.missed == rest[1].seq - first.seq - 1
    assert isinstance(rest[-1], RunEnded)
    assert not any(isinstance(e, EventsMissed) for e in rest[1:])


async def test_a_late_reader_is_told_what_is_no_longer_kept() -> None:
    """Law 9: who comes after more than is kept is told how much that was."""
    model = ScriptedModel([call("chatty", lines=BUFFER + 50), say("done")])
    async with start(Agent("lead", tools=[chatty]), "go", model=model) as running:
        await running.outcome()
        events = await read(running)
    assert isinstance(events[0], EventsMissed)
    assert events[0].missed == events[1].seq - 1


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["private", "stored"])
async def test_what_one_call_says_is_not_all_kept(store: MemoryStore | None) -> None:
    """A tool may say any number of things in one call: no more of them are kept than a late reader would see."""
    took = 0

    @tool(tier="observe")
    async def talk(ctx: ToolContext) -> str:
        nonlocal took
        tracemalloc.start()
        try:
            for n in range(3 * BUFFER):
                ctx.emit(f"{n:1000}")
            took, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return "said it all"

    model = ScriptedModel([call("talk"), say("done")])
    outcome = await run(Agent("lead", tools=[talk]), "go", model=model, store=store)
    assert outcome.text == "done"
    assert took < 2 * BUFFER * 1000


# --- on_event --------------------------------------------------------------------------------------------


async def test_on_event_sees_everything_in_order() -> None:
    """Law 9: a plain function sees every event, in order, before `run` returns."""
    lead, model = family()
    seen: list[Event] = []
    outcome = await run(lead, "go", model=model, on_event=seen.append)
    assert [e.seq for e in seen] == list(range(1, len(seen) + 1))
    assert isinstance(seen[-1], RunEnded)
    assert seen[-1].run == outcome.run_id


async def test_on_event_that_raises_changes_nothing() -> None:
    """Law 9: a function that raises every time is called again every time, and the run is the same."""
    expected, events = await quietly()
    seen: list[Event] = []

    def broken(event: Event) -> None:
        seen.append(event)
        raise ZeroDivisionError

    outcome = await watched(broken)
    assert (outcome.text, outcome.duration_s) == (expected.text, expected.duration_s)
    assert [e.kind for e in seen] == [e.kind for e in events]


def test_on_event_that_blocks_changes_nothing() -> None:
    """Law 9: a function that blocks at its first event slows nothing: the run takes the same time, and returns."""
    gate = threading.Event()

    async def both() -> tuple[Outcome, Outcome]:
        return (await quietly())[0], await watched(lambda _: gate.wait())

    # Virtual time that does not wait long for a thread that will not come back.
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(timeout_s=30, grace_s=0.02)) as runner:
        try:
            expected, outcome = runner.run(both())
        finally:
            gate.set()
    assert (outcome.text, outcome.duration_s) == (expected.text, expected.duration_s)


def test_what_on_event_did_not_see_at_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Law 9: a function that is left behind at the end does not lose events in silence: the log says how many."""
    gate = threading.Event()
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(timeout_s=30, grace_s=0.02)) as runner:
        try:
            runner.run(watched(lambda _: gate.wait()))
            events = runner.run(quietly())[1]
        finally:
            gate.set()
    (told,) = [record.getMessage() for record in caplog.records if "on_event" in record.message]
    assert told == f"on_event was too slow and missed the last {len(events) - 1} events"


async def test_on_event_is_told_at_once_however_the_threads_meet() -> None:
    """Law 9: an event that comes just when the last one has been handled is not kept until the next one."""
    handled, told = threading.Event(), threading.Event()

    def watch(event: Event) -> None:
        if event.kind == "reply_received":
            handled.set()
        if isinstance(event, ApprovalRequested):
            told.set()

    def policy(one: object, scope: object) -> str:
        # The loop is kept from turning until the events so far have been handled.
        handled.wait(0.05)
        threading.Event().wait(0.02)
        return "ask"

    async def when_told(request: ApprovalRequest) -> Decision:
        for _ in range(100):
            if told.is_set():
                return allow()
            threading.Event().wait(0.001)
            await asyncio.sleep(0)
        raise AssertionError("the person who watches was never told of the question")

    model = ScriptedModel([call("publish"), say("done")])
    lead = Agent("lead", tools=[publish])
    outcome = await run(lead, "go", model=model, approver=when_told, policy=policy, on_event=watch)  # pyright: ignore[reportArgumentType]
    assert outcome.calls[0].success, outcome.messages[2].text


async def test_on_event_that_is_too_slow_is_told_what_it_missed() -> None:
    """Law 9: a plain function that falls behind loses the oldest events and is told how many, like any reader."""
    gate = threading.Event()
    seen: list[Event] = []

    def slow(event: Event) -> None:
        seen.append(event)
        gate.wait(5)

    @tool(tier="observe")
    async def open_gate() -> str:
        """Lets the reader go on."""
        gate.set()
        return "open"

    model = ScriptedModel([call("chatty", lines=BUFFER + 50), call("open_gate"), say("done")])
    await run(Agent("lead", tools=[chatty, open_gate]), "go", model=model, on_event=slow)
    missed = sum(e.missed for e in seen if isinstance(e, EventsMissed))
    told = [e for e in seen if not isinstance(e, EventsMissed)]
    assert missed > 0
    assert len(told) + missed == told[-1].seq


def test_an_async_on_event_is_a_mistake() -> None:
    """Section 6: `on_event` is a plain function; an async one is refused with the way to do it."""

    async def listen(event: Event) -> None: ...

    lead, model = family()
    with pytest.raises(UsageError, match="events"):
        start(lead, "go", model=model, on_event=listen)


# --- What an event has -------------------------------------------------------------------------------------


async def test_every_event_says_whose_it_is() -> None:
    """Law 9: every event has its place in the tree, in Python and in JSON, and reads back as itself."""
    outcome, events = await quietly()
    (lead, *kids) = (outcome, *outcome.children)
    runs = {o.run_id: o for o in (lead, *kids)}
    paths = {lead.run_id: ("lead",)} | {k.run_id: ("lead", "kid") for k in kids}
    for event in events:
        whose = runs[event.run]
        place = (event.parent, event.root, event.depth, event.path, event.agent)
        assert place == (whose.parent_id, lead.run_id, whose.depth, paths[event.run], whose.agent)
        plain = msgspec.json.decode(encode_flat(event))
        assert {"seq", "at", "kind", "run", "parent", "root", "depth", "path", "agent"} <= plain.keys()
        assert plain["kind"] == event.kind
        assert decode(encode(event)) == decode(encode_flat(event)) == event


async def test_every_run_has_one_beginning_and_one_end_around_its_events() -> None:
    """Law 9: a run's first event is its start and its last its end; children lie within their parent's."""
    _, events = await quietly()
    by_run = sorted(events, key=lambda e: e.run)
    for _, group in groupby(by_run, key=lambda e: e.run):
        own = sorted(group, key=lambda e: e.seq)
        assert isinstance(own[0], RunStarted)
        assert isinstance(own[-1], RunEnded)
        assert sum(isinstance(e, RunStarted | RunEnded) for e in own) == 2
    assert (events[0].run, events[-1].run) == ("r1", "r1")


async def test_what_a_tool_says_is_live_and_not_stored() -> None:
    """Section 6: deltas and a tool's `emit` reach those who watch, with the run they belong to, and no journal."""
    lead, model = family()
    store = MemoryStore()
    async with start(lead, "go", model=model, store=store) as running:
        events = await read(running)
        stored = [e async for e in store.read(running.run_id)]
    said = [(e.agent, e.tool, e.text) for e in events if isinstance(e, CallProgressed)]
    assert said == [("kid", "look", "looking")] * 2
    assert (
        "".join(e.text for e in events if isinstance(e, DeltaReceived) and e.run == "r1.1") == "kid is done"
    )
    live = (CallProgressed, DeltaReceived)
    assert stored == [e for e in events if not isinstance(e, live)]


# --- The same story every time -----------------------------------------------------------------------------


def eventful() -> tuple[Agent, ScriptedModel]:
    """Children that retry, ask, time out, are rejected and fail, tools in tasks and in threads."""
    kids = [call("task", agent=a, prompt=a) for a in ("flaky", "asker", "slow", "broken", "asker", "flaky")]
    model = ScriptedModel(
        {
            "lead": [calls(*kids, call("task", agent="nobody", prompt="z")), say("done", chunks=2)],
            "flaky": [
                fail("busy"),
                fail("busy", "overloaded"),
                call("count_words", text="a b c"),
                say("flaky is done"),
            ],
            "asker": [calls(call("publish"), call("look")), say("asker is done")],
            "slow": [call("look"), say("late", delay=LONG), wrapped("slow has this")],
            "broken": [fail("no key", "auth")],
        }
    )
    tools = [look, publish, count_words]
    slow = Agent("slow", tools=tools, limits=Limits(seconds=20))
    others = [Agent(name, tools=tools) for name in ("flaky", "asker", "broken")]
    return Agent("lead", subagents=[slow, *others], limits=Limits(concurrency=2)), model


async def yes(request: ApprovalRequest) -> Decision:
    await asyncio.sleep(3)
    return allow()


async def told() -> list[Event]:
    lead, model = eventful()
    async with start(lead, "go", model=model, approver=yes) as running:
        return await read(running)


def test_two_runs_have_the_same_events_byte_for_byte() -> None:
    """Law 14: with time, ids, model and store fixed, each run has the same events every time."""
    first = run_virtual(told())
    assert {
        "model_call_failed",
        "approval_answered",
        "limit_met",
        "delegation_rejected",
        "child_queued",
        "call_progressed",
        "delta_received",
    } <= {e.kind for e in first}
    for _ in range(3):
        assert [encode(e) for e in run_virtual(told())] == [encode(e) for e in first]


async def journal(*, watched: bool) -> list[bytes]:
    lead, model = family()
    store = MemoryStore()
    async with start(lead, "go", model=model, store=store) as running:
        if watched:
            await read(running)
        await running.outcome()
        return [encode(e) async for e in store.read(running.run_id)]


def test_the_journal_does_not_depend_on_who_watches() -> None:
    """Laws 9 and 14: what is stored of a run is the same, byte for byte, with a reader and without."""
    assert run_virtual(journal(watched=True)) == run_virtual(journal(watched=False))


def test_every_kind_of_event_reads_back() -> None:
    """Law 9: the events of an eventful tree decode from JSON to what they were."""
    events = run_virtual(told())
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert [decode(encode(e)) for e in events] == events
