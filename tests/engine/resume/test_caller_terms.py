"""What the caller allowed a tree holds when it is resumed: sandbox, rules and workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import a, by_turn, died

from remit import Agent, Outcome, ToolContext, ToolMessage, UsageError, resume, run, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, say
from remit.types.events import CallEnded
from remit.types.messages import Call


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "seen"


@tool
async def change(ctx: ToolContext) -> str:
    """Says what it may touch."""
    return f"{ctx.sandbox} in {ctx.workspace}"


WORKER = Agent("worker", tools=[look, change])


def model() -> ScriptedModel:
    return ScriptedModel(by_turn(call("look"), call("change"), say("done")))


def last(outcome: Outcome) -> str:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)][-1].content


async def stopped(**options: object) -> MemoryStore:
    """A tree that was started with these, and died after its first call."""
    store = MemoryStore()
    await run(WORKER, "go", model=model(), store=store, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return await died(store, a(CallEnded))


async def test_sandbox_rules_and_workspace_are_kept(tmp_path: Path) -> None:
    """A tree that goes on has what it had, without being told again."""
    store = await stopped(sandbox="read-only", policy=["allow change"], workspace=tmp_path)
    outcome = await resume(store, "r1", agent=WORKER, model=model())
    assert last(outcome) == f"read-only in {tmp_path}"


async def test_a_sandbox_is_only_narrowed() -> None:
    """Resuming with a wider sandbox than before widens nothing."""
    store = await stopped(sandbox="read-only", policy=["allow change"])
    outcome = await resume(store, "r1", agent=WORKER, model=model(), sandbox="workspace-write+network")
    assert last(outcome).startswith("read-only in")


async def test_who_gives_rules_again_means_them() -> None:
    """Rules that are given take the place of the recorded ones."""
    store = await stopped(policy=["allow change"])
    outcome = await resume(store, "r1", agent=WORKER, model=model(), policy=["deny change"])
    assert last(outcome).startswith("Denied")


async def test_a_policy_function_must_be_given_again() -> None:
    """What cannot be written down is asked for, not forgotten."""

    def policy(one: Call, scope: object) -> str:
        return "allow"

    store = await stopped(policy=policy)
    with pytest.raises(UsageError, match="policy"):
        await resume(store, "r1", agent=WORKER, model=model())


async def test_a_workspace_that_is_gone_is_said(tmp_path: Path) -> None:
    """A tree does not go on in another folder than its own by accident."""
    folder = tmp_path / "gone"
    folder.mkdir()
    store = await stopped(workspace=folder, policy=["allow change"])
    folder.rmdir()
    with pytest.raises(UsageError, match="gone"):
        await resume(store, "r1", agent=WORKER, model=model())
    outcome = await resume(store, "r1", agent=WORKER, model=model(), workspace=tmp_path)
    assert outcome.ok
