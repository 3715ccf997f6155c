"""The one path of every run: admit, spawn, drive, end. The root takes it too, without admission.

However a run ends, even by a bug in remit, it becomes one `Outcome`.
"""

from __future__ import annotations

import functools
import logging
from asyncio import CancelledError
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress

import msgspec

import remit.engine.budget.ledger as ledger
import remit.engine.budget.slots as slots
from remit.agent import Agent
from remit.engine.budget.model_choice import Chain, Models
from remit.engine.budget.slots import Pool
from remit.engine.delegation.admission import Admitted, admit, readmit, refused
from remit.engine.delegation.delegate_tools import kit_for
from remit.engine.delegation.report import PARTIAL, PREFIX_BYTES
from remit.engine.delegation.sources import borrow_tools
from remit.engine.run.artifacts import keep
from remit.engine.run.hooks import write_instructions
from remit.engine.run.loop import drive
from remit.engine.run.loop_ending import Ending
from remit.engine.run.program import run_program
from remit.engine.run.runtime_tool import Delegation, Plan
from remit.engine.run.state import Run, new_run
from remit.engine.run.state_restored import count_lost, interrupt, restore, restore_grants, with_output
from remit.engine.tree.bounds import Bounds, Kit
from remit.engine.tree.context import TreeContext
from remit.engine.tree.node import Node, current_run, new_node
from remit.engine.tree.tracing import UNTRACED
from remit.errors import UsageError
from remit.history.fold import apply
from remit.history.records import REOPENED, RunRecord, Spending, elapsed, is_within
from remit.tasks.cancel import Stopped
from remit.tools.policy import PolicyFunction, Rules
from remit.tools.schema import output_schema
from remit.types.events import RunEnded, RunResumed, RunStarted, Terms
from remit.types.limits import OWN, Limits, total
from remit.types.messages import Json, Message
from remit.types.outcome import Outcome, Rejection, Status
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
        """What the recorded runs had spent when the tree was resumed."""

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
        """Create the root at once, so that it can be cancelled, and return the coroutine that runs it.

        `record` is the recorded part of a resumed root.
        """
        tree, agent, most = self.tree, plan.agent, limits.concurrency
        bounds = self._bounds(
            plan,
            limits,
            depth_left=limits.depth if isinstance(limits.depth, int) else None,
            policies=policies,
            sandbox=sandbox,
            settings=agent.settings or {},
            models=self.models.find(agent, None),
        )
        node = new_node(
            tree,
            None,
            bounds,
            agent.name,
            plan.task,
            run_id=tree.root,
            pools=(Pool(most, working=1),) if isinstance(most, int) else (),
            elapsed_s=elapsed(record, tree.past.at) if record else 0.0,
            program=agent.program is not None,
        )
        return self._execute(self._prepare(node, plan, record, history), None)

    def refused(self, delegation: Delegation) -> Rejection | None:
        return refused(delegation)

    async def delegate(self, delegation: Delegation) -> Outcome | Rejection:
        """Let a child do the plan for its parent. Raises nothing."""
        # Code has looked already.
        recorded = None if delegation.key else self.recall(delegation)
        if recorded is not None:
            return recorded
        enter = admit if delegation.record is None else readmit
        admitted = self._model_trouble(delegation) or await enter(delegation)
        if isinstance(admitted, Rejection):
            return self.decline(delegation, admitted)
        return await self._execute(self._spawn(delegation, admitted), delegation)

    def decline(self, delegation: Delegation, rejection: Rejection) -> Outcome | Rejection:
        """The rejection of a child; for one that the journal has and that cannot be resumed, what is recorded of it."""
        if delegation.record is None:
            return rejection
        return self._recorded(delegation.parent, delegation.record, delegation.plan.agent)

    def recall(self, delegation: Delegation) -> Outcome | None:
        """The recorded outcome of a child that is not resumed; None for any other child."""
        parent, runs = delegation.parent, self.tree.past.runs
        if parent.replay is None:
            return None
        if delegation.key:
            record = parent.replay.code.get(delegation.call, {}).pop(delegation.key, None)
            # A program's run cannot go on as a conversation of a model, nor the other way round.
            is_program = delegation.plan.agent.program is not None
            goes_on = record is not None and record.goes_on and record.start.program == is_program
        else:
            call = parent.recorded(delegation.call)
            record = None if call is None else runs.get(call.child)
            goes_on = call is not None and call.goes_on
        if goes_on:
            delegation.record = record
        if record is None or goes_on:
            return None
        return self._recorded(parent, record, delegation.plan.agent)

    def _model_trouble(self, delegation: Delegation) -> Rejection | None:
        """Why a child that code asks for has no usable model. The agents that models delegate to were checked before."""
        above, agent = delegation.parent.node, delegation.plan.agent
        if not delegation.key or (agent, None, None) in above.bounds.below:
            return None
        try:
            self.models.check(
                agent, needs_price=ledger.limits_money(above.means.account), above=above.bounds.models
            )
        except UsageError as error:
            return Rejection("invalid_input", str(error))
        return None

    def give_up(self, parent: Run, call: str) -> list[Outcome]:
        """Add the recorded children that a call or program did not ask for again, and return their outcomes."""
        left = {} if parent.replay is None else parent.replay.code.pop(call, {})
        return [self._recorded(parent, record, None) for record in left.values()]

    def _recorded(self, parent: Run, record: RunRecord, agent: Agent | None) -> Outcome:
        """How a child of the agent ended that is not resumed: as recorded, or interrupted if the journal has no end of it."""
        if parent.replay is not None:
            parent.replay.left_open.pop(record.id, None)
        # Whatever has ended has nothing open below it; recorded children may be thousands.
        if record.outcome is None:
            self._interrupt(record)
        outcome = self.outcomes[record.id]
        if agent is not None:
            outcome = with_output(outcome, agent)
        parent.children.append(outcome)
        return outcome

    def _interrupt(self, record: RunRecord) -> None:
        """Write down the end of a run that is not resumed, and of what is open below it."""
        outcomes = self.outcomes
        below = [r for r in self.tree.past.runs.values() if r.outcome is None and is_within(r.id, record.id)]
        # Parents after their children, as in any tree.
        for one in reversed(below):
            children = tuple([outcomes[child] for child in one.children])
            known = msgspec.structs.replace(outcomes[one.id], children=children)
            outcomes[one.id] = interrupt(self.tree, one, known)

    def _spawn(self, delegation: Delegation, admitted: Admitted) -> Run:
        """Narrow the bounds and make the child. From here on the child holds the slots."""
        parent, plan, record = delegation.parent, delegation.plan, delegation.record
        above, agent = parent.node, plan.agent
        try:
            key = agent, plan.kit, plan.turns
            bounds = above.bounds.below.get(key)
            if bounds is None:
                bounds = above.bounds.below[key] = self._narrowed(above.bounds, plan)
            above.spawned += record is None
            node = new_node(
                self.tree,
                above,
                bounds,
                agent.name,
                plan.task,
                run_id=f"{above.run_id}.{above.spawned}" if record is None else record.id,
                pools=admitted,
                elapsed_s=elapsed(record, self.tree.past.at) if record else 0.0,
                shares_task=parent.turn.lends_task,
                program=agent.program is not None,
            )
        except BaseException:
            slots.give_back(admitted)
            raise
        try:
            delegation.node = node
            if record is not None and parent.replay is not None:
                parent.replay.left_open.pop(record.id, None)
            return self._prepare(node, plan, record, ())
        except BaseException:
            node.close()
            raise

    def _narrowed(self, above: Bounds, plan: Plan) -> Bounds:
        """The bounds of a child, never wider than its parent's."""
        agent = plan.agent
        limits = _narrowed_limits(above.limits, agent.limits, plan.turns)
        return self._bounds(
            plan,
            limits,
            above=above if plan.kit is not None else None,
            depth_left=_depth_left(above.depth_left, limits),
            policies=above.policies if agent.policy is None else (*above.policies, agent.policy),
            sandbox=above.sandbox if agent.sandbox is None else agent.sandbox.within(above.sandbox),
            settings=above.settings if agent.settings is None else agent.settings,
            models=self.models.find(agent, above.models),
        )

    def _bounds(
        self,
        plan: Plan,
        limits: Limits,
        *,
        above: Bounds | None = None,
        depth_left: int | None,
        policies: tuple[PolicyFunction | None, ...],
        sandbox: Sandbox,
        settings: Mapping[str, Json],
        models: Chain,
    ) -> Bounds:
        """`above`: the bounds of the parent whose tools, and so whose hooks, an ad hoc child has."""
        agent, tree = plan.agent, self.tree
        return Bounds(
            limits=limits,
            depth_left=depth_left,
            policies=policies,
            has_rules=any(policy is not None for policy in policies),
            on_call=(*agent.on_call, *tree.on_call) if above is None else above.on_call,
            on_result=(*agent.on_result, *tree.on_result) if above is None else above.on_result,
            sandbox=sandbox,
            settings=settings,
            models=models,
            kit=plan.kit or self._kit(agent, depth_left),
            output_schema=None if agent.output is None else output_schema(agent.output),
            below={},
        )

    def _kit(self, agent: Agent, depth_left: int | None) -> Kit:
        if agent.program is not None:
            # No model reads it.
            return Kit({}, (), 0, subagents=tuple(one.name for one in agent.subagents))
        return kit_for(agent, depth_left is None or depth_left > 0)

    def _prepare(self, node: Node, plan: Plan, record: RunRecord | None, history: Sequence[Message]) -> Run:
        run = new_run(node, plan, self, history)
        restore_grants(run, self.tree)
        if record is not None:
            self._revive(run, record)
        return run

    def _revive(self, run: Run, record: RunRecord) -> None:
        """Restore a run from the journal."""
        tree, node = self.tree, run.node
        if tree.tracing is not None:
            tree.tracing.begin(record.start, run.agent.description, resumed=True)
        resumed = RunResumed(*node.stamp(), limits=node.bounds.limits)
        node.emit(resumed)
        apply(tree.past, resumed)
        if node.parent is None:
            count_lost(tree)
            self.spending, self.outcomes = tree.past.spending(), tree.past.outcomes()
        restore(run, record, self.outcomes, self.spending[record.id])

    async def _execute(self, run: Run, delegation: Delegation | None) -> Outcome:
        """Run to the end. However the run ends, there is one outcome."""
        node = run.node
        before = current_run.get()
        current_run.set(node.run_id)
        try:
            ending = await self._drive(run, delegation)
        finally:
            # Its parent may continue in the same task.
            current_run.set(before)
        node.life.ended, node.hears = True, False
        self._warn_at_end(node, ending)
        try:
            # A model reads only the beginning of a long answer; code reads all of it.
            if delegation is not None and not delegation.key and _is_long(run, ending, delegation.parent):
                await keep(run, "text", ending.text or run.talk.text)
            outcome = self._end(run, ending)
        finally:
            node.close()
        if delegation is None:
            return await self._stored(outcome)
        delegation.parent.children.append(outcome)
        return outcome

    async def _drive(self, run: Run, delegation: Delegation | None) -> Ending:
        try:
            if run.replay is None:
                _emit_started(run, delegation)
            tracing = self.tree.tracing
            with UNTRACED if tracing is None else tracing.in_run(run.node.run_id):
                if run.agent.program is not None:
                    return await run_program(run)
                # `drive` sees the stop again and turns it into an ending.
                with suppress(Stopped):
                    if run.instructions is None and (trouble := await write_instructions(run)):
                        return Ending(Status.FAILED, "", trouble, error=trouble)
                    if run.plan.kit is None and run.agent.sources:
                        await borrow_tools(run)
                return await drive(run)
        except (Exception, Stopped, CancelledError) as bug:
            log.exception("the run %s failed inside remit", run.node.run_id)
            what = f"remit itself failed: {describe_error(bug)}"
            return Ending(Status.FAILED, run.talk.text, what, error=what)

    def _warn_at_end(self, node: Node, ending: Ending) -> None:
        """Warn of messages that joined no turn and, at the root, of calls refused because of the store."""
        kept = self.tree.journal.shared and ending.status in REOPENED
        late = sum(sent.origin == "sent" for sent in node.inbox)
        if late:
            node.warn(_too_late(late, "", kept=kept), until_resumed=kept)
        if node.parent is None:
            for run_id, mail in self.tree.waiting.items():
                if mail:
                    node.warn(_too_late(len(mail), f" to {run_id}", kept=kept), until_resumed=kept)
            if refusals := self.tree.journal.refusals():
                node.warn(refusals)

    async def _stored(self, outcome: Outcome) -> Outcome:
        """The root's outcome, with a warning if its last events could not be stored."""
        journal = self.tree.journal
        trouble = await journal.finish() if journal.shared else ""
        if not trouble:
            return outcome
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, trouble))

    def _end(self, run: Run, ending: Ending) -> Outcome:
        """Create the outcome and its event."""
        node = run.node
        if run.replay is not None:
            for child in tuple(run.replay.left_open):
                self._recorded(run, self.tree.past.runs[child], None)
            for call in tuple(run.replay.code):
                self.give_up(run, call)
        outcome = _outcome(run, ending)
        told = msgspec.structs.replace(outcome, children=(), messages=(), output=None)
        node.emit(RunEnded(*node.stamp(), outcome=told))
        return outcome


def _emit_started(run: Run, delegation: Delegation | None) -> None:
    node, plan, agent, tracing = run.node, run.plan, run.agent, run.node.tree.tracing
    start = RunStarted(
        *node.stamp(),
        task=plan.prompt,
        label=plan.label,
        call="" if delegation is None else delegation.call,
        key="" if delegation is None else delegation.key,
        program=agent.program is not None,
        nickname=agent.nickname or "",
        model=run.asking.model.name,
        instructions=run.instructions or "",
        tools=run.kit.names,
        subagents=run.kit.subagents,
        limits=node.bounds.limits,
        history=tuple(run.talk.messages[:-1]),
        terms=_terms(node) if node.parent is None else None,
    )
    if tracing is not None and (trace := tracing.begin(start, agent.description, resumed=False)):
        start = msgspec.structs.replace(start, trace=trace)
    node.emit(start)


def _outcome(run: Run, ending: Ending) -> Outcome:
    node, where, completed = run.node, run.node.where, ending.status is Status.COMPLETED
    children = sorted(run.children, key=_place)
    usage = total(node.means.usage)
    return Outcome(
        status=ending.status,
        agent=where.agent,
        run_id=where.run,
        text=ending.text if completed else "",
        partial="" if completed else ending.text or run.talk.text,
        reason="" if completed else ending.reason,
        label=run.plan.label,
        parent_id=where.parent,
        depth=where.depth,
        model=run.asking.used or run.asking.model.name,
        turns=run.tally.replies,
        calls=tuple(run.log),
        usage=usage,
        total_usage=total([usage, *(child.total_usage for child in children)]) if children else usage,
        children=tuple(children),
        messages=tuple(run.talk.messages),
        output=ending.output,
        artifacts=tuple(run.artifacts),
        error=ending.error,
        failed_tool=None if completed else run.failed_tool,
        duration_s=round(node.tree.clock() - run.tally.started_at, 6),
        warnings=tuple(node.warnings),
    )


def _too_late(count: int, whom: str, *, kept: bool) -> str:
    what = "1 message" if count == 1 else f"{count} messages"
    return f"{what}{whom} arrived too late to join a turn{', unless this run is resumed' if kept else ''}."


def _is_long(run: Run, ending: Ending, parent: Run) -> bool:
    """Whether the parent sees only the beginning of the answer, so that the whole must be stored."""
    said, most, inline = (
        ending.text or run.talk.text,
        parent.node.bounds.limits.result_chars,
        run.plan.inline_bytes,
    )
    if isinstance(most, int) and len(said) > most:
        return True
    if inline is None:
        return False
    # The text before a partial answer takes some of the room.
    before = 0 if ending.status is Status.COMPLETED else PREFIX_BYTES + len(PARTIAL) + len("\n\n")
    return len(said.encode()) > inline - before


def _terms(root: Node) -> Terms | None:
    bounds, workspace = root.bounds, root.tree.workspace
    caller = bounds.policies[0]
    rules = tuple(map(str, caller.rules)) if isinstance(caller, Rules) else None
    terms = Terms(
        sandbox=None if bounds.sandbox == OPEN else bounds.sandbox,
        workspace=str(workspace or ""),
        policy=rules,
        function=caller is not None and rules is None,
        hooks=tuple(name for name in ("on_call", "on_result") if getattr(root.tree, name)),
    )
    return None if terms == Terms() else terms


def _place(child: Outcome) -> int:
    """A child's number among its siblings, in the order they started."""
    return int(child.run_id.rpartition(".")[2])


def root_limits(agent: Agent, limits: Limits | None, defaults: Limits) -> Limits:
    """The root's limits: the smaller of the caller's and the agent's, then the defaults."""
    return _joined(limits or _UNSET, agent.limits, defaults)


_UNSET = Limits()


# Few different limits occur, so each combination is computed once.
@functools.lru_cache(maxsize=256)
def _joined(asked: Limits, own: Limits | None, defaults: Limits) -> Limits:
    return asked.tighter(own).over(defaults)


@functools.lru_cache(maxsize=256)
def _narrowed_limits(above: Limits, own: Limits | None, turns: int | None) -> Limits:
    """A child's limits: its own shared limits (its parent's apply anyway), and per-run limits inherited where unset."""
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
