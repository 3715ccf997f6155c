"""Whole trees on the real engine, with real clients, against the test server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from asking import stage
from wire_formats import ANTHROPIC, CHAT, Format, Talk, format_of
from wire_server import Answer, Seen

from remit import Agent, Limits, Status, run, start, tool
from remit.types.events import DeltaReceived, Event, ModelCallFailed, ReplyReceived

pytestmark = pytest.mark.real_time

SONNET, MINI = "anthropic:claude-sonnet-4-6", "openai-chat:gpt-4o-mini"


@tool
def count(word: str) -> str:
    """Count the letters.

    Args:
        word: What to count.
    """
    return str(len(word))


class Players:
    """The lead delegates to two workers at once, each worker counts, and all of them answer."""

    def __init__(self) -> None:
        self.used: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
        """Requests, fresh input, cache reads, cache writes, output: the counts that this server reported."""

    def play(self, seen: Seen) -> Answer:
        form, body = format_of(seen), seen.body
        talk = self._talk(form, body, self.used[body["model"]][0])
        used = self.used[body["model"]]
        for n, amount in enumerate((1, talk.fresh, talk.read, talk.write, talk.output)):
            used[n] += amount
        return form.answer(talk)

    def _talk(self, form: Format, body: dict[str, Any], turn: int) -> Talk:
        model, text = body["model"], str(body["messages"])
        numbers = {"fresh": 100 + turn, "read": 50 * turn, "output": 10 + turn, "model": model}
        if form is ANTHROPIC:
            numbers["write"] = 7
            if "tool_result" in text:
                return Talk("Two reports.", **numbers)
            calls = tuple(
                (f"d{n}", "task", {"agent": "worker", "prompt": f"Count word number {n}."}) for n in (1, 2)
            )
            return Talk("", calls, (("I delegate.", "c2ln"),), **numbers)
        if "'role': 'tool'" in text:
            return Talk("It has 4.", **numbers)
        return Talk("", (("c1", "count", {"word": "word"}),), **numbers)


def team() -> Agent:
    worker = Agent("worker", description="Counts.", instructions="Count.", model=MINI, tools=[count])
    return Agent("lead", instructions="Delegate.", model=SONNET, subagents=[worker])


async def test_two_providers_in_one_tree() -> None:
    """Tokens, cache counts and costs match the server's, per provider and in total; events name the model that
    answered.
    """
    players, replies = Players(), list[ReplyReceived]()

    def listen(event: Event) -> None:
        if isinstance(event, ReplyReceived):
            replies.append(event)

    async with stage(play=players.play) as on:
        outcome = await run(team(), "Count two words.", models=on.shelf.find, on_event=listen)
        asked = len(on.server.seen)
    assert (outcome.status, outcome.text, asked) == (Status.COMPLETED, "Two reports.", 6)
    # Dollars per million tokens: fresh input, cache reads, cache writes, output.
    prices = {"claude-sonnet-4-6": (3.0, 0.3, 3.75, 15.0), "gpt-4o-mini": (0.15, 0.075, 0.15, 0.6)}
    whole = 0.0
    for name, (requests, fresh, read, write, output) in players.used.items():
        mine = [e.usage for e in replies if e.reply.model.endswith(f":{name}")]
        money = sum(n * p for n, p in zip((fresh, read, write, output), prices[name], strict=True)) / 1e6
        whole += money
        assert sum(u.requests for u in mine) == requests
        assert sum(u.input_tokens for u in mine) == fresh + read + write
        assert sum(u.cache_read_tokens for u in mine) == read
        assert sum(u.cache_write_tokens for u in mine) == write
        assert sum(u.output_tokens for u in mine) == output
        assert sum(u.usd or 0 for u in mine) == pytest.approx(money)
        assert not any(u.estimated for u in mine)
    total = outcome.total_usage
    sums = [sum(column) for column in zip(*players.used.values(), strict=True)]
    assert (total.requests, total.input_tokens, total.output_tokens) == (sums[0], sum(sums[1:4]), sums[4])
    # The total is the sum in micro-dollars, with each request rounded.
    assert total.usd == pytest.approx(whole, abs=6e-6)


async def test_a_stalled_request_is_retried() -> None:
    """The stall limit ends a request that is never answered; the next attempt is a new request."""
    failed: list[ModelCallFailed] = []

    def play(seen: Seen) -> Answer:
        return CHAT.answer(Talk("Here I am.")) if failed else Answer(then="hang")

    def listen(event: Event) -> None:
        if isinstance(event, ModelCallFailed):
            failed.append(event)

    async with stage(play=play) as on:
        agent = Agent("slow", model=MINI, limits=Limits(stall_seconds=0.5))
        outcome = await run(agent, "Well?", models=on.shelf.find, on_event=listen)
        assert on.server.seen[0].gone.is_set()
        assert len(on.server.seen) == len(failed) + 1
    assert outcome.text == "Here I am."
    assert {event.error_kind for event in failed} == {"stalled"}


async def test_cancelling_a_tree_closes_its_streams() -> None:
    """When a tree is cancelled, the server sees every stream close, and the received text is kept."""
    hanging = Answer(pieces=ANTHROPIC.pieces(Talk("So far so good."))[:-2], then="hang")
    async with stage(hanging) as on:
        agent = Agent("talker", model=SONNET)
        async with start(agent, "Talk.", models=on.shelf.find) as running:
            async for event in running.events():
                if isinstance(event, DeltaReceived) and "good" in event.text:
                    break
            await running.cancel("enough")
            outcome = await running.outcome()
        await asyncio.wait_for(on.server.seen[0].gone.wait(), 30)
    assert outcome.status is Status.CANCELLED
    assert outcome.partial == "So far so good."


async def test_a_rejected_key_is_not_retried() -> None:
    """A failure that a retry cannot fix is not retried, and the outcome says what to do."""
    body = b'{"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}'
    async with stage(Answer(body, 401)) as on:
        outcome = await run(Agent("a", model=MINI), "Hi.", models=on.shelf.find)
        assert len(on.server.seen) == 1
    assert outcome.status is Status.FAILED
    assert "Check the key in OPENAI_API_KEY." in (outcome.error or "")
