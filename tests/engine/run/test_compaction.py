"""Conversations that outgrow their model: shortened, summarised, never broken, and the same after a resume."""

from __future__ import annotations

import asyncio

import pytest

from remit import (
    Agent,
    AssistantMessage,
    Call,
    Limits,
    ModelError,
    Outcome,
    Reply,
    Request,
    ToolMessage,
    Usage,
    resume,
    run,
    tool,
)
from remit.engine.run.state import message_tokens
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.types.events import Compacted, Event, ResultCut
from remit.types.messages import Message

TURNS = 12


@tool(tier="observe")
def page(number: int) -> str:
    """Read a page."""
    return f"page {number}: " + "text " * 800


class Reader:
    """Reads one page a turn; knows nothing but its conversation, and refuses what is too long for it."""

    name = "reader"

    def __init__(self, window: int | None, *, limit: int | None = None) -> None:
        if window is not None:
            self.context_window = window
        self.limit = limit
        self.sizes: list[int] = []
        self.asked = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        check_pairs(request.messages)
        self.asked += 1
        size = sum(map(message_tokens, request.messages))
        self.sizes.append(size)
        await asyncio.sleep(1)
        if self.limit is not None and size > self.limit:
            raise ModelError("prompt is too long", kind="context")
        usage = Usage(1, size, 20)
        if request.tool_choice == "none":
            return Reply(f"SUMMARY of {_pages(request.messages)} pages", usage=usage)
        done = _pages(request.messages)
        if done >= TURNS:
            return Reply(f"all {done} pages", usage=usage)
        return Reply(calls=(Call("c", "page", {"number": done}),), stop="calls", usage=usage)


def _pages(messages: tuple[Message, ...]) -> int:
    """The highest page that the conversation speaks of, and one."""
    found = 0
    for message in messages:
        text = message.text
        if isinstance(message, ToolMessage) and text.startswith("page "):
            found = max(found, int(text.split(":")[0].removeprefix("page ")) + 1)
        if "SUMMARY of" in text:
            found = max(found, int(text.partition("SUMMARY of ")[2].split()[0]))
    return found


def check_pairs(messages: tuple[Message, ...]) -> None:
    """Each call is followed by its result, and each result has its call."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.call_id == open_calls.pop(0)
        else:
            assert not open_calls, "a call was parted from its result"
            if isinstance(message, AssistantMessage):
                open_calls = [call.id for call in message.calls]
    assert not open_calls


async def read_all(
    model: Reader, context_tokens: int | None = 10**6
) -> tuple[Outcome, list[Event], MemoryStore]:
    store = MemoryStore()
    outcome = await run(
        Agent("lead", tools=[page], settings={"max_output_tokens": 200}),
        "Read everything",
        model=model,
        store=store,
        limits=Limits(context_tokens=context_tokens),
    )
    return outcome, [event async for event in store.read(outcome.run_id)], store


async def test_old_results_are_shortened_first() -> None:
    """Before a turn would not fit, the oldest results are cut; their whole text is kept, and it is told."""
    model = Reader(9000)
    outcome, events, store = await read_all(model)
    assert outcome.text == f"all {TURNS} pages"
    assert max(model.sizes) <= 9000
    cuts = [event for event in events if isinstance(event, ResultCut)]
    assert cuts
    assert not any(isinstance(event, Compacted) for event in events)
    kept = await store.load_artifact(outcome.run_id, outcome.artifacts[0].id, 0, 10_000)
    assert kept is not None
    assert kept.startswith("page 0: ")
    assert len(kept) > 4000


async def test_then_the_old_part_gives_way_to_a_summary() -> None:
    """When shortening is not enough, the model writes down what it needs, and goes on from that."""
    model = Reader(2200)
    outcome, events, _ = await read_all(model)
    assert outcome.text == f"all {TURNS} pages"
    assert any(isinstance(event, Compacted) for event in events)
    assert outcome.messages[0].text == "Read everything", "the task stays"
    assert fold(events).outcome().messages == outcome.messages


async def test_a_provider_that_says_it_is_too_long_is_believed() -> None:
    """Without a known window, the refusal teaches one: the conversation is shortened and sent once more."""
    model = Reader(None, limit=9000)
    outcome, _, _ = await read_all(model)
    assert outcome.text == f"all {TURNS} pages"


async def test_it_can_be_switched_off() -> None:
    """`context_tokens=None` shortens nothing; the provider's refusal is then the end."""
    outcome, events, _ = await read_all(Reader(9000, limit=9000), context_tokens=None)
    assert outcome.status == "failed"
    assert "too long" in outcome.reason
    assert not any(isinstance(event, ResultCut | Compacted) for event in events)


async def test_ones_own_number_is_smaller_than_the_models() -> None:
    """`context_tokens` shortens earlier than the model's window would."""
    model = Reader(10**6)
    outcome, _, _ = await read_all(model, context_tokens=9000)
    assert outcome.ok
    assert max(model.sizes) <= 9000


@pytest.mark.parametrize("window", [9000, 2200])
async def test_after_a_crash_anywhere_the_conversation_is_the_same(window: int) -> None:
    """Shortened and summarised conversations resume like any other: nothing recorded is asked for again."""
    model = Reader(window)
    outcome, events, _ = await read_all(model)
    for count in range(1, len(events), 3):
        store = MemoryStore()
        await store.claim(outcome.run_id, new=True)
        for event in events[:count]:
            store.append(event)
        await store.release(outcome.run_id)
        replies = sum(event.kind == "reply_received" for event in events[:count])
        again = Reader(window)
        lead = Agent("lead", tools=[page], settings={"max_output_tokens": 200})
        resumed = await resume(store, outcome.run_id, agent=lead, model=again)
        assert resumed.text == outcome.text, events[count - 1]
        assert again.asked <= model.asked - replies + 1, "at most what was in flight is asked for again"
        tree = fold([event async for event in store.read(outcome.run_id)])
        assert tree.outcome().messages == resumed.messages
