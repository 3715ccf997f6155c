"""`fold(events)`: rebuilds a tree from its events. The only reader of history.

The same events always give the same tree. Resuming, showing and watching a run all start here. The functions after
`fold` apply one kind of event each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

import msgspec

import remit.types.events as events
from remit.history.records import REOPENED, CallRecord, ClockRecord, Grant, RunRecord, TalkRecord, Tree
from remit.types.events import Event
from remit.types.messages import AssistantMessage, Call, ToolMessage, UserMessage, user
from remit.types.outcome import Status

E = TypeVar("E", bound=Event)
_Change = Callable[[Tree, RunRecord, Event], None]
_changes: dict[type[Event], _Change] = {}


def fold(history: Iterable[Event]) -> Tree:
    """Rebuild a tree from its events. Ignores live-only events and events of runs without a start event."""
    tree = Tree()
    for event in history:
        apply(tree, event)
    return tree


def apply(tree: Tree, event: Event) -> None:
    """Apply one event to a tree."""
    if event.live_only:
        return
    if isinstance(event, events.RunStarted) and _belongs(tree, event):
        _started(tree, event)
    elif isinstance(event, events.RunResumed) and event.run == tree.root:
        _stop_clocks(tree)
    tree.seq, tree.at = max(tree.seq, event.seq), event.at
    record, change = tree.runs.get(event.run), _changes.get(type(event))
    if record is not None and change is not None:
        change(tree, record, event)


def reopen(tree: Tree, record: RunRecord) -> None:
    """Reset a run to the point where it resumes: before its last wrap-up or summary, with stopped calls open again.

    Used both when a run is resumed and when a recorded resume is read from the journal.
    """
    status, record.died = record.status, _has_died(record)
    if record.talk.aside_at is not None:
        _drop_aside(record)
    record.outcome = record.cancelled = None
    record.stopped = False
    record.warnings = [text for text in record.warnings if text not in record.until_resumed]
    record.until_resumed = []
    _reopen_calls(tree, record, died=record.died)
    for child in _code_children(record, record.last_turn()):
        tree.runs[child].goes_on = can_go_on(tree, child, died=record.died)
    last = record.talk.messages[-1] if record.talk.messages else None
    if status is Status.INCOMPLETE and isinstance(last, AssistantMessage) and not last.calls:
        # The reply was truncated or empty: ask the model again instead of ending with the same reply.
        record.talk.reply = None


def going_on(tree: Tree) -> Iterator[RunRecord]:
    """The runs that resume with the tree: the root, and the descendants that were stopped with it."""
    found = [tree.root]
    while found:
        record = tree.runs[found.pop()]
        yield record
        died = _has_died(record)
        calls = record.last_turn() if record.talk.reply is not None else []
        if died:
            calls = [c for c in calls if c.ended is None or c.ended.unfinished]
        found += [c.child for c in calls if _goes_on(tree, c, died=died)]
        found += [c for c in _code_children(record, calls) if can_go_on(tree, c, died=died)]


def _code_children(record: RunRecord, calls: Iterable[CallRecord]) -> list[str]:
    """The runs that code of a run asked for: a program, or the tools of these calls."""
    return record.children if record.start.program else [child for call in calls for child in call.code]


def _has_died(record: RunRecord) -> bool:
    """Whether the run's process died while the run worked. A run that was being stopped counts as ended."""
    return record.outcome is None and not record.stopped


def _changes_on(kind: type[E]) -> Callable[[Callable[[Tree, RunRecord, E], None]], None]:
    def register(change: Callable[[Tree, RunRecord, E], None]) -> None:
        _changes[kind] = cast("_Change", change)

    return register


def _changes_run(kind: type[E]) -> Callable[[Callable[[RunRecord, E], None]], None]:
    """As `_changes_on`, for events that change only their own run."""

    def register(change: Callable[[RunRecord, E], None]) -> None:
        _changes[kind] = lambda _, record, event: change(record, cast(E, event))

    return register


def _belongs(tree: Tree, event: events.RunStarted) -> bool:
    """Whether this start is valid: once per run, below a run that has started. Journals may be damaged."""
    if event.run in tree.runs:
        return False
    if event.parent is None:
        return not tree.root
    return event.parent in tree.runs and event.parent == event.run.rpartition(".")[0]


def _started(tree: Tree, event: events.RunStarted) -> None:
    record = RunRecord(
        event,
        event.limits,
        event.model,
        talk=TalkRecord([*event.history, event.task], task_at=len(event.history)),
        clock=ClockRecord(since=event.at),
    )
    tree.runs[event.run] = record
    if event.parent is None:
        tree.root = event.run
        return
    parent = tree.runs.get(event.parent)
    if parent is not None:
        parent.children.append(event.run)
        call = parent.find(event.call)
        if call is not None and event.key:
            call.code.append(event.run)
        elif call is not None:
            call.child = event.run


@_changes_on(events.RunResumed)
def _resumed(tree: Tree, record: RunRecord, event: events.RunResumed) -> None:
    reopen(tree, record)
    record.limits = event.limits
    record.clock.since = event.at


@_changes_on(events.RunEnded)
def _ended(tree: Tree, record: RunRecord, event: events.RunEnded) -> None:
    parent = tree.runs.get(record.parent) if record.parent else None
    call = parent.find(record.call) if parent is not None else None
    if call is not None and call.child == record.id:
        # The resumed child has ended: its parent reads the new outcome.
        call.goes_on = False
    _hold_clock(record, event.at)
    record.outcome = event.outcome
    record.goes_on = False
    record.asking = None


@_changes_run(events.TurnStarted)
def _asked(record: RunRecord, event: events.TurnStarted) -> None:
    record.asking = event
    if event.purpose == "turn":
        if record.talk.aside_at is not None:
            # The wrap-up or summary did not succeed.
            _drop_aside(record)
            record.talk.asides.clear()
        record.talk.reply = None


@_changes_run(events.ReplyReceived)
def _replied(record: RunRecord, event: events.ReplyReceived) -> None:
    reply = event.reply
    record.asking = None
    record.talk.replies += 1
    record.talk.text = reply.text if reply.text.strip() else record.talk.text
    record.talk.model = reply.model or record.talk.model or record.model
    record.talk.messages.append(AssistantMessage(reply.text, reply.calls, reply.thinking, reply.details))
    if event.purpose == "turn":
        record.talk.turns += 1
        record.talk.reply = reply
        record.talk.asides.clear()
        record.talk.aside_at = None
    else:
        record.talk.asides[event.purpose] = reply
    if not event.again:
        record.usage.append(event.usage)
        if not event.usage.estimated:
            record.talk.measured, record.talk.measured_at = event.usage.tokens, len(record.talk.messages)
    if reply.calls:
        record.calls += [CallRecord(call, event.turn) for call in reply.calls]
        record.begin_turn(len(record.calls) - len(reply.calls))


@_changes_run(events.ModelCallFailed)
def _failed(record: RunRecord, event: events.ModelCallFailed) -> None:
    record.asking = None
    record.usage.append(event.usage)


@_changes_run(events.ModelSwitched)
def _switched(record: RunRecord, event: events.ModelSwitched) -> None:
    record.switched += 1
    record.model, record.talk.model = event.model, ""


@_changes_run(events.InstructionsWritten)
def _instructed(record: RunRecord, event: events.InstructionsWritten) -> None:
    record.instructions = event.instructions


@_changes_run(events.CallChanged)
def _call_changed(record: RunRecord, event: events.CallChanged) -> None:
    call = record.find(event.call)
    if call is not None:
        call.changed = event.args


@_changes_run(events.CallStarted)
def _call_started(record: RunRecord, event: events.CallStarted) -> None:
    call = record.find(event.call)
    if record.start.program and (call is None or call.ended is not None):
        # A step of a program: no model reply requested it. A failed step runs again when the program is resumed.
        call = CallRecord(Call(event.call, event.tool, {}), 0)
        record.turn.places[event.call] = len(record.calls)
        record.calls.append(call)
        record.turn.open += 1
    if call is not None:
        call.started, call.tier, call.delegates = True, event.tier, event.delegates


@_changes_run(events.CallEnded)
def _call_ended(record: RunRecord, event: events.CallEnded) -> None:
    call = record.find(event.call)
    if call is None or call.ended is not None:
        return
    call.ended = event
    record.turn.open -= 1
    if not record.turn.open and not record.start.program:
        record.talk.messages += [m for m in (c.message for c in record.last_turn()) if m is not None]


@_changes_run(events.ResultCut)
def _result_cut(record: RunRecord, event: events.ResultCut) -> None:
    if 0 <= event.place < len(record.talk.messages):
        message = record.talk.messages[event.place]
        if isinstance(message, ToolMessage):
            record.talk.messages[event.place] = msgspec.structs.replace(
                message, content=event.content, note=event.note, parts=()
            )
        return
    for index in reversed(range(len(record.talk.messages))):
        message = record.talk.messages[index]
        if isinstance(message, ToolMessage) and message.call_id == event.call:
            record.talk.messages[index] = msgspec.structs.replace(message, content=event.content, note="")
            return


@_changes_run(events.Compacted)
def _compacted(record: RunRecord, event: events.Compacted) -> None:
    messages = record.talk.messages
    record.talk.messages = [
        messages[event.task_at],
        user(event.summary),
        *messages[event.kept_from : event.kept_to],
    ]
    record.talk.task_at, record.talk.aside_at = 0, None
    record.talk.asides.pop("compact", None)
    record.talk.measured = record.talk.measured_at = 0


@_changes_run(events.MessageSent)
def _sent(record: RunRecord, event: events.MessageSent) -> None:
    record.talk.unjoined.append(event.message)


@_changes_on(events.MessageJoined)
def _joined(tree: Tree, record: RunRecord, event: events.MessageJoined) -> None:
    if event.purpose != "turn":
        record.talk.aside_at = len(record.talk.messages)
    elif event.message in record.talk.unjoined:
        record.talk.unjoined.remove(event.message)
    if record.talk.reply is not None and not record.talk.reply.calls:
        record.talk.reply = None if event.purpose == "turn" else record.talk.reply
    record.talk.messages.append(event.message)
    _obeyed(tree, event.command)


@_changes_on(events.CancelRequested)
def _cancelled(tree: Tree, record: RunRecord, event: events.CancelRequested) -> None:
    record.cancelled = event
    if record.parent is None:
        for run in tree.runs.values():
            run.stopped = run.outcome is None
    _obeyed(tree, event.command)


@_changes_on(events.ApprovalRequested)
def _approval_requested(tree: Tree, record: RunRecord, event: events.ApprovalRequested) -> None:
    call = record.find(event.call)
    if call is not None:
        tree.asked += call.request != event.request
        call.request = event.request
    tree.requests[event.request] = event
    for run in _lineage(tree, record):
        run.clock.waits += 1
        _hold_clock(run, event.at)


@_changes_on(events.ApprovalAnswered)
def _approval_answered(tree: Tree, record: RunRecord, event: events.ApprovalAnswered) -> None:
    asked, call = tree.requests.pop(event.request, None), record.find(event.call)
    if call is not None and not event.stopped:
        call.answer = event
        if event.allowed and event.args is not None:
            call.changed = event.args
    if asked is not None and event.allowed and event.scope != "once":
        tree.grants.append(Grant(record.id, record.path, asked.tool, event.scope, asked.reasons))
    for run in _lineage(tree, record):
        run.clock.waits = max(0, run.clock.waits - 1)
        if run.clock.waits == 0 and run.clock.since is None and run.outcome is None:
            run.clock.since = event.at
    _obeyed(tree, event.command)


@_changes_on(events.Overran)
def _overran(tree: Tree, record: RunRecord, event: events.Overran) -> None:
    for run in _lineage(tree, record):
        run.overran[event.resource] = run.limits


@_changes_run(events.ArtifactSaved)
def _artifact_saved(record: RunRecord, event: events.ArtifactSaved) -> None:
    record.artifacts = [a for a in record.artifacts if a.id != event.artifact.id] + [event.artifact]


@_changes_on(events.Warned)
def _warned(tree: Tree, record: RunRecord, event: events.Warned) -> None:
    record.warnings.append(event.text)
    if event.until_resumed:
        record.until_resumed.append(event.text)
    if event.above and tree.root in tree.runs:
        tree.runs[tree.root].warnings.append(f"{' > '.join(event.path)}: {event.text}")


def _obeyed(tree: Tree, command: str) -> None:
    if command:
        tree.commands.add(command)


def _lineage(tree: Tree, record: RunRecord) -> Iterator[RunRecord]:
    above: RunRecord | None = record
    while above is not None:
        yield above
        above = tree.runs.get(above.parent) if above.parent else None


def _hold_clock(record: RunRecord, at: float) -> None:
    if record.clock.since is not None:
        record.clock.worked_s += max(0.0, at - record.clock.since)
        record.clock.since = None


def _stop_clocks(tree: Tree) -> None:
    """Stop all clocks at the last event, the last time at which the process is known to have run."""
    for record in tree.runs.values():
        _hold_clock(record, tree.at)
        record.clock.waits = 0


def _drop_aside(record: RunRecord) -> None:
    assert record.talk.aside_at is not None
    gone = record.talk.messages[record.talk.aside_at :]
    replies = sum(isinstance(m, AssistantMessage) for m in gone)
    del record.talk.messages[record.talk.aside_at :]
    record.talk.aside_at = None
    if replies:
        record.talk.replies -= replies
        record.calls = [c for c in record.calls if c.turn <= record.talk.replies]
        last = record.calls[-1].turn if record.calls else 0
        record.begin_turn(next((n for n, c in enumerate(record.calls) if c.turn == last), 0))
    _undo_cuts(record)
    if record.talk.measured_at > len(record.talk.messages):
        record.talk.measured = record.talk.measured_at = 0


def _undo_cuts(record: RunRecord) -> None:
    results = {c.call.id: c.message for c in record.last_turn()}
    index = len(record.talk.messages) - 1
    while index >= 0 and not isinstance(record.talk.messages[index], AssistantMessage):
        message = record.talk.messages[index]
        whole = results.get(message.call_id) if isinstance(message, ToolMessage) else None
        if whole is not None:
            record.talk.messages[index] = whole
        index -= 1


def _reopen_calls(tree: Tree, record: RunRecord, *, died: bool) -> None:
    """Reopen the calls of the last turn that were stopped or whose child resumes."""
    if record.talk.reply is None or not record.talk.reply.calls:
        return
    stopped = False
    for call in record.last_turn():
        call.goes_on = _goes_on(tree, call, died=died)
        if call.ended is None:
            continue
        if (call.goes_on and not died) or (call.ended.unfinished and (call.goes_on or not call.child)):
            call.ended = None
            record.turn.open += 1
            stopped = True
    # The results will be added again together, and messages sent after them again after them.
    while stopped and not isinstance(record.talk.messages[-1], AssistantMessage):
        message = record.talk.messages.pop()
        if isinstance(message, UserMessage):
            record.talk.unjoined.insert(0, message)


def _goes_on(tree: Tree, call: CallRecord, *, died: bool) -> bool:
    """Whether a call's child resumes with its parent. A child that was itself cancelled does not.

    If the parent had ended, every child that can resume does. If the parent died, only children that were stopped or
    open do, and children that were about to resume when the parent died again.
    """
    child = tree.runs.get(call.child)
    if child is None or child.cancelled is not None:
        return False
    return call.goes_on or can_go_on(tree, call.child, died=died)


def can_go_on(tree: Tree, run: str, *, died: bool) -> bool:
    """Whether a run resumes with its parent, which had ended or `died`, or was to resume before the parent died again."""
    child = tree.runs[run]
    if child.cancelled is not None:
        return False
    if child.outcome is None or child.goes_on:
        return True
    # A failed program that code delegated to runs again: its code may have been fixed.
    mended = child.start.program and bool(child.start.key) and child.outcome.status is Status.FAILED
    return mended or child.outcome.status in ({Status.CANCELLED} if died else REOPENED)
