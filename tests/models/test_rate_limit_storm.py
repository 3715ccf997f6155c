"""Rate limits: a provider that accepts five requests at once, and a tree that sends fifty."""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar
from types import TracebackType

import pytest
from asking import stage
from wire_formats import CHAT, Talk
from wire_server import Answer, Seen, Server, failing

from remit import Agent, Event, Limits, run
from remit.types.events import ModelCallFailed

CHILDREN = 50
PLACES = 5
REPLY_S = 0.1

turned_away: ContextVar[bool] = ContextVar("turned_away")


class Narrow:
    """Accepts five requests at once and rejects the others."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.working = 0

    async def __aenter__(self) -> None:
        turned_away.set(self.working >= PLACES)
        if not turned_away.get():
            self.working += 1
            await asyncio.sleep(REPLY_S)
            self.working -= 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def play(seen: Seen) -> Answer:
    if turned_away.get():
        return failing(429, {"error": {"message": "Too many requests.", "code": "rate_limit_exceeded"}})
    text = str(seen.body["messages"])
    if "Have it all done" in text and "'role': 'tool'" not in text:
        calls = [(f"c{n}", "task", {"agent": "worker", "prompt": f"part {n}"}) for n in range(CHILDREN)]
        return CHAT.answer(Talk("", tuple(calls)))
    return CHAT.answer(Talk("Done."))


@pytest.mark.real_time
async def test_a_wave_of_rejections_happens_once(capsys: pytest.CaptureFixture[str]) -> None:
    """50 children and a server with 5 places: all finish, and after the first wave almost no request is rejected."""
    failed: list[ModelCallFailed] = []

    def listen(event: Event) -> None:
        if isinstance(event, ModelCallFailed):
            failed.append(event)

    async with stage(play=play) as on:
        on.server._gate = Narrow()  # pyright: ignore[reportAttributeAccessIssue]
        worker = Agent("worker", instructions="Work.")
        lead = Agent("lead", instructions="Delegate.", subagents=[worker])
        outcome = await run(
            lead,
            "Have it all done",
            model="openai-chat:gpt-4o-mini",
            models=on.shelf.find,
            limits=Limits(concurrency=60),
            on_event=listen,
        )
    assert outcome.ok, outcome.reason
    assert [child.status for child in outcome.children] == ["completed"] * CHILDREN
    assert {event.error_kind for event in failed} == {"rate_limit"}
    late = len(failed) - (CHILDREN - PLACES)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(failed)} of {len(failed) + CHILDREN + 2} requests refused, {late} after the first wave "
        )
    assert late <= 10
