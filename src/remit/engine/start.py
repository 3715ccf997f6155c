"""The front door: `run`, `run_sync` and `start` a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

import remit.engine.checks as checks
import remit.tasks.threads as threads
from remit.agent import Agent
from remit.engine.budget.model_choice import ModelSource
from remit.engine.delegation.spawn import Engine, root_limits
from remit.engine.handle import Opened, Running, check_loop
from remit.engine.run.state import Plan
from remit.engine.start_wiring import Ready, prepare
from remit.engine.tree.approvals import Approver
from remit.engine.tree.journal import Journal
from remit.engine.tree.node import TreeContext
from remit.errors import UsageError
from remit.tasks.signals import heard_at_once
from remit.tools.policy import Policy
from remit.types.events import Event
from remit.types.limits import ROOT_DEFAULTS, Limits
from remit.types.messages import Message, Part
from remit.types.outcome import Outcome
from remit.types.ports import ModelChoice, Store, new_root_id
from remit.types.sandbox import SandboxChoice

if TYPE_CHECKING:
    from pathlib import Path
else:
    # For those who read hints while the program runs: pathlib takes too long to import for a name in a hint.
    from os import PathLike as Path

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
    check_loop()
    opening = _checked(
        agent,
        task,
        model,
        models,
        limits,
        store,
        approver,
        policy,
        sandbox,
        deps,
        history,
        workspace,
        on_event,
    )
    async with Running(opening.claim) as running:
        return await running.outcome()


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
    # Called by a sync tool, it waits in one of remit's threads, of which the new tree may need others.
    with threads.aside(), asyncio.Runner() as runner:
        # Made first: a Ctrl-C meanwhile leaves nothing behind that was never awaited.
        runner.get_loop()
        return runner.run(
            heard_at_once(
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
    opening = _checked(
        agent,
        task,
        model,
        models,
        limits,
        store,
        approver,
        policy,
        sandbox,
        deps,
        history,
        workspace,
        on_event,
    )
    return Running(opening.claim)


class _Opening(Struct, frozen=True):
    """A tree that is checked and still to be opened."""

    ready: Ready
    plan: Plan
    limits: Limits
    history: tuple[Message, ...]
    approver: Approver | None
    deps: object
    on_event: Callable[[Event], object] | None

    def place(self) -> Journal:
        return self.ready.place(new_root_id.get()())

    async def claim(self) -> Opened:
        """Open it once its place in the store, if it has one, is its own. Raises StoreError."""
        journal = self.place()
        if journal.shared:
            await self._claim(journal)
        return self.open(journal)

    async def _claim(self, journal: Journal) -> None:
        try:
            await self.ready.check_reach(self.plan.agent)
            await journal.claim(new=True)
        except BaseException:
            from anyio import CancelScope  # noqa: PLC0415 - for those whose store fails

            with CancelScope(shield=True):
                await journal.leave()
            raise

    def open(self, journal: Journal) -> Opened:
        ready = self.ready
        tree = TreeContext(
            journal.root, journal=journal, approver=self.approver, deps=self.deps, workspace=ready.workspace
        )
        if self.on_event is not None:
            tree.watched().watch(self.on_event, tree.loop)
        models = ready.models
        root = Engine(tree, models).root(
            self.plan,
            limits=self.limits,
            policies=ready.policies,
            sandbox=ready.sandbox,
            history=self.history,
        )
        return Opened(tree, root, models.close)


def _checked(  # noqa: PLR0917 - for every tree: names cost as much as the checks
    agent: Agent,
    task: Task,
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
    on_event: Callable[[Event], object] | None,
) -> _Opening:
    """What opens the tree. Raises UsageError for a mistake in the call."""
    ready = prepare(agent, model, models, limits, store, approver, policy, sandbox, workspace, on_event)
    effective = root_limits(agent, limits, ROOT_DEFAULTS)
    ready.models.check(agent, needs_price=effective.usd is not None)
    prompt = checks.as_message(task)
    past = checks.check_history(history)
    text = task if type(task) is str else prompt.text
    plan = Plan(agent=agent, prompt=prompt, task=text, summary=agent.summary)
    return _Opening(ready, plan, effective, past, approver, deps, on_event)


def _check_no_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{name}() cannot be called inside a running event loop (as in Jupyter): use `await {instead}(...)`."
    )
