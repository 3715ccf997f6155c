"""Options that people try on `run` because other frameworks have them, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remit.types.spelling import suggest

LIMITS: Mapping[str, Sequence[str]] = {
    "turns": ("max_turns", "turns", "max_steps", "max_iterations", "recursion_limit"),
    "depth": ("max_depth", "depth"),
    "seconds": ("timeout", "timeout_s", "seconds", "max_seconds", "time_limit", "deadline"),
    "usd": ("budget", "max_budget", "max_budget_usd", "max_cost", "max_usd", "usd"),
    "tokens": ("max_tokens", "tokens", "token_budget"),
    "requests": ("max_requests", "requests", "request_limit"),
    "calls": ("max_calls", "max_tool_calls", "calls"),
    "delegations": ("max_delegations", "delegations", "max_children"),
    "concurrency": ("concurrency", "max_concurrency", "parallel", "max_parallel"),
}
"""Fields of `Limits`, each with the names that people try."""

AGENT: Mapping[str, Sequence[str]] = {
    "instructions": ("system_prompt", "system", "instructions", "prompt"),
    "tools": ("tools", "functions", "toolsets"),
    "subagents": ("subagents", "agents", "handoffs"),
    "output": ("output", "output_type", "result_type", "response_format", "response_model"),
    "settings": ("settings", "model_settings", "temperature", "top_p", "max_output_tokens"),
}
"""Parameters of `Agent`, each with the names that people try."""

OPTIONS: Mapping[str, Sequence[str]] = {
    "deps": ("context", "ctx", "dependencies", "state"),
    "history": ("messages", "message_history", "conversation"),
    "on_event": ("callback", "callbacks", "hooks", "event_handler", "stream"),
    "show": ("verbose", "display", "debug", "progress", "print", "live"),
    "approver": ("approve", "approval", "confirm", "human_input"),
    "store": ("journal", "db", "database", "checkpointer", "session"),
    "workspace": ("cwd", "folder", "directory", "working_directory"),
}
"""Options of `run`, each with the names that people try."""


def unknown_options(name: str, given: Mapping[str, object], known: Sequence[str]) -> str:
    """The error message for the unknown options (five at most): what to write instead, and the known options."""
    wrong = [option for option in given if option not in known]
    each = " ".join(
        f"{name} has no option {option[:60]!r}.{_instead(option, given[option], known)}"
        for option in wrong[:5]
    )
    return f"{each} Options: {', '.join(known)}."


def _instead(option: str, value: object, known: Sequence[str]) -> str:
    shown = repr(value) if isinstance(value, (int, float)) else "..."
    for field, names in LIMITS.items():
        if option in names:
            return f" Write limits=Limits({field}={shown})."
    for field, names in AGENT.items():
        if option in names:
            return f" It belongs to the agent: Agent(..., {field}=...)."
    for field, names in OPTIONS.items():
        if option in names and field in known:
            return f" Write {field}=..."
    return suggest(option, known)
