"""The front door: `run`, `run_sync` and `start` a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import remit.checks as checks
from remit.agent import Agent
from remit.approval import Approver
from remit.delegation.engine import Engine, root_limits
from remit.errors import UsageError
from remit.events import Event
from remit.execution import Plan
from remit.journal import Journal
from remit.limits import ROOT_DEFAULTS, Limits
from remit.messages import Message, Part
from remit.outcome import Outcome
from remit.policy import Policy
from remit.ports import ModelChoice, Store, new_root_id
from remit.providers import ModelSource
from remit.running import Opened, Running, to_end
from remit.sandbox import SandboxChoice
from remit.scope import TreeContext
from remit.wiring import prepare

Task = str | Sequence[Part]


async def run(
    agent: Agent,
    task: Task,
    *,
    model: ModelChoice | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    store: Store | str | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    sandbox: SandboxChoice | None = None,
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """Run an agent on a task to its end, whatever that is.

    Raises UsageError for a mistake in the call and StoreError for a store that cannot be opened, both before
    anything ran, and passes on the caller's own cancellation, after everything below has stopped. Nothing else.
    """
    opening = _prepared(
        agent,
        task,
        model=model,
        models=models,
        limits=limits,
        store=store,
        approver=approver,
        policy=policy,
        sandbox=sandbox,
        deps=deps,
        history=history,
        workspace=workspace,
        on_event=on_event,
    )
    return await to_end(opening, on_event)


def run_sync(
    agent: Agent,
    task: Task,
    *,
    model: ModelChoice | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    store: Store | str | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    sandbox: SandboxChoice | None = None,
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """`run` for code without an event loop."""
    _check_no_loop("run_sync", "run")
    return asyncio.run(
        run(
            agent,
            task,
            model=model,
            models=models,
            limits=limits,
            store=store,
            approver=approver,
            policy=policy,
            sandbox=sandbox,
            deps=deps,
            history=history,
            workspace=workspace,
            on_event=on_event,
        )
    )


def start(
    agent: Agent,
    task: Task,
    *,
    model: ModelChoice | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    store: Store | str | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    sandbox: SandboxChoice | None = None,
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Running:
    """A tree to be run inside `async with`. Raises UsageError at once for a mistake in the call."""
    opening = _prepared(
        agent,
        task,
        model=model,
        models=models,
        limits=limits,
        store=store,
        approver=approver,
        policy=policy,
        sandbox=sandbox,
        deps=deps,
        history=history,
        workspace=workspace,
        on_event=on_event,
    )
    return Running(opening, on_event)


def _prepared(
    agent: Agent,
    task: Task,
    *,
    model: ModelChoice | None,
    models: ModelSource | None,
    limits: Limits | None,
    store: Store | str | None,
    approver: Approver | None,
    policy: Policy | None,
    sandbox: SandboxChoice | None,
    deps: object,
    history: Sequence[Message],
    workspace: str | Path | None,
    on_event: object,
) -> Callable[[], Coroutine[object, None, Opened]]:
    """What opens the tree. Raises UsageError for a mistake in the call."""
    ready = prepare(
        agent,
        model=model,
        models=models,
        limits=limits,
        store=store,
        approver=approver,
        policy=policy,
        sandbox=sandbox,
        workspace=workspace,
        on_event=on_event,
    )
    effective = root_limits(agent, limits, ROOT_DEFAULTS)
    ready.models.check(agent, needs_price=isinstance(effective.usd, (int, float)))
    prompt = checks.as_message(task)
    past = checks.check_history(history)
    text = task if type(task) is str else prompt.text
    plan = Plan(agent=agent, prompt=prompt, task=text, summary=agent.summary)

    async def open_tree() -> Opened:
        journal = ready.place(new_root_id.get()())
        if journal.shared:
            await _claim(journal)
        tree = TreeContext(
            journal.root, journal=journal, approver=approver, deps=deps, workspace=ready.workspace
        )

        def go() -> Coroutine[object, object, Outcome]:
            return Engine(tree, ready.models).root(
                plan, limits=effective, policies=ready.policies, sandbox=ready.sandbox, history=past
            )

        return Opened(tree, go, ready.close)

    return open_tree


async def _claim(journal: Journal) -> None:
    try:
        await journal.claim(new=True)
    except BaseException:
        from anyio import CancelScope  # noqa: PLC0415 - for those whose store fails

        with CancelScope(shield=True):
            await journal.leave()
        raise


def _check_no_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{name}() cannot be called inside a running event loop (as in Jupyter): use `await {instead}(...)`."
    )
