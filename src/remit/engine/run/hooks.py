"""Runs the user's functions that adapt a run: instructions, validators, and hooks on calls and results.

Each has a time limit. A function that fails is reported by its name, and the run is the safer for it: a call whose hook
failed is not run, and a result whose hook failed is withheld.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable
from typing import cast

import msgspec

import remit.tasks.guest as foreign
from remit.engine.run.state import Run
from remit.engine.run.tokens import text_tokens
from remit.errors import Retry
from remit.history.records import CallRecord
from remit.tasks.cancel import Phase
from remit.tasks.guest import Ended
from remit.tools.contexts import RunContext
from remit.tools.hooks import hook_name
from remit.tools.policy import Decision, tidy_args
from remit.tools.result import ToolResult, render
from remit.types.events import CallChanged, InstructionsWritten
from remit.types.messages import Call
from remit.types.sizes import MOST_TEXT
from remit.types.text import clean, describe_error, safe_repr, safe_str, shorten

log = logging.getLogger("remit")

HOOK_S = 30.0
"""How long each call of such a function may take."""

LATE_S = 5.0
"""The same for a hook on the result of a call whose run has been stopped."""

RETRY_CHARS = 4000
"""The most characters of a validator's reason that the model reads."""


async def write_instructions(run: Run) -> str:
    """Call the agent's function for instructions and record its text. Returns what went wrong, or "". Raises Stopped."""
    write = run.agent.instructions
    if isinstance(write, str) or run.instructions is not None:
        return ""
    ended = await _call(run, f"instructions {hook_name(write)}", write, (_context(run),))
    text = ended.value
    if ended.how != "returned" or not isinstance(text, str) or len(text) > MOST_TEXT:
        wanted = f"a string of at most {MOST_TEXT:,} characters"
        return f"the function for instructions {hook_name(write)!r} {_trouble(ended, wanted)}"
    set_instructions(run, clean(text))
    run.node.emit(InstructionsWritten(*run.node.stamp(), instructions=clean(text)))
    return ""


def set_instructions(run: Run, text: str) -> None:
    """Use these instructions, and count their tokens in every request."""
    run.instructions = text
    more = text_tokens(text)
    run.talk.base += more
    run.talk.tokens += more


async def rejected(run: Run, answer: object) -> tuple[str, str]:
    """Why a validator rejects the answer, and why a validator itself failed; "" if not. Raises Stopped."""
    for check in run.agent.validators:
        name = hook_name(check)
        ended = await _call(run, f"validator {name}", check, (answer, _context(run)))
        if isinstance(ended.error, Retry):
            return clean(safe_str(ended.error))[:RETRY_CHARS] or f"{name} rejected the answer.", ""
        if ended.how != "returned" or not (ended.value is None or ended.value is answer):
            return (
                "",
                f"the validator {name!r} {_trouble(ended, 'None: a validator cannot change the answer')}",
            )
    return "", ""


async def before_call(run: Run, call: Call, past: CallRecord | None) -> Call | ToolResult:
    """The call as the policy and the approver see it, or the result of a refused call. Raises Stopped."""
    hooks = run.node.bounds.on_call
    if not hooks or (past is not None and past.is_judged):
        return call
    changed_by: list[str] = []
    for hook in hooks:
        name = hook_name(hook)
        ended = await _call(run, f"hook {name}", hook, (copy.deepcopy(call), _context(run)))
        if ended.how == "returned" and ended.value is None:
            continue
        if isinstance(ended.value, Decision) and not ended.value.allowed:
            return ToolResult(f"Denied: {_reason(ended.value, name)}.", ok=False)
        args = tidy_args(ended.value) if ended.how == "returned" else None
        if args is None:
            trouble = _trouble(ended, "None, the new arguments (a dictionary of JSON values) or deny(reason)")
            _report(run, call, f"the on_call hook {name!r} {trouble}. The call was not run.", ended)
            return ToolResult(f"Not run: the hook {name!r} {trouble}.", ok=False)
        if args != call.args:
            call = msgspec.structs.replace(call, args=args)
            changed_by.append(name)
    if changed_by:
        node, args = run.node, call.args
        assert isinstance(args, dict)
        node.emit(
            CallChanged(*node.stamp(), call=call.id, tool=call.name, args=args, hooks=tuple(changed_by))
        )
    return call


async def after_call(run: Run, call: Call, result: ToolResult) -> ToolResult:
    """The result as the model reads it, after the hooks have seen it. Raises Stopped."""
    phase, seconds = run.node.life.phase, HOOK_S
    if phase.stopped:
        # The call has run: its result is worth a moment more.
        phase, seconds = Phase(run.node.tree.alarm, run.node.life), LATE_S
    for hook in run.node.bounds.on_result:
        name = hook_name(hook)
        given = (copy.deepcopy(call), result, _context(run))
        ended = await _call(run, f"hook {name}", hook, given, phase=phase, seconds=seconds)
        value = ended.value if ended.how == "returned" else _FAILED
        if value is None:
            continue
        if isinstance(value, Decision) and not value.allowed:
            return ToolResult(f"The call ran, but its result is withheld: {_reason(value, name)}.", ok=False)
        if isinstance(value, str):
            result = ToolResult(render(value).content, ok=result.ok, note=result.note)
        elif isinstance(value, ToolResult):
            result = msgspec.structs.replace(render(value), note=result.note)
        else:
            trouble = _trouble(ended, "None, a string, a ToolResult or deny(reason)", seconds)
            _report(run, call, f"the on_result hook {name!r} {trouble}. The result was withheld.", ended)
            return ToolResult(
                f"The call ran, but its result is withheld: the hook {name!r} {trouble}.", ok=False
            )
    return result


_FAILED = object()
"""Stands for the value of a hook that returned none."""


def _context(run: Run) -> RunContext:
    node = run.node
    return RunContext(
        run_id=node.run_id,
        path=node.path,
        depth=node.depth,
        workspace=node.workspace,
        deps=node.tree.deps,
        sandbox=node.bounds.sandbox,
        task=node.task,
    )


async def _call(
    run: Run,
    what: str,
    function: Callable[..., object],
    given: tuple[object, ...],
    *,
    phase: Phase | None = None,
    seconds: float = HOOK_S,
) -> Ended:
    """Call a function of the user: an async one in a task, a plain one in a thread. Raises Stopped."""
    node = run.node
    phase = phase or node.life.phase
    end = node.tree.clock() + seconds
    lost = node.left_behind
    if foreign.is_async(function):
        return await foreign.run(
            _awaited(function, given), phase, name=what, expires=lambda: end, on_abandoned=lost
        )
    ended = await foreign.run_in_thread(
        lambda: function(*given), phase, name=what, expires=lambda: end, urgent=True, on_abandoned=lost
    )
    if not inspect.isawaitable(ended.value):
        return ended
    return await foreign.run(ended.value, phase, name=what, expires=lambda: end, on_abandoned=lost)


async def _awaited(function: Callable[..., object], given: tuple[object, ...]) -> object:
    value = function(*given)
    return await value if inspect.isawaitable(value) else value


def _trouble(ended: Ended, wanted: str, seconds: float = HOOK_S) -> str:
    """What a function did wrong, as the end of a sentence about it."""
    if ended.how == "timed_out":
        return f"did not finish within {seconds:g} s"
    if ended.error is not None:
        return f"raised {shorten(describe_error(ended.error), 500, 497).rstrip('.')}"
    return f"returned {shorten(safe_repr(ended.value), 100, 97)}; it must return {wanted}"


def _report(run: Run, call: Call, text: str, ended: Ended) -> None:
    """Tell the author of the program: the model reads about it too, but the author may not."""
    log.warning("%s: %s", call.name, text, exc_info=ended.error)
    run.node.warn_root_too(f"{call.name}: {text}")


def _reason(decision: Decision, name: str) -> str:
    reason = clean(safe_str(cast(object, decision.reason) or "")).rstrip(".")
    return reason or f"the hook {name!r} refused it"
