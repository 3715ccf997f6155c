"""Resume a recorded tree: `resume` and `reopen`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, cast, overload

import msgspec
from anyio import CancelScope

import remit.engine.checks as checks
from remit.agent import Agent
from remit.engine.delegation.spawn import Engine
from remit.engine.handle import Opened, Running
from remit.engine.run.runtime_tool import Plan
from remit.engine.run.state_restored import with_output
from remit.engine.start import (
    Ready,
    TreeOptions,
    TypedTreeOptions,
    check_options,
    open_tree,
    prepare,
    with_options,
)
from remit.engine.tree.journal import Journal
from remit.errors import StoreError, UsageError
from remit.history.fold import apply, fold
from remit.history.records import REOPENED, RunRecord, Tree
from remit.tools.policy import compile_policy
from remit.types.events import Terms
from remit.types.limits import ROOT_DEFAULTS, Limits
from remit.types.outcome import Outcome, Status
from remit.types.ports import Posted, Store
from remit.types.type_variables import Deps, Output


@overload
async def resume(
    store: Store | str,
    run_id: str,
    *,
    agent: Agent[None, Output],
    deps: None = None,
    **options: Unpack[TypedTreeOptions],
) -> Outcome[Output]: ...


@overload
async def resume(
    store: Store | str,
    run_id: str,
    *,
    agent: Agent[Deps, Output],
    deps: Deps,
    **options: Unpack[TypedTreeOptions],
) -> Outcome[Output]: ...


@with_options(TreeOptions)
async def resume(store: Store | str, run_id: str, *, agent: Agent, **options: Unpack[TreeOptions]) -> Outcome:
    """Run a recorded tree that was stopped, or whose process died, until it ends, and return the outcome.

    Recorded replies and results are not paid for again. A tree that completed, failed or was refused is not
    run again: its recorded outcome is returned. `limits` replaces the recorded limits, field by field. `policy` and
    `workspace` default to the recorded ones. A sandbox can only be narrowed.

    Raises like `run`, and TreeOwned, a StoreError, while another live process runs the tree.
    """
    check_options("resume()", options, TreeOptions)
    async with reopen(store, run_id, agent=agent, **cast("dict[str, Any]", options)) as running:
        return await running.outcome()


@overload
def reopen(
    store: Store | str,
    run_id: str,
    *,
    agent: Agent[None, Output],
    deps: None = None,
    **options: Unpack[TypedTreeOptions],
) -> Running[Output]: ...


@overload
def reopen(
    store: Store | str,
    run_id: str,
    *,
    agent: Agent[Deps, Output],
    deps: Deps,
    **options: Unpack[TypedTreeOptions],
) -> Running[Output]: ...


@with_options(TreeOptions)
def reopen(store: Store | str, run_id: str, *, agent: Agent, **options: Unpack[TreeOptions]) -> Running:
    """Like `start`, for a recorded tree: `resume` with a handle."""
    check_options("reopen()", options, TreeOptions)
    checks.check_run_id(run_id)
    ready = prepare(agent, options, store)
    ready.models.check(agent, needs_price=False)
    return Running(_Reopening(ready, agent, run_id, options).open)


class _Reopening(msgspec.Struct, frozen=True):
    """A recorded tree whose options are checked, before its journal is read."""

    ready: Ready
    agent: Agent
    run_id: str
    options: TreeOptions

    async def open(self) -> Opened:
        journal = self.ready.journal(self.run_id)
        try:
            past, posted = await _read(journal)
            record = _root_of(past, self.run_id)
            resumed, unfinished = _is_resumed(past), past.status is None
            terms = _recorded_terms(self.ready, record.start.terms or Terms()) if resumed else self.ready
            # The journal of an older remit lacks the limits that were added since.
            limits = (self.options.get("limits") or Limits()).over(record.limits).over(ROOT_DEFAULTS)
            if resumed:
                _check_hooks(record.start.terms, self.options)
                terms.models.check(self.agent, needs_price=isinstance(limits.usd, (int, float)))
                checks.check_matches(self.agent, past)
                await terms.check_reach(self.agent)
        except BaseException:
            with CancelScope(shield=True):
                await journal.leave()
            raise
        tree = open_tree(journal, self.options, terms.workspace, past)
        if not resumed:
            return Opened(tree, _recorded_outcome(past, self.agent), terms.models.close, posted)
        plan = Plan(agent=self.agent, prompt=record.task, task=record.task.text, summary=self.agent.summary)
        root = Engine(tree, terms.models).root(
            plan, limits=limits, policies=terms.policies, sandbox=terms.sandbox, record=record
        )
        return Opened(tree, root, terms.models.close, posted, unfinished=unfinished)


def _recorded_terms(ready: Ready, terms: Terms) -> Ready:
    """The caller's options, with recorded ones in place of those not given. The sandbox is never widened."""
    caller, own = ready.policies
    if caller is None and terms.function:
        raise UsageError(
            "The tree was started with a policy function, which a journal cannot record. Pass it again: policy=..."
        )
    if caller is None and terms.policy is not None:
        caller = compile_policy(terms.policy, "the journal")
    place = ready.workspace
    if place is None and terms.workspace:
        place = checks.check_workspace(terms.workspace)
    box = ready.sandbox if terms.sandbox is None else ready.sandbox.within(terms.sandbox)
    return msgspec.structs.replace(ready, policies=(caller, own), sandbox=box, workspace=place)


def _check_hooks(terms: Terms | None, options: TreeOptions) -> None:
    """Raises UsageError if the caller's hooks are not given again: the tree must not go on unguarded by mistake."""
    for name in () if terms is None else terms.hooks:
        if options.get(name) is None:
            raise UsageError(
                f"The tree was started with {name}=..., which a journal cannot record. Pass it again, or {name}=[] to"
                " resume without it."
            )


def _is_resumed(past: Tree) -> bool:
    if past.status is Status.FAILED:
        # The program may have been fixed since.
        return past.runs[past.root].start.program
    return past.status is None or past.status in REOPENED


async def _read(journal: Journal) -> tuple[Tree, Sequence[Posted] | None]:
    """The recorded tree, claimed if it will be resumed, and the commands sent to it meanwhile."""
    past = fold([event async for event in journal.past()])
    if not _is_resumed(past):
        # Reading an outcome needs no claim.
        return past, ()
    await journal.claim(new=False)
    async for event in journal.past(past.seq):
        apply(past, event)
    posted = await journal.posted()
    return past, posted if _is_resumed(past) else ()


def _root_of(past: Tree, run_id: str) -> RunRecord:
    record = past.runs.get(run_id)
    if record is None:
        raise StoreError(f"The journal of {run_id!r} has no first event, so the tree cannot be resumed.")
    return record


async def _recorded_outcome(past: Tree, agent: Agent) -> Outcome:
    """The outcome of a tree that is not run again."""
    return with_output(past.outcome(), agent)
