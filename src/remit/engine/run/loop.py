"""The loop: one agent, turn by turn, until it ends. There is no second loop.

Model calls are in `model_call.py`, a turn's tool calls in `tool_calls.py`; `engine/delegation/spawn.py` makes the outcome.
A soft limit (turns, time, budget, repeated calls) ends the turns, and the run is asked once for a final answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remit.engine.run.answers import checked
from remit.engine.run.artifacts import keep
from remit.engine.run.compaction import fit, learn_window, shorten_last, squeeze
from remit.engine.run.loop_ending import Ending, failed_with, limited, stopped
from remit.engine.run.model_call import ModelFailed, OverBudget, exchange, keep_last_word
from remit.engine.run.state import Run, Turn
from remit.engine.run.tool_calls import CUT_OFF, NOT_FINISHED, refuse_calls, run_calls
from remit.engine.tree.life import Limit
from remit.engine.tree.node import Node
from remit.tasks.cancel import Stopped
from remit.types.events import MessageJoined
from remit.types.messages import AssistantMessage, Call, Reply
from remit.types.outcome import Status
from remit.types.sizes import TURN_CHARS

SHORTENED = 4
"""How often a conversation that is too long for its model is shortened and sent again."""

WRAP_UP = (
    "[remit] You have to stop here: {why}. You cannot call tools any more. Write your final answer now from what you have:"
    " what you found, what is done, what is not, and what you are unsure of."
)
NO_MORE_CALLS = "Not run: tools cannot be called any more."
GO_ON = "[remit] You were stopped before your answer was complete. Continue from there."
SUMMARISE = "Summarise your findings concisely: what you did, what you found, and what is still to do."


async def drive(run: Run) -> Ending:
    """Run turns until the model answers, fails, or reaches a limit. Every end is an Ending; only bugs raise."""
    life = run.node.life
    ended: Ending | Limit | None = None if life.deadline.left() > 0 else _no_time(run)
    try:
        while ended is None:
            ended = _limit(run) or await _turn(run)
    except Stopped:
        ended = life.limit or Limit("deadline", "the run was stopped")
    if isinstance(ended, Limit) or run.plan.summary != "never":
        ended = await _concluded(run, ended)
    return ended if life.cause is None else stopped(run, life.cause)


def _no_time(run: Run) -> Limit:
    return Limit("deadline", "the time limit left no time" if run.replay is None else "no time was left")


def _limit(run: Run) -> Limit | None:
    """The soft limit that prevents the next turn. Raises Stopped."""
    node = run.node
    node.life.check_clock()
    if run.looping:
        run.failed_tool = run.looping
        return Limit("repeating", f"{run.looping} was called repeatedly with the same result")
    if run.reply_left is None and run.tally.turns >= node.bounds.most_turns:
        most = node.bounds.limits.turns
        return Limit("turns", f"the limit of {most} {'turn' if most == 1 else 'turns'} is reached")
    return None


async def _turn(run: Run) -> Ending | Limit | None:
    """One reply and its consequences. None: there is another turn. Raises Stopped."""
    reply = _recorded_reply(run) or await _ask(run)
    if not isinstance(reply, Reply):
        return reply
    if reply.calls and reply.stop not in ("refusal", "length"):
        await _run_calls(run, reply.calls)
        return None
    ended = await _answered(run, reply)
    if ended is None:
        await _let_others_run(run.node)
    return ended


def _recorded_reply(run: Run) -> Reply | None:
    """The recorded reply that a resumed run has still to process, returned once."""
    if run.replay is None:
        return None
    reply, run.replay.reply = run.replay.reply, None
    return reply


async def _ask(run: Run) -> Reply | Ending | Limit:
    """Start a turn: ask the model, and shorten the conversation if it is too long. Raises Stopped."""
    _join_sent(run)
    talk, asking = run.talk, run.asking
    if isinstance(talk.messages[-1], AssistantMessage):
        run.tell(GO_ON)
    run.tally.turns += 1
    try:
        # A conversation under half of the window always fits.
        if asking.window is not None and talk.tokens * 2 > asking.window:
            await fit(run)
        return await exchange(run)
    except (OverBudget, ModelFailed) as failed:
        return await _ask_shorter(run, failed)


async def _run_calls(run: Run, calls: Sequence[Call]) -> None:
    """Raises Stopped."""
    run.node.life.check_clock()
    run.turn = turn = Turn(TURN_CHARS // len(calls), run.delegates(calls), len(calls))
    if turn.delegates and not run.node.means.account.word_full:
        await _last_word(run, len(calls))
    run.looping = await run_calls(run, calls)


async def _concluded(run: Run, ended: Ending | Limit) -> Ending:
    """The ending of a run that reached a limit, or whose answer is to be summarised."""
    life = run.node.life
    if isinstance(ended, Limit):
        _close_calls(run)
        if life.cause is not None:
            return limited(ended, run)
        ended = await _wrapped_up(run, ended)
    elif ended.status is not Status.COMPLETED or life.cause is not None:
        return ended
    else:
        ended = await _summarised(run, ended)
    _close_calls(run)
    return ended


async def _let_others_run(node: Node) -> None:
    """Yield to the event loop now and then if the model is asked again without a tool call. Raises Stopped."""
    phase = node.life.phase
    if phase.is_due(node.tree.clock()):
        await phase.breathe()


async def _ask_shorter(run: Run, failed: OverBudget | ModelFailed) -> Reply | Ending | Limit:
    """Ask again with a shorter conversation if it was too long for the model. Raises Stopped."""
    for _ in range(SHORTENED):
        if isinstance(failed, OverBudget):
            break
        if failed.error.kind != "context" or not learn_window(run) or not await fit(run):
            break
        try:
            return await exchange(run)
        except (OverBudget, ModelFailed) as again:
            failed = again
    return Limit("budget", str(failed)) if isinstance(failed, OverBudget) else failed_with(failed)


async def _last_word(run: Run, calls: int) -> None:
    """Withhold budget for the last word; without it the run may not delegate."""
    try:
        await keep_last_word(run, calls, run.node.life.phase)
    except OverBudget as over:
        # A last word was withheld when the reply came, only smaller than it should be.
        run.turn.no_children = "" if run.node.means.account.has_word else str(over)
    except Stopped:
        # The calls still get their results, so that every call in the conversation has one.
        return


async def _answered(run: Run, reply: Reply) -> Ending | None:
    """The ending for a reply whose calls, if any, are not run. None: the model is asked again. Raises Stopped.

    It is asked again after an answer that failed validation, and when a message was sent to the run meanwhile.
    """
    node = run.node
    if node.inbox and reply.stop == "end" and not reply.calls and run.tally.turns < node.bounds.most_turns:
        return None
    if reply.stop == "refusal":
        refuse_calls(run, reply.calls, "Not run: the model declined to answer.")
        return Ending(Status.REFUSED, reply.text, reply.text or "the model declined to answer")
    if reply.stop == "length":
        return _cut_off(run, reply)
    if not reply.text.strip():
        return Ending(Status.INCOMPLETE, "", "empty")
    if run.agent.output is None and not run.agent.validators:
        return Ending(Status.COMPLETED, reply.text)
    return await checked(run, reply.text)


def _cut_off(run: Run, reply: Reply) -> Ending | None:
    """The ending for a reply that reached its output limit; None if it has calls: they may be incomplete, so ask again."""
    if not reply.calls:
        return Ending(Status.INCOMPLETE, reply.text, "length")
    run.node.life.check_clock()
    run.looping = refuse_calls(run, reply.calls, CUT_OFF)
    return None


async def _wrapped_up(run: Run, limit: Limit) -> Ending:
    """Ask once for a final answer; a run without any reply has nothing to report."""
    node, life = run.node, run.node.life
    life.meet(limit)
    ending = limited(limit, run)
    recorded = run.replay is not None and "wrap_up" in run.replay.asides
    over_budget = limit.kind == "budget" and not recorded
    if run.tally.replies == 0 or life.cause is not None:
        return ending
    if over_budget and not node.means.account.has_word:
        return ending
    life.new_phase()
    try:
        await node.means.seat.return_to_one(life.phase)
        _join_sent(run)
        node.hears = False
        run.tell(WRAP_UP.format(why=limit.detail), "wrap_up")
        if over_budget:
            await shorten_last(run)
        await squeeze(run)
        reply = await exchange(run, "wrap_up")
    except (Stopped, OverBudget, ModelFailed):
        return ending
    refuse_calls(run, reply.calls, NO_MORE_CALLS)
    if reply.stop == "refusal" or not reply.text.strip():
        return ending
    return msgspec.structs.replace(ending, text=reply.text)


async def _summarised(run: Run, ending: Ending) -> Ending:
    """The summary of an answer, if the agent wants one; the answer itself if that fails."""
    chars = run.node.bounds.limits.result_chars
    long = isinstance(chars, int) and len(ending.text) > chars
    if (run.plan.summary == "auto" and not long) or run.agent.output is not None:
        return ending
    run.node.hears = False
    run.tell(run.plan.summary_prompt or SUMMARISE, "summary")
    try:
        await squeeze(run)
        reply = await exchange(run, "summary")
    except (Stopped, OverBudget, ModelFailed):
        return ending
    refuse_calls(run, reply.calls, NO_MORE_CALLS)
    if not reply.text.strip() or reply.stop not in ("end", "calls"):
        return ending
    await keep(run, "answer", ending.text)
    return msgspec.structs.replace(ending, text=reply.text)


def _close_calls(run: Run) -> None:
    """Answer the calls of a reply that arrived together with a stop."""
    last = run.talk.messages[-1] if run.talk.messages else None
    if isinstance(last, AssistantMessage) and last.calls:
        refuse_calls(run, last.calls, NOT_FINISHED, unfinished=True)


def _join_sent(run: Run) -> None:
    """Add the messages sent to the run to its next turn."""
    node = run.node
    sent, node.inbox = node.inbox, []
    for one in sent:
        run.talk.add(one.message)
        node.emit(MessageJoined(*node.stamp(), message=one.message, command=one.command, origin=one.origin))
