"""The results that a parent's model reads about a child: one outcome, in the format of each delegate tool.

`content` holds the child's text; `note` holds remit's own text (what was cut, what is left), so that a child cannot forge
it.
"""

from __future__ import annotations

from math import floor

import msgspec
from msgspec import Struct

import remit.engine.budget.ledger as ledger
from remit.agent import Agent
from remit.engine.run.runtime_tool import Plan
from remit.engine.run.state import Run
from remit.tools.result import ToolResult
from remit.types.limits import Usage
from remit.types.messages import Json
from remit.types.outcome import Artifact, Outcome, Rejection, Status, ToolCallLog
from remit.types.text import cut_bytes, cut_chars

NO_TEXT = "(subagent returned no text)"
CUT_MARK = "\n... [truncated]"
PARTIAL = "Partial answer:\n"
MANY = 10_000
MANY_TOKENS = 10_000_000
MUCH_MICROS = 1_000_000_000
"""Larger remainders are not counted: a model does not plan that far, and it reads this note after every child."""

PREFIX_BYTES = 800
"""The longest text before a partial answer; `spawn.py` keeps what that text displaces."""


class SubagentResult(Struct, frozen=True, omit_defaults=True):
    """What `subagent_<name>` returns to people and programs: everything about one child."""

    name: str
    final_response: str
    total_turns: int
    tool_count: int
    tool_logs: tuple[ToolCallLog, ...]
    usage: dict[str, Json]
    success: bool
    duration_ms: int
    error_details: str | None = None
    failed_tool: str | None = None
    partial_response: str | None = None
    status: str | None = None
    run_id: str | None = None


def task(run: Run, done: Outcome | Rejection) -> ToolResult:
    """One text block. A child that did not complete is a failed result with its partial text."""
    if isinstance(done, Rejection):
        return rejected(run, done)
    ok = done.status is Status.COMPLETED
    text, cut, most = done.text if ok else done.partial, "", run.node.bounds.limits.result_chars
    if isinstance(most, int) and len(text) > most:
        text, cut = _inline(done, text, most)
    if ok:
        content = text
    elif done.reason == "empty" and not text:
        content = NO_TEXT
    else:
        had = "" if text == done.reason else f"\n\n{_partial(text)}"
        content = f"The subagent {done.agent} {_ended(done)}.{had}"
    return ToolResult(content, ok, {}, _note(run, done, cut))


def named(run: Run, agent: Agent, done: Outcome | Rejection) -> ToolResult:
    """A full record for programs; for the model, the response and the partial response if there is one."""
    if isinstance(done, Rejection):
        return _named_rejection(run, agent, done)
    most = run.node.bounds.limits.result_chars
    whole, details = _final_response(agent, done)
    response, cut = _inline(done, whole, most)
    details = response if details == whole else details
    partial = ""
    if not done.ok and done.partial and done.partial != done.reason:
        partial, cut = _inline(done, done.partial, most)
    result = SubagentResult(
        name=agent.name,
        final_response=response,
        total_turns=done.turns,
        tool_count=len(done.calls),
        tool_logs=done.calls,
        usage=_counts(done.usage),
        success=done.ok,
        duration_ms=round(done.duration_s * 1000),
        error_details=details,
        failed_tool=done.failed_tool,
        partial_response=partial or None,
        status=str(done.status),
        run_id=done.run_id,
    )
    content = f"{response}\n\nPartial response:\n{partial}" if partial else response
    why = f"{details}." if details and details != response else ""
    return ToolResult(
        content,
        ok=done.ok,
        details=msgspec.to_builtins(result),
        note=_note(run, done, f"{why} {cut}".strip()),
    )


def adhoc(run: Run, plan: Plan, done: Outcome | Rejection) -> ToolResult:
    """Success flag, output, error, truncated flag and a map of strings; the output is cut to 4096 bytes at the end."""
    if isinstance(done, Rejection):
        return adhoc_rejected(run, plan.label, done)
    limited = done.status is Status.INCOMPLETE and done.reason in ("turns", "repeating")
    success = done.ok or (limited and bool(done.partial))
    text = done.text if done.ok else done.partial
    error = "" if success else f"The subagent {plan.label!r} {_ended(done)}."
    head = cut_bytes(error, PREFIX_BYTES)
    if error:
        head = f"{head}\n\n{PARTIAL if text.strip() else NO_TEXT}"
    room = (plan.inline_bytes or 0) - len(head.encode())
    most = run.node.bounds.limits.result_chars
    shown = cut_chars(text, most) if isinstance(most, int) else text
    if len(shown.encode()) > (room if shown == text else room - len(CUT_MARK)):
        shown = cut_bytes(shown, room - len(CUT_MARK))
    truncated = len(shown) < len(text)
    output = f"{head}{shown}{CUT_MARK}" if truncated else f"{head}{shown}"
    cut = [_cut_words(done, len(shown), len(text)) if truncated else "", _answer_words(done)]
    details = {
        "success": success,
        "output": output,
        "error": error or None,
        "truncated": truncated,
        "metadata": _metadata(run, plan, done),
    }
    return ToolResult(output, ok=success, details=details, note=_note(run, done, " ".join(filter(None, cut))))


def rejected(run: Run, rejection: Rejection) -> ToolResult:
    """A delegation that did not start: a failed result with the kind and the numbers."""
    details = {"rejection": msgspec.to_builtins(rejection)}
    return ToolResult(rejection.message, ok=False, details=details, note=f"[remit] {_left(run)}")


def adhoc_rejected(run: Run, label: str, rejection: Rejection) -> ToolResult:
    """Like `rejected`, with the fields of the `subagent` tool."""
    details = {
        "success": False,
        "output": "",
        "error": rejection.message,
        "truncated": False,
        "metadata": {"subagent_label": label, "recursion_depth": str(run.node.depth)},
        "rejection": msgspec.to_builtins(rejection),
    }
    return ToolResult(rejection.message, ok=False, details=details, note=f"[remit] {_left(run)}")


def _named_rejection(run: Run, agent: Agent, rejection: Rejection) -> ToolResult:
    message = "Subagent cancelled" if rejection.kind == "cancelled" else rejection.message
    result = SubagentResult(
        name=agent.name,
        final_response=message,
        total_turns=0,
        tool_count=0,
        tool_logs=(),
        usage=_counts(Usage()),
        success=False,
        duration_ms=0,
        error_details=rejection.message,
        status=f"rejected: {rejection.kind}",
    )
    details = {**msgspec.to_builtins(result), "rejection": msgspec.to_builtins(rejection)}
    return ToolResult(message, ok=False, details=details, note=f"[remit] {_left(run)}")


def _counts(usage: Usage) -> dict[str, Json]:
    """Every number, zeros included: programs read them by name."""
    return {f: getattr(usage, f) for f in Usage.__struct_fields__}


def _final_response(agent: Agent, done: Outcome) -> tuple[str, str | None]:
    """The fixed text for each status, and the details."""
    who = f"Subagent {agent.name!r}"
    if done.status is Status.COMPLETED:
        return done.text, None
    if done.status is Status.TIMED_OUT:
        return "Subagent timed out", f"{who} timed out after {_time_given(agent, done) * 1000:.0f} ms"
    if done.status is Status.CANCELLED:
        return "Subagent cancelled", f"{who} {_ended(done)}"
    if done.status is Status.REFUSED:
        return done.reason, done.reason
    if done.status is Status.FAILED:
        return done.reason, done.reason
    if done.status is Status.INTERRUPTED:
        return "Subagent ended unexpectedly", f"{who} {_ended(done)}"
    words = {
        Status.STALLED: "Subagent stalled",
        Status.OVER_BUDGET: "Subagent ran out of budget",
        Status.INCOMPLETE: NO_TEXT if done.reason == "empty" else "Subagent stopped before it finished",
    }
    return words[done.status], f"{who} {_ended(done)}"


def _time_given(agent: Agent, done: Outcome) -> float:
    """The agent's own time limit if that ended the run; otherwise the time the run took."""
    own = agent.limits.seconds if agent.limits else None
    return own if isinstance(own, (int, float)) and done.duration_s >= own * 0.85 else done.duration_s


def _metadata(run: Run, plan: Plan, done: Outcome) -> dict[str, str]:
    metadata = {"subagent_label": plan.label, "recursion_depth": str(run.node.depth)}
    metadata["completion_status"] = "complete" if done.ok else "incomplete"
    metadata["turns_used"] = str(done.turns)
    metadata["max_turns"] = str(plan.turns)
    if done.status is Status.INCOMPLETE and done.reason == "turns":
        metadata["max_turns_reached"] = "true"
    metadata["tokens_used"] = str(done.usage.tokens)
    metadata["prompt_tokens"] = str(done.usage.input_tokens)
    metadata["completion_tokens"] = str(done.usage.output_tokens)
    if done.usage.estimated:
        metadata["tokens_estimated"] = "true"
    return metadata


def _ended(done: Outcome) -> str:
    """How the run ended, after its name: "failed: no key", "was cancelled by the caller: too slow"."""
    verbs = {
        Status.CANCELLED: "was",
        Status.FAILED: "failed:",
        Status.TIMED_OUT: "timed out:",
        Status.STALLED: "stalled:",
        Status.OVER_BUDGET: "ran out of budget:",
        Status.REFUSED: "declined to answer:",
        Status.INCOMPLETE: "stopped early:",
        Status.INTERRUPTED: "was interrupted:",
    }
    return f"{verbs.get(done.status, 'ended:')} {_why(done)}"


_PLENTY = f"over {MANY:,}"
_STATUSES = {status: str(status).replace("_", " ") for status in Status}


def _why(done: Outcome) -> str:
    reasons = {
        "turns": "it reached its turn limit",
        "length": "its answer was cut off at the output limit",
        "empty": "its answer was empty",
        "repeating": "it kept repeating the same call",
    }
    return reasons.get(done.reason, done.reason.rstrip(".")) or "no reason given"


def _partial(text: str) -> str:
    return f"{PARTIAL}{text}" if text.strip() else NO_TEXT


def _inline(done: Outcome, text: str, most: object) -> tuple[str, str]:
    """The part of a text that the parent reads inline, and a note about the cut."""
    if not isinstance(most, int) or len(text) <= most:
        return text, ""
    return cut_chars(text, most), _cut_words(done, most, len(text))


def _cut_words(done: Outcome, shown: int, whole: int) -> str:
    kept = _kept(done, "text")
    how = (
        f'Read on with read_artifact(artifact="{kept.id}", start={shown}).'
        if kept
        else "The rest was not stored."
    )
    return f"Truncated to the first {shown:,} of {whole:,} characters. {how}"


def _answer_words(done: Outcome) -> str:
    kept = _kept(done, "answer")
    return f'The answer before the summary: read_artifact(artifact="{kept.id}").' if kept else ""


def _kept(done: Outcome, name: str) -> Artifact | None:
    return next((a for a in done.artifacts if a.name == name), None)


def _note(run: Run, done: Outcome, cut: str) -> str:
    usage, turns = done.total_usage, done.turns
    tokens = usage.input_tokens + usage.output_tokens
    spent = (
        f"[remit] run {done.run_id} {_STATUSES[done.status]}, {turns} {'turn' if turns == 1 else 'turns'},"
        f" {f'{tokens:,}' if tokens > 999 else tokens} tokens."
    )
    return f"{spent} {cut}\n{_left(run)}" if cut else f"{spent} {_left(run)}"


def _left(run: Run) -> str:
    """What the parent can still spend, for its model to plan with. Large remainders are not counted."""
    node, said, end = run.node, "", "."
    depth, account, seconds = node.bounds.depth_left, node.means.account, node.life.deadline.left()
    delegations, requests, tokens, micros, calls = ledger.remainders(account)
    if requests <= MANY or tokens <= MANY_TOKENS or calls <= MANY or micros <= MUCH_MICROS:
        said = _counted_out(requests, tokens, micros, calls)
        if ledger.is_at_its_last_word(account):
            end = ". This is your last reply: answer now."
    if seconds <= MANY:
        said += f", time {floor(seconds) if seconds > 0 else 0} s"
    levels = "unlimited" if depth is None else depth
    if delegations <= MANY:
        children = max(0, delegations)
    else:
        children = "unlimited" if delegations > ledger.ENDLESS else _PLENTY
    return f"Left: depth {levels}, delegations {children}{said}{end}"


def _counted_out(requests: int, tokens: int, micros: int, calls: int) -> str:
    said = ""
    if requests <= MANY:
        said = f", requests {max(0, requests)}"
    if tokens <= MANY_TOKENS:
        said += f", tokens {max(0, tokens):,}"
    if calls <= MANY:
        said += f", calls {max(0, calls)}"
    if micros <= MUCH_MICROS:
        # Small amounts in full: rounded up, they could look like the whole limit.
        usd = max(0, micros) / 1_000_000
        said += f", ${usd:.4f}" if usd >= 1 else f", ${usd:.6f}"
    return said
