"""The way back in: `resume` and `reopen` a tree that a journal has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from anyio import CancelScope

import remit.engine.checks as checks
from remit.agent import Agent
from remit.engine.budget.model_choice import ModelSource
from remit.engine.delegation.spawn import Engine
from remit.engine.handle import Opened, Running
from remit.engine.run.state import Plan
from remit.engine.start_wiring import Ready, prepare
from remit.engine.tree.approvals import Approver
from remit.engine.tree.journal import Journal
from remit.engine.tree.node import TreeContext
from remit.errors import StoreError, UsageError
from remit.history.fold import apply, fold
from remit.history.records import REOPENED, RunRecord, Tree
from remit.tools.policy import Policy, compile_policy
from remit.tools.schema import parse_output
from remit.types.events import Event, Terms
from remit.types.limits import ROOT_DEFAULTS, Limits
from remit.types.outcome import Outcome
from remit.types.ports import ModelChoice, Posted, Store
from remit.types.sandbox import SandboxChoice


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
    sandbox: SandboxChoice | None = None,
    deps: object = None,
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """Have a tree go on that was stopped short of its answer, or whose process died, to its end.

    Recorded replies and results are not paid for again. A tree that completed, failed or was refused is not
    run: its recorded outcome comes back. `limits` replaces those that were recorded, field by field; `policy` and
    `workspace` are the recorded ones unless they are given, and a sandbox can only be narrowed.

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
        sandbox=sandbox,
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
    sandbox: SandboxChoice | None = None,
    deps: object = None,
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Running:
    """As `start`, for a tree that a journal has: `resume` with a handle on it."""
    checks.check_run_id(run_id)
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
    ready.models.check(agent, needs_price=False)

    async def open_tree() -> Opened:
        journal = ready.place(run_id)
        try:
            past, posted = await _read(journal)
            record = _root_of(past, run_id)
            # A journal of an older remit lacks the limits that were added since.
            effective = (limits or Limits()).over(record.limits).over(ROOT_DEFAULTS)
            terms = _kept(ready, record.terms) if _goes_on(past) else ready
            if _goes_on(past):
                ready.models.check(agent, needs_price=isinstance(effective.usd, (int, float)))
                checks.check_matches(agent, past)
                await terms.check_reach(agent)
        except BaseException:
            with CancelScope(shield=True):
                await journal.leave()
            raise
        place = terms.workspace
        tree = TreeContext(run_id, journal=journal, approver=approver, deps=deps, workspace=place, past=past)
        if on_event is not None:
            tree.watched().watch(on_event, tree.loop)
        if not _goes_on(past):
            return Opened(tree, _recorded(past, agent), ready.models.close, posted)
        plan = Plan(agent=agent, prompt=record.task, task=record.task.text, summary=agent.summary)
        root = Engine(tree, ready.models).root(
            plan, limits=effective, policies=terms.policies, sandbox=terms.sandbox, record=record
        )
        return Opened(tree, root, ready.models.close, posted)

    return Running(open_tree)


def _kept(ready: Ready, terms: Terms) -> Ready:
    """What the tree was started with, where the caller says nothing else. Its sandbox is never widened."""
    caller, own = ready.policies
    if caller is None and terms.function:
        raise UsageError(
            "The tree was started with a policy that is a function, which a journal cannot keep: give it again, policy=..."
        )
    if caller is None and terms.policy is not None:
        caller = compile_policy(terms.policy, "the journal")
    place = ready.workspace
    if place is None and terms.workspace:
        place = checks.check_workspace(terms.workspace)
    box = ready.sandbox if terms.sandbox is None else ready.sandbox.within(terms.sandbox)
    return msgspec.structs.replace(ready, policies=(caller, own), sandbox=box, workspace=place)


def _goes_on(past: Tree) -> bool:
    return past.status is None or past.status in REOPENED


async def _read(journal: Journal) -> tuple[Tree, Sequence[Posted] | None]:
    """What the journal has of a tree, which is claimed if it goes on, and what was asked of it meanwhile."""
    past = fold([event async for event in journal.past()])
    if not _goes_on(past):
        # Who only wants to hear how it ended need not own it.
        return past, ()
    await journal.claim(new=False)
    async for event in journal.past(past.seq):
        apply(past, event)
    posted = await journal.posted()
    return past, posted if _goes_on(past) else ()


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
