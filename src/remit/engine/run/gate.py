"""Whether a call may run: the policy, the approver, and a check that the call is still the one they saw.

An approver may correct the arguments. The corrected call is validated and judged like any other.
"""

from __future__ import annotations

import logging
from typing import cast

import msgspec

import remit.engine.budget.ledger as ledger
from remit.engine.run.runtime_tool import RuntimeTool
from remit.engine.run.state import Run
from remit.engine.run.tool_run import check, must_ask, preview
from remit.history.records import CallRecord
from remit.tools.policy import judge
from remit.tools.policy_rules import SETTINGS, Ruling
from remit.tools.result import ToolResult
from remit.tools.tool import BadArguments, Tool, told
from remit.types.messages import Call, JsonObject
from remit.types.text import FOREIGN, describe_error

log = logging.getLogger("remit")

CORRECTIONS = 3
"""How often the approver may change the arguments of one call."""

CHANGED = (
    "Not run: the effect of this call changed while approval was pending. Look again, then repeat the call."
)


async def may_run(run: Run, call: Call, tool: Tool, past: CallRecord | None) -> Call | ToolResult:
    """The call, with the approver's corrections, if it may run; otherwise the denial. Raises Stopped."""
    run.turn.allowed_by.pop(call.id, None)
    ruling = _ruling(run, call, tool)
    if isinstance(ruling, ToolResult):
        return ruling
    if ruling.by_pattern:
        run.turn.allowed_by[call.id] = "pattern"
    if ruling.answer == "allow" and not tool.may_have_to_ask:
        return call
    return await _may_run_now(run, call, tool, past, ruling)


async def _may_run_now(
    run: Run, call: Call, tool: Tool, past: CallRecord | None, ruling: Ruling
) -> Call | ToolResult:
    """Like `may_run`, if a person may have to be asked."""
    kwargs = await _checked(run, call, tool)
    if isinstance(kwargs, ToolResult):
        # Do not ask about a call that could not run anyway.
        return kwargs
    change = await must_ask(run, call, tool, kwargs) if tool.may_have_to_ask else ""
    if change:
        ruling = _only_by_a_person(ruling)
    if ruling.answer == "allow":
        return call
    answer = past.answer if past is not None else None
    # A recorded approval may have been for another change; a recorded denial stands.
    if answer is not None and not (change and answer.allowed):
        run.turn.allowed_by[call.id] = "person"
        return call if answer.allowed else _denied(answer.reason)
    request = past.request if past is not None and answer is None else ""
    return await _approved(run, call, tool, kwargs=kwargs, change=change, ruling=ruling, request=request)


async def _approved(
    run: Run,
    call: Call,
    tool: Tool,
    *,
    kwargs: dict[str, object],
    change: str,
    ruling: Ruling,
    request: str,
) -> Call | ToolResult:
    """Ask the approver, again if a correction changes something that the person has not seen. Raises Stopped."""
    for _ in range(CORRECTIONS):
        if ledger.left(run.node.means.account).calls == 0:
            return ToolResult("Not run: no tool calls are left. Answer with what you have.", ok=False)
        allowed = await _ask(run, call, tool, kwargs=kwargs, ruling=ruling, request=request)
        if isinstance(allowed, ToolResult):
            return allowed
        seen = change
        if allowed is not call:
            found = await _corrected(run, allowed, tool)
            if isinstance(found, ToolResult):
                return found
            kwargs, change = found
        if change in ("", seen):
            run.turn.allowed_by[call.id] = "person"
            if change:
                run.turn.approved[call.id] = change
            return allowed
        call, ruling, request = allowed, _only_by_a_person(ruling), ""
    return _denied(f"the approver changed the arguments {CORRECTIONS} times")


async def _checked(run: Run, call: Call, tool: Tool) -> dict[str, object] | ToolResult:
    """The arguments of a call for its function, or the result that says what is wrong with them. Raises Stopped."""
    args = call.args
    assert isinstance(args, dict), "arguments that are not an object are refused before this"
    if isinstance(tool, RuntimeTool):
        return {}
    try:
        return await check(run, tool, args)
    except BadArguments as problem:
        return ToolResult(str(problem), ok=False)


async def _corrected(run: Run, call: Call, tool: Tool) -> tuple[dict[str, object], str] | ToolResult:
    """The arguments of a corrected call, and what only a person may approve of it; or why it cannot run. Raises Stopped."""
    ruling = _ruling(run, call, tool)
    if isinstance(ruling, ToolResult):
        return ruling
    kwargs = await _checked(run, call, tool)
    if isinstance(kwargs, ToolResult):
        return ToolResult(
            f"Not run: the approver changed the arguments to invalid ones. {kwargs.content}", ok=False
        )
    return kwargs, await must_ask(run, call, tool, kwargs) if tool.may_have_to_ask else ""


def _only_by_a_person(ruling: Ruling) -> Ruling:
    reasons = ruling.reasons if ruling.answer == "ask" else ()
    return Ruling("ask", tuple(sorted({*reasons, SETTINGS})))


def _ruling(run: Run, call: Call, tool: Tool) -> Ruling | ToolResult:
    """The policy's ruling, or its denial as a result."""
    try:
        ruling = judge(call, tool, run.node, run.node.bounds.policies)
    except FOREIGN as error:
        log.warning("the policy failed on %s, so the call is denied", call.name, exc_info=True)
        return ToolResult(f"Denied: the policy failed ({describe_error(error)}).", ok=False)
    if ruling.answer != "deny":
        return ruling
    why = next((f" (rule: {rule})" for rule in ruling.reasons if "(" in rule), "")
    return ToolResult(f"Denied: the policy does not allow {call.name}{why}.", ok=False)


async def _ask(
    run: Run, call: Call, tool: Tool, *, kwargs: dict[str, object], ruling: Ruling, request: str
) -> Call | ToolResult:
    """Ask the approver: the call as approved, or the denial. Raises Stopped."""
    args = cast(JsonObject, call.args)
    shown = await preview(run, call, tool, kwargs) if tool.has_preview else ""
    decision = await run.node.tree.desk.ask(
        run.node,
        call=call.id,
        tool=tool,
        context=told(tool.describe, args),
        args=args,
        request=request,
        preview=shown,
        reasons=ruling.reasons,
    )
    if not decision.allowed:
        return _denied(decision.reason)
    if decision.args is not None and decision.args != args:
        return msgspec.structs.replace(call, args=decision.args)
    # Time has passed since the question: a symlink may point elsewhere now, or a file may have changed.
    again = _ruling(run, call, tool)
    if isinstance(again, ToolResult):
        return again
    if shown and await preview(run, call, tool, kwargs) != shown:
        return ToolResult(CHANGED, ok=False)
    return call


def _denied(reason: str) -> ToolResult:
    return ToolResult(f"Denied: {reason.rstrip('.') or 'the approver said no'}.", ok=False)
