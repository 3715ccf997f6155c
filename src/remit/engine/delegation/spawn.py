"""The one path a run takes: admit, spawn, drive, end. The root takes it too, without a parent to ask.

Whatever ends a run, a bug in here included, becomes one `Outcome`.
"""

from __future__ import annotations

import functools
import logging
from asyncio import CancelledError
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from math import floor, inf

import msgspec

import remit.engine.budget.slots as slots
from remit.agent import Agent
from remit.engine.budget.model_choice import Chain, Models, window_of
from remit.engine.budget.slots import Pool
from remit.engine.delegation.admission import Admitted, admit, readmit
from remit.engine.delegation.delegate_tools import kit_for
from remit.engine.delegation.report import HAD, PREFIX_BYTES
from remit.engine.run.artifacts import keep
from remit.engine.run.loop import drive
from remit.engine.run.loop_ending import Ending
from remit.engine.run.state import Plan, Run, Shared
from remit.engine.tree.node import Scope, TreeContext, current_run
from remit.history.records import REOPENED, RunRecord, Spending, is_within
from remit.tasks.cancel import Stopped
from remit.tools.policy import PolicyFunction, Rules
from remit.tools.schema import output_schema
from remit.types.events import NO_TERMS, VERSION, DelegationRejected, RunEnded, RunResumed, RunStarted, Terms
from remit.types.limits import OWN, Limits, total
from remit.types.messages import Json, Message
from remit.types.outcome import COMPLETED, Outcome, Rejection, Status
from remit.types.sandbox import OPEN, Sandbox
from remit.types.text import describe_error

log = logging.getLogger("remit")


class Engine:
    """Starts, runs and ends the runs of one tree."""

    def __init__(self, tree: TreeContext, models: Models) -> None:
        self.tree = tree
        self.models = models
        self.outcomes: dict[str, Outcome] = {}
        self.spending: dict[str, Spending] = {}
        """Of the runs that the journal has, when the tree was resumed."""

    def root(
        self,
        plan: Plan,
        *,
        limits: Limits,
        policies: tuple[PolicyFunction | None, ...],
        sandbox: Sandbox = OPEN,
        history: Sequence[Message] = (),
        record: RunRecord | None = None,
    ) -> Coroutine[object, object, Outcome]:
        """Make the root, at once, so that it can be stopped from now on; what comes back runs it.

        It is admitted by nobody; from there on it is a run like any other. `record` is what the journal has
        of it, when it goes on.
        """
        pools = (Pool(limits.concurrency),) if isinstance(limits.concurrency, int) else ()
        for pool in pools:
            pool.working = 1
        depth = limits.depth if isinstance(limits.depth, int) else None
        scope = Scope(
            self.tree,
            parent=None,
            run_id=self.tree.root,
            agent=plan.agent.name,
            limits=limits,
            depth_left=depth,
            policies=policies,
            pools=pools,
            task=plan.task,
            sandbox=sandbox,
            record=record,
        )
        shared = self._work_out(plan, limits, None, depth)
        run = self._prepare(scope, plan, shared, plan.agent.settings or {}, history)
        if record is not None:
            self._revive(run, record)
        return self._execute(run, plan)

    async def delegate(self, parent: Run, plan: Plan, call_id: str) -> Outcome | Rejection:
        """Let a child do a plan for its parent's call. Raises nothing."""
        # A resumed parent: the journal may have the child already.
        past = parent.pending.get(call_id)
        record = None if past is None else self.tree.past.runs.get(past.child)
        if past is not None and record is not None and not past.goes_on:
            return self._recorded(parent, record)
        admitted = await (admit if record is None else readmit)(parent, plan, call_id)
        if not isinstance(admitted, Rejection):
            return await self._execute(self._spawn(parent, plan, admitted, record), plan, parent, call_id)
        if record is not None:
            return self._recorded(parent, record)
        parent.scope.emit(DelegationRejected, call=call_id, rejection=admitted)
        return admitted

    def _recorded(self, parent: Run, record: RunRecord) -> Outcome:
        """How a child ended that does not go on: as the journal has it, or interrupted if it has no end there."""
        from remit.engine.run.state_restored import interrupt  # noqa: PLC0415 - for trees that go on

        parent.left_open.pop(record.id, None)
        outcomes = self.outcomes
        below = [r for r in self.tree.past.runs.values() if r.outcome is None and is_within(r.id, record.id)]
        # Its own end comes last, as in any tree.
        for one in reversed(below):
            children = tuple([outcomes[child] for child in one.children])
            known = msgspec.structs.replace(outcomes[one.id], children=children)
            outcomes[one.id] = interrupt(self.tree, one, known)
        outcome = outcomes[record.id]
        parent.ended_child(outcome)
        return outcome

    def _revive(self, run: Run, record: RunRecord) -> None:
        """Have a run go on from where the journal left it."""
        from remit.engine.run.state_restored import count_lost, restore  # noqa: PLC0415 - as above
        from remit.history.fold import apply  # noqa: PLC0415 - as above

        tree = self.tree
        apply(tree.past, run.scope.emit(RunResumed, limits=run.scope.limits))
        if run.scope.parent is None:
            count_lost(tree)
            self.spending, self.outcomes = tree.past.spending(), tree.past.outcomes()
        restore(run, record, self.outcomes, self.spending[record.id])
        run.started_at -= record.worked_s
        tree.going_on.discard(record.id)

    def _spawn(self, parent: Run, plan: Plan, admitted: Admitted, record: RunRecord | None) -> Run:
        """Narrow the scope and make the child. From here on it is the child that holds the slots."""
        above, agent = parent.scope, plan.agent
        policy, sandbox, settings = agent.policy, agent.sandbox, agent.settings
        try:
            shared = parent.shared.below.get((agent, plan.kit, plan.turns)) or self._share(parent, plan)
            above.spawned += record is None
            scope = Scope(
                self.tree,
                above,
                f"{above.run_id}.{above.spawned}" if record is None else record.id,
                agent.name,
                shared.limits,
                shared.depth_left,
                above.policies if policy is None else (*above.policies, policy),
                admitted,
                plan.task,
                above.sandbox if sandbox is None else sandbox.within(above.sandbox),
                record,
                parent.lends_task,
            )
        except BaseException:
            slots.give_back(admitted)
            raise
        try:
            above.adopt(scope)
            run = self._prepare(scope, plan, shared, parent.settings if settings is None else settings, ())
            if record is not None:
                parent.left_open.pop(record.id, None)
                self._revive(run, record)
            return run
        except BaseException:
            scope.close()
            raise

    def _share(self, parent: Run, plan: Plan) -> Shared:
        """What the children of a run that are of one agent have in common, worked out for the first of them."""
        above = parent.scope
        limits = _narrowed(above.limits, plan.agent.limits, plan.turns)
        depth = _depth_left(above.depth_left, limits)
        found = self._work_out(plan, limits, parent.shared.models, depth)
        parent.shared.below[plan.agent, plan.kit, plan.turns] = found
        return found

    def _work_out(self, plan: Plan, limits: Limits, above: Chain | None, depth_left: int | None) -> Shared:
        agent = plan.agent
        chain = self.models.find(agent, above)
        model = chain[0]
        kit = plan.kit or kit_for(agent, depth_left is None or depth_left > 0)
        return Shared(
            limits,
            depth_left,
            chain,
            self.tree.lane_of(model),
            kit,
            None if agent.output is None else output_schema(agent.output),
            window_of(model, limits, None),
            limits.turns if isinstance(limits.turns, int) else inf,
            {},
        )

    def _prepare(
        self,
        scope: Scope,
        plan: Plan,
        shared: Shared,
        settings: Mapping[str, Json],
        history: Sequence[Message],
    ) -> Run:
        run = Run(scope, plan, shared, settings, self)
        if history:
            run.task_at = len(history)
            for message in history:
                run.add(message)
        run.add(plan.prompt)
        tree = self.tree
        tree.runs[scope.run_id] = scope
        tree.known.add(scope.run_id)
        if tree.past.grants:
            from remit.engine.run.state_restored import restore_grants  # noqa: PLC0415 - as above

            restore_grants(run, tree)
        return run

    async def _execute(self, run: Run, plan: Plan, parent: Run | None = None, call_id: str = "") -> Outcome:
        # A name of our own for it: the methods of what a module imports are looked for the long way.
        scope, now = run.scope, current_run
        before = now.get()
        now.set(scope.run_id)
        try:
            if not run.resumed:
                self._tell_started(run, plan, call_id)
            if run.agent.tools and plan.kit is None and run.agent.sources:
                from remit.engine.delegation.sources import borrow_tools  # noqa: PLC0415 - for agents with sources of tools

                # A stop meanwhile is met again by the loop, which says what it comes to.
                with suppress(Stopped):
                    await borrow_tools(run)
            ending = await drive(run)
        except (Exception, Stopped, CancelledError) as bug:
            log.exception("the run %s failed inside remit", scope.run_id)
            what = f"remit itself failed: {describe_error(bug)}"
            ending = Ending(Status.FAILED, run.text, what, error=what)
        finally:
            # Its parent may go on in the same task.
            now.set(before)
        scope.over, scope.hears = True, False
        if scope.inbox or (parent is None and self.tree.mail):
            self._warn_of_late(scope, ending)
        if parent is None and (refusals := self.tree.journal.refusals()):
            scope.warn(refusals)
        try:
            if parent is not None and _is_long(run, ending, plan, parent):
                await keep(run, "text", ending.text or run.text)
            outcome = self._end(run, ending)
        finally:
            for source in run.borrowed:
                self.tree.sources.give_back(source)
            scope.close()
        if parent is None:
            return await self._stored(outcome) if self.tree.journal.shared else outcome
        parent.ended_child(outcome)
        return outcome

    def _warn_of_late(self, scope: Scope, ending: Ending) -> None:
        kept = self.tree.journal.shared and ending.status in REOPENED
        late = [sent for sent in scope.inbox if sent.origin == "sent"]
        if late:
            scope.warn(_came_too_late(len(late), "", kept=kept), until_resumed=kept)
        if scope.parent is None:
            for run_id, mail in self.tree.mail.items():
                scope.warn(_came_too_late(len(mail), f" to {run_id}", kept=kept), until_resumed=kept)

    async def _stored(self, outcome: Outcome) -> Outcome:
        """The root's outcome, once its last event is stored: it may be the one that was not."""
        trouble = await self.tree.journal.finish()
        if not trouble:
            return outcome
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, trouble))

    def _tell_started(self, run: Run, plan: Plan, call_id: str) -> None:
        scope, tree, agent = run.scope, self.tree, run.agent
        stamp, publish = tree.stamp, tree.publish
        seq, at = stamp()
        publish(
            # By position: by name, this many arguments would be put in a dictionary first.
            RunStarted(
                seq,
                at,
                scope.run_id,
                scope.parent_id,
                tree.root,
                scope.depth,
                scope.path,
                scope.agent,
                VERSION,
                plan.prompt,
                plan.label,
                call_id,
                agent.nickname or "",
                run.model.name,
                agent.instructions,
                run.kit.names,
                run.kit.subagents,
                scope.limits,
                tuple(run.messages[:-1]) if run.task_at else (),
                NO_TERMS if scope.parent is not None else _terms(scope),
            )
        )

    def _end(self, run: Run, ending: Ending) -> Outcome:
        """Whatever ended it: one outcome, and an event that has it."""
        scope, tree = run.scope, self.tree
        if run.left_open:
            for child in tuple(run.left_open):
                self._recorded(run, tree.past.runs[child])
        outcome = self._outcome(run, ending)
        told = msgspec.structs.replace(outcome, children=(), messages=(), output=None)
        stamp, publish = tree.stamp, tree.publish
        seq, at = stamp()
        publish(
            RunEnded(
                seq,
                at,
                scope.run_id,
                scope.parent_id,
                tree.root,
                scope.depth,
                scope.path,
                scope.agent,
                VERSION,
                told,
            )
        )
        return outcome

    def _outcome(self, run: Run, ending: Ending) -> Outcome:
        scope, status, clock = run.scope, ending.status, self.tree.clock
        completed, spent, children = status is COMPLETED, scope.usage, run.children
        # One call without money is its own sum, and most children make one call.
        usage = whole = spent[0] if len(spent) == 1 and not spent[0].usd else total(spent)
        if children:
            children = children if len(children) == 1 else sorted(children, key=_place)
            parts = [usage]
            for child in children:
                parts.append(child.total_usage)  # noqa: PERF401 - a comprehension is a function of its own
            whole = total(parts)
        return Outcome(
            status,
            scope.agent,
            scope.run_id,
            ending.text if completed else "",
            "" if completed else ending.text or run.text,
            "" if completed else ending.reason,
            run.plan.label,
            scope.parent_id,
            scope.depth,
            run.model_used or run.model.name,
            run.replies,
            tuple(run.log),
            usage,
            whole,
            tuple(children),
            tuple(run.messages),
            ending.output,
            tuple(run.artifacts),
            ending.error,
            None if completed else run.failed_tool,
            # Not by `round`, which goes by way of a text.
            floor((clock() - run.started_at) * 1_000_000 + 0.5) / 1_000_000,
            tuple(scope.warnings),
        )


def _came_too_late(count: int, whom: str, *, kept: bool) -> str:
    what = "1 message" if count == 1 else f"{count} messages"
    return f"{what}{whom} came too late to join a turn{', unless this run is resumed' if kept else ''}."


def _is_long(run: Run, ending: Ending, plan: Plan, parent: Run) -> bool:
    """Whether its parent will only see the head of its answer, so that the whole is to be kept."""
    said, completed = ending.text or run.text, ending.status is COMPLETED
    most = parent.scope.limits.result_chars
    if isinstance(most, int) and len(said) > most:
        return True
    if plan.inline_bytes is None:
        return False
    # What is said before a partial text takes room away from it.
    before = 0 if completed else PREFIX_BYTES + len(HAD) + len("\n\n")
    return len(said.encode()) > plan.inline_bytes - before


def _terms(root: Scope) -> Terms:
    caller = root.policies[0]
    if caller is None and root.sandbox is OPEN and root.tree.workspace is None:
        return NO_TERMS
    rules = tuple(map(str, caller.rules)) if isinstance(caller, Rules) else None
    return Terms(
        sandbox=None if root.sandbox == OPEN else root.sandbox,
        workspace=str(root.tree.workspace or ""),
        policy=rules,
        function=caller is not None and rules is None,
    )


def _place(child: Outcome) -> int:
    """A child's number among its siblings: the order in which they were started."""
    return int(child.run_id.rpartition(".")[2])


def root_limits(agent: Agent, limits: Limits | None, defaults: Limits) -> Limits:
    """What holds at the root: the smaller of the caller's and the agent's, then the defaults."""
    return _joined(limits or _UNSET, agent.limits, defaults)


_UNSET = Limits()


# Limits are few and their runs are many: each is worked out once.
@functools.lru_cache(maxsize=256)
def _joined(asked: Limits, own: Limits | None, defaults: Limits) -> Limits:
    return asked.tighter(own).over(defaults)


@functools.lru_cache(maxsize=256)
def _narrowed(above: Limits, own: Limits | None, turns: int | None) -> Limits:
    """A child's limits: its own shared numbers (the parent's hold anyway), and its parent's where it has none."""
    own = own or _UNSET
    fields: dict[str, object] = {f: getattr(above, f) for f in OWN if getattr(own, f) is msgspec.UNSET}
    if turns is not None:
        fields["turns"] = turns
    return msgspec.structs.replace(own, **fields)


def _depth_left(above: int | None, limits: Limits) -> int | None:
    own = limits.depth if isinstance(limits.depth, int) else None
    if above is None:
        return own
    return above - 1 if own is None else min(above - 1, own)
