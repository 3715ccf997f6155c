"""The front door: `run`, `run_sync` and `start` a tree; `resume` and `reopen` one that a journal has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import msgspec
from anyio import CancelScope

import remit.checks as checks
import remit.delegation.kit as kit
from remit.agent import Agent
from remit.approval import Approver, Desk
from remit.delegation.engine import Engine, root_limits
from remit.errors import StoreError, UsageError
from remit.events import Event
from remit.execution import Plan
from remit.history import REOPENED, RunRecord, Tree
from remit.journal import Journal
from remit.limits import ROOT_DEFAULTS, Limits
from remit.messages import Message, Part
from remit.models import Shelf
from remit.outcome import Outcome
from remit.policy import Policy, compile_policy
from remit.ports import Model, ModelChoice, Store, new_root_id
from remit.providers import Models, ModelSource
from remit.running import Opened, Running
from remit.schema import parse_output
from remit.scope import TreeContext
from remit.stores import open_store
from remit.stores.memory import MemoryStore
from remit.tools import built_in
from remit.tree import apply, fold

Task = str | Sequence[Part]

kit.built_in.source = built_in


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
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """Run an agent on a task to its end, whatever that is.

    Raises UsageError for a mistake in the call and StoreError for a store that cannot be opened, both before
    anything ran, and passes on the caller's own cancellation, after everything below has stopped. Nothing else.
    """
    running = start(
        agent,
        task,
        model=model,
        models=models,
        limits=limits,
        store=store,
        approver=approver,
        policy=policy,
        deps=deps,
        history=history,
        workspace=workspace,
        on_event=on_event,
    )
    async with running:
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
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Running:
    """A tree to be run inside `async with`. Raises UsageError at once for a mistake in the call."""
    checks.check_call(agent, limits, approver, on_event)
    place = _place(store)
    shelf = Shelf()
    found = Models(model, models, lambda name: _by_name(shelf, name))
    effective = root_limits(agent, limits, ROOT_DEFAULTS)
    found.check(agent, None, needs_price=isinstance(effective.usd, (int, float)))
    checks.check_tools(agent)
    policies = (compile_policy(policy, "run()"), agent.policy)
    prompt = checks.as_message(task)
    past = checks.check_history(history)
    plan = Plan(agent=agent, prompt=prompt, task=prompt.text, summary=agent.summary)
    folder = checks.check_workspace(workspace)

    async def open_tree() -> Opened:
        journal = place(new_root_id.get()())
        await _claim(journal, new=True)
        tree = TreeContext(journal.root, journal=journal, desk=Desk(approver), deps=deps, workspace=folder)

        def go() -> Coroutine[object, object, Outcome]:
            return Engine(tree, found).root(plan, limits=effective, policies=policies, history=past)

        return Opened(tree, go, shelf.close)

    return Running(open_tree, on_event)


async def resume(
    store: Store | str,
    run_id: str,
    *,
    agent: Agent,
    model: ModelChoice | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    deps: object = None,
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """Have a tree go on that was stopped short of its answer, or whose process died, to its end.

    Recorded replies and results are not paid for again. A tree that completed, failed or was refused is not
    run: its recorded outcome comes back. `limits` replaces those that were recorded, field by field.

    Raises as `run` does; TreeOwned, a StoreError, while another live process runs the tree.
    """
    running = reopen(
        store,
        run_id,
        agent=agent,
        model=model,
        models=models,
        limits=limits,
        approver=approver,
        policy=policy,
        deps=deps,
        workspace=workspace,
        on_event=on_event,
    )
    async with running:
        return await running.outcome()


def reopen(
    store: Store | str,
    run_id: str,
    *,
    agent: Agent,
    model: ModelChoice | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    deps: object = None,
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Running:
    """As `start`, for a tree that a journal has: `resume` with a handle on it."""
    checks.check_call(agent, limits, approver, on_event)
    checks.check_run_id(run_id)
    place = _place(store)
    shelf = Shelf()
    found = Models(model, models, lambda name: _by_name(shelf, name))
    found.check(agent, None, needs_price=False)
    checks.check_tools(agent)
    policies = (compile_policy(policy, "resume()"), agent.policy)
    folder = checks.check_workspace(workspace)

    async def open_tree() -> Opened:
        journal = place(run_id)
        try:
            past = fold([event async for event in journal.past()])
            goes_on = past.status is None or past.status in REOPENED
            if goes_on:
                # Who only wants to hear how it ended need not own it.
                await journal.claim(new=False)
                async for event in journal.past(past.seq):
                    apply(past, event)
            posted = await journal.posted() if goes_on else []
            record = _root_of(past, run_id)
            goes_on = record.outcome is None or record.outcome.status in REOPENED
            effective = (limits or Limits()).over(record.limits)
            if goes_on:
                found.check(agent, None, needs_price=isinstance(effective.usd, (int, float)))
                checks.check_matches(agent, past)
        except BaseException:
            with CancelScope(shield=True):
                await journal.leave()
            raise
        tree = TreeContext(
            run_id,
            journal=journal,
            desk=Desk(approver, past),
            deps=deps,
            workspace=folder,
            past=past,
        )
        plan = Plan(agent=agent, prompt=record.task, task=record.task.text, summary=agent.summary)

        def go() -> Coroutine[object, object, Outcome]:
            if not goes_on:
                return _recorded(past, agent)
            return Engine(tree, found).root(plan, limits=effective, policies=policies, record=record)

        return Opened(tree, go, shelf.close, posted if goes_on else ())

    return Running(open_tree, on_event)


def _by_name(shelf: Shelf, name: str) -> Model:
    if name == "offline":
        from remit.models.offline import Offline  # noqa: PLC0415 - for those who ask for it

        return Offline()
    return shelf.find(name)


def _place(store: Store | str | None) -> Callable[[str], Journal]:
    """Where a tree's journal is kept. Raises UsageError for what cannot be a store."""
    if store is None:
        return lambda root: Journal(MemoryStore(), root, ours=True)
    if isinstance(store, str):
        url = store
        open_store(url)
        return lambda root: Journal(open_store(url), root, ours=True)
    given = checks.check_store(store)
    return lambda root: Journal(given, root, ours=False)


async def _claim(journal: Journal, *, new: bool) -> None:
    try:
        await journal.claim(new=new)
    except BaseException:
        with CancelScope(shield=True):
            await journal.leave()
        raise


def _root_of(past: Tree, run_id: str) -> RunRecord:
    record = past.runs.get(run_id)
    if record is None:
        raise StoreError(f"The journal of {run_id!r} has no beginning, so it cannot be resumed.")
    return record


async def _recorded(past: Tree, agent: Agent) -> Outcome:
    """The outcome of a tree that stays as it is; its structured answer is read again from its text."""
    outcome = past.outcome()
    if not outcome.ok or agent.output is None:
        return outcome
    value, _ = parse_output(agent.output, outcome.text)
    return msgspec.structs.replace(outcome, output=value)


def _check_no_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{name}() cannot be called inside a running event loop (as in Jupyter): use `await {instead}(...)`."
    )
