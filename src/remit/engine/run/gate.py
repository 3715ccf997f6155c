"""Whether a call may run: the policy, the approver, and a check that the call is still the one they saw."""

from __future__ import annotations

import logging

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

CHANGED = (
    "Not run: the effect of this call changed while approval was pending. Look again, then repeat the call."
)


async def may_run(run: Run, call: Call, tool: Tool, past: CallRecord | None) -> ToolResult | None:
    """None if the call may run; otherwise the denial that the model reads. Raises Stopped."""
    run.turn.allowed_by.pop(call.id, None)
    ruling = _ruling(run, call, tool)
    if isinstance(ruling, ToolResult):
        return ruling
    if ruling.by_pattern:
        run.turn.allowed_by[call.id] = "pattern"
    if ruling.answer == "allow" and not tool.may_have_to_ask:
        return None
    return await _may_run_now(run, call, tool, past, ruling)


async def _may_run_now(
    run: Run, call: Call, tool: Tool, past: CallRecord | None, ruling: Ruling
) -> ToolResult | None:
    """Like `may_run`, if a person may have to be asked."""
    args = call.args
    assert isinstance(args, dict), "arguments that are not an object are refused before this"
    kwargs: dict[str, object] = {}
    if not isinstance(tool, RuntimeTool):
        # Do not ask about a call that could not run anyway.
        try:
            kwargs = await check(run, tool, args)
        except BadArguments as problem:
            return ToolResult(str(problem), ok=False)
    change = await must_ask(run, call, tool, kwargs) if tool.may_have_to_ask else ""
    if change:
        ruling = _only_by_a_person(ruling)
    if ruling.answer == "allow":
        return None
    answer = past.answer if past is not None else None
    # A recorded approval may have been for another change; a recorded denial stands.
    if answer is not None and not (change and answer.allowed):
        run.turn.allowed_by[call.id] = "person"
        return None if answer.allowed else _denied(answer.reason)
    if ledger.left(run.node.means.account).calls == 0:
        return ToolResult("Not run: no tool calls are left. Answer with what you have.", ok=False)
    request = past.request if past is not None and answer is None else ""
    denied = await _ask(run, call, tool, args=args, kwargs=kwargs, ruling=ruling, request=request)
    if denied is None:
        run.turn.allowed_by[call.id] = "person"
    if denied is None and change:
        run.turn.approved[call.id] = change
    return denied


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
    run: Run,
    call: Call,
    tool: Tool,
    *,
    args: JsonObject,
    kwargs: dict[str, object],
    ruling: Ruling,
    request: str,
) -> ToolResult | None:
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
    # Time has passed since the question: a symlink may point elsewhere now, or a file may have changed.
    again = _ruling(run, call, tool)
    if isinstance(again, ToolResult):
        return again
    if shown and await preview(run, call, tool, kwargs) != shown:
        return ToolResult(CHANGED, ok=False)
    return None


def _denied(reason: str) -> ToolResult:
    return ToolResult(f"Denied: {reason.rstrip('.') or 'the approver said no'}.", ok=False)
