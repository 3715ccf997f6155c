"""A running tree belongs to one event loop: calls from another loop are usage errors that say what to do."""

from __future__ import annotations

import asyncio
import threading

import pytest

from remit import Agent, UsageError, start
from remit.testing import ScriptedModel, say

pytestmark = pytest.mark.real_time


async def test_cancel_and_outcome_need_the_loop_of_the_tree() -> None:
    """On another loop, `cancel` and `outcome` raise before they change anything; the advice in the message works."""
    raised: list[str] = []

    async with start(Agent("lead"), "go", model=ScriptedModel([say("late", delay=30)])) as running:
        loop = asyncio.get_running_loop()

        def elsewhere() -> None:
            for make in (running.cancel, running.outcome):
                try:
                    asyncio.run(make())
                except UsageError as error:
                    raised.append(str(error))
            asyncio.run_coroutine_threadsafe(running.cancel("from a thread"), loop).result(10)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        outcome = await running.outcome()
        await asyncio.to_thread(thread.join)
    assert ["another event loop" in text for text in raised] == [True, True]
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled by the caller: from a thread")
