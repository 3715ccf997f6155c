"""One agent, turn by turn, until it ends. The only loop there is.

Asking the model is in `model_call.py`, running a turn's calls in `tool_calls.py`; what becomes of the end is
in `engine/delegation/spawn.py`. A soft limit (turns, time, budget, going in circles) ends the turns, and the
run is asked once for what it has.
"""

from __future__ import annotations

from typing import cast

import msgspec

from remit.engine.run.artifacts import keep
from remit.engine.run.compaction import fit, learn_window, shorten_last, squeeze
from remit.engine.run.loop_ending import Ending, failed_with, limited, stopped
from remit.engine.run.model_call import ModelFailed, OverBudget, exchange, keep_last_word
from remit.engine.run.state import NOT_IN_FORM, Run
from remit.engine.run.tool_calls import CUT_OFF, NOT_FINISHED, refuse_calls, run_calls
from remit.engine.run.tool_run import LARGE_S, off_loop
from remit.engine.tree.node import Limit, Scope
from remit.tasks.cancel import Stopped
from remit.tools.schema import parse_output
from remit.types.events import MessageJoined
from remit.types.messages import AssistantMessage, Reply
from remit.types.outcome import COMPLETED, Status
from remit.types.sizes import LARGE

SHORTENED = 4
"""How often a conversation that is too long for its model is made shorter and sent again."""

OUTPUT_TRIES = 3
"""How often a structured answer that does not match is asked for again, the first time included."""

WRAP_UP = (
    "[remit] You have to stop here: {why}. No tool can be called any more. Write your final answer now from what you"
    " have: what you found, what is done, what is not, and what you are unsure of."
)
NO_MORE_CALLS = "Not run: no tool can be called any more."
GO_ON = "[remit] You were stopped before you had finished your answer. Go on from there."
SUMMARISE = "Summarise your findings concisely: what you did, what you found, and what is still open."


async def drive(run: Run) -> Ending:
    """Turns until the model answers by itself, fails, or meets a limit. Raises nothing but bugs: every end is an Ending."""
    scope = run.scope
    ended: Ending | Limit | None = None if scope.deadline.left() > 0 else _no_time(run)
    try:
        while ended is None and (ended := _met(run)) is None:
            reply = run.reply
            if reply is None:
                try:
                    # Half of the window always fits.
                    if run.window is not None and run.estimate * 2 > run.window:
                        await fit(run)
                    reply = await exchange(run)
                except (OverBudget, ModelFailed) as failed:
                    reply = await _ask_shorter(run, failed)
                    if not isinstance(reply, Reply):
                        ended = reply
                        break
            run.reply = None
            calls = reply.calls
            if calls and reply.stop not in ("refusal", "length"):
                scope.look_at_clock()
                run.speechless = ""
                if not scope.account.word_full and run.delegates(calls):
                    await _last_word(run, len(calls))
                run.looping = await run_calls(run, calls)
            else:
                ended = await _answered(run, reply) or await _let_others_run(scope)
    except Stopped:
        ended = scope.limit or Limit("deadline", "it was stopped")
    if isinstance(ended, Limit) or run.plan.summary != "never":
        ended = await _concluded(run, ended)
    return ended if scope.cause is None else stopped(run, scope.cause)


def _no_time(run: Run) -> Limit:
    return Limit("deadline", "there was no time left" if run.resumed else "there was no time at all")


async def _concluded(run: Run, ended: Ending | Limit) -> Ending:
    """The end of a run that met a limit, or whose answer is to be summed up."""
    if isinstance(ended, Limit):
        _close_calls(run)
        if run.scope.cause is not None:
            return limited(ended, run)
        ended = await _wrapped_up(run, ended)
    elif ended.status is not COMPLETED or run.scope.cause is not None:
        return ended
    else:
        ended = await _summarised(run, ended)
    _close_calls(run)
    return ended


async def _let_others_run(scope: Scope) -> None:
    """Now and then, where the model is asked again and no call was made. Raises Stopped."""
    phase = scope.phase
    if phase.is_due(scope.tree.clock()):
        await phase.breathe()


def _met(run: Run) -> Limit | None:
    """The soft limit that keeps the run from its next turn; without one the turn begins. Raises Stopped."""
    scope = run.scope
    scope.look_at_clock()
    if run.looping:
        run.failed_tool = run.looping
        return Limit("repeating", f"{run.looping} was called again and again with the same result")
    if run.reply is not None:
        # A recorded one, which a resumed run has still to act on.
        return None
    if run.turns >= run.shared.most_turns:
        most = scope.limits.turns
        return Limit("turns", f"the limit of {most} {'turn' if most == 1 else 'turns'} is reached")
    if scope.inbox:
        _join_sent(run)
    if isinstance(run.messages[-1], AssistantMessage):
        run.tell(GO_ON)
    run.turns += 1
    return None


async def _ask_shorter(run: Run, failed: OverBudget | ModelFailed) -> Reply | Ending | Limit:
    """Ask again, with a shorter conversation, if it was too long for the model. Raises Stopped."""
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
    """Make sure of it; without it the run may not delegate."""
    try:
        await keep_last_word(run, calls)
    except OverBudget as over:
        # What was kept back when the reply came is still there, only not as large as hoped for.
        run.speechless = "" if run.scope.account.has_word else str(over)
    except Stopped:
        # Each call gets its result all the same: no conversation is left with an open call.
        return


async def _answered(run: Run, reply: Reply) -> Ending | None:
    """What a reply amounts to whose calls, if it has any, are not run. None: the model is asked again. Raises Stopped.

    That is for a structured answer which does not match, and for what was sent to the run meanwhile.
    """
    if run.scope.inbox and reply.stop == "end" and not reply.calls and run.turns < run.shared.most_turns:
        return None
    if reply.stop == "refusal":
        refuse_calls(run, reply.calls, "Not run: the model declined to answer.")
        return Ending(Status.REFUSED, reply.text, reply.text or "the model declined to answer")
    if reply.stop == "length":
        return _cut_off(run, reply)
    if not reply.text.strip():
        return Ending(Status.INCOMPLETE, "", "empty")
    if run.agent.output is None:
        return Ending(COMPLETED, reply.text)
    value, problem = await _parsed(run, reply.text)
    if not problem:
        return Ending(COMPLETED, reply.text, output=value)
    run.tries += 1
    if run.tries >= OUTPUT_TRIES:
        why = f"no answer had the form that was asked for in {run.tries} tries. {problem}"
        return Ending(Status.FAILED, reply.text, why, error=why)
    run.tell(f"{NOT_IN_FORM} {problem}\n\nAnswer again.")
    return None


async def _parsed(run: Run, text: str) -> tuple[object, str]:
    """As `parse_output`, a long answer in a thread. Raises Stopped."""
    output = run.agent.output
    if len(text) <= LARGE:
        return parse_output(output, text)
    ended = await off_loop(
        run, run.scope.phase, "the check of the answer", lambda: parse_output(output, text)
    )
    if ended.error is not None:
        raise ended.error
    if ended.how == "timed_out":
        return None, f"The answer is too long: it could not be checked in {LARGE_S:g} s."
    return cast("tuple[object, str]", ended.value)


def _cut_off(run: Run, reply: Reply) -> Ending | None:
    """What a reply that met its output limit amounts to. Its calls may be incomplete, and are asked for again."""
    if not reply.calls:
        return Ending(Status.INCOMPLETE, reply.text, "length")
    run.scope.look_at_clock()
    run.looping = refuse_calls(run, reply.calls, CUT_OFF)
    return None


async def _wrapped_up(run: Run, limit: Limit) -> Ending:
    """Ask once for what there is; without a reply so far there is nothing to ask for."""
    scope = run.scope
    scope.meet(limit)
    ending = limited(limit, run)
    broke = limit.kind == "budget" and not scope.account.has_word
    if run.replies == 0 or (broke and "wrap_up" not in run.asides) or scope.cause is not None:
        return ending
    scope.new_phase()
    try:
        await scope.seat.return_to_one(scope.phase)
        _join_sent(run)
        scope.hears = False
        run.tell(WRAP_UP.format(why=limit.detail), "wrap_up")
        if limit.kind == "budget" and "wrap_up" not in run.asides:
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
    """The summary of an answer, where the agent wants one; the answer itself if that fails."""
    chars = run.scope.limits.result_chars
    long = isinstance(chars, int) and len(ending.text) > chars
    if (run.plan.summary == "auto" and not long) or run.agent.output is not None:
        return ending
    run.scope.hears = False
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
    """Answer the calls of a reply that came together with a stop."""
    last = run.messages[-1] if run.messages else None
    if isinstance(last, AssistantMessage) and last.calls:
        refuse_calls(run, last.calls, NOT_FINISHED, unfinished=True)


def _join_sent(run: Run) -> None:
    """What was sent to the run joins its next turn."""
    for sent in run.scope.inbox:
        run.add(sent.message)
        run.scope.emit(MessageJoined, message=sent.message, command=sent.command, origin=sent.origin)
    run.scope.inbox = ()
