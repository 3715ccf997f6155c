"""Under trio, which has no event loop of asyncio's: a refusal that says what to do, and the way that works."""

from __future__ import annotations

import pytest
import trio

from remit import Agent, Outcome, UsageError, resume, run, run_sync, start
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, say

AGENT = Agent("lead")


async def runs() -> None:
    await run(AGENT, "go", model=ScriptedModel([say("done")]))


async def runs_with_a_store() -> None:
    await run(AGENT, "go", model=ScriptedModel([say("done")]), store=MemoryStore())


async def starts() -> None:
    async with start(AGENT, "go", model=ScriptedModel([say("done")])):
        pass


async def resumes() -> None:
    await resume(MemoryStore(), "abc", agent=AGENT, model=ScriptedModel([say("done")]))


@pytest.mark.parametrize("way", [runs, runs_with_a_store, starts, resumes])
def test_a_tree_under_trio_is_refused_in_one_sentence(way: object) -> None:
    """Every way to run a tree raises a UsageError under trio that names the way that works."""
    with pytest.raises(UsageError) as caught:
        trio.run(way)  # pyright: ignore[reportArgumentType] - each is an async function
    said = str(caught.value)
    assert "asyncio" in said
    assert "trio.to_thread.run_sync" in said
    assert said.count(". ") == 0
    assert said.endswith(".")


def test_a_tree_in_a_thread_of_trios_works() -> None:
    """What the refusal names works: `run_sync` in a thread."""

    async def main() -> Outcome:
        model = ScriptedModel([say("done")])
        return await trio.to_thread.run_sync(lambda: run_sync(AGENT, "go", model=model))

    assert trio.run(main).text == "done"
