"""Checks of a call to `run`, `start` or `resume` before anything runs. Every check raises UsageError."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from remit.agent import Agent
from remit.engine.delegation.delegate_tools import built_in, kit_for
from remit.errors import UsageError
from remit.history.records import RunRecord, Tree
from remit.tasks.guest import is_async
from remit.tools.policy import PolicyFunction, Rules
from remit.tools.tool import is_reserved
from remit.types.limits import Limits
from remit.types.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
)
from remit.types.ports import Store
from remit.types.spelling import suggest
from remit.types.task_message import check_message

if TYPE_CHECKING:
    from pathlib import Path


def check_call(agent: object, limits: object, approver: object, on_event: object) -> None:
    if not isinstance(agent, Agent):
        raise UsageError(f"run() needs an Agent as its first argument, not {agent!r}.")
    if limits is not None and not isinstance(limits, Limits):
        raise UsageError(f"limits must be a Limits(...), not {limits!r}.")
    if approver is not None and not callable(approver):
        raise UsageError(f"approver must be a function that takes one ApprovalRequest, not {approver!r}.")
    if on_event is not None and (not callable(on_event) or is_async(on_event) or not _takes_one(on_event)):
        raise UsageError(
            "on_event must be a plain function that takes one event. In async code, use start() and events()."
        )


def check_show(show: object) -> None:
    if not isinstance(show, bool):
        raise UsageError(f"show must be True or False, not {show!r}.")


def _takes_one(function: Callable[..., object]) -> bool:
    """Whether the function accepts one argument; True if Python cannot tell."""
    import inspect  # noqa: PLC0415 - only if on_event is given

    try:
        written = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        written.bind(None)
    except TypeError:
        return False
    return True


def check_store(store: object) -> Store:
    if isinstance(store, Store):
        return store
    if isinstance(store, os.PathLike):
        from urllib.parse import quote  # noqa: PLC0415 - only for this error

        url = f"sqlite:///{quote(os.fsdecode(cast('os.PathLike[str]', store)))}"
        raise UsageError(f"store must be a URL or a store, not a path. Write {url!r}.")
    lacks = [n for n in _STORE_NAMES if not callable(getattr(store, n, None))]
    raise UsageError(
        f'store must be a URL such as "sqlite:///runs.db", or a store, not {store!r} (missing: {", ".join(lacks)}).'
    )


_STORE_NAMES = [n for n in vars(Store) if not n.startswith("_")]


def check_strict(strict: object, store: Store | None) -> bool:
    if strict is not None and not isinstance(strict, bool):
        raise UsageError(f"strict must be True or False, not {strict!r}.")
    if strict and store is None:
        raise UsageError("strict=True needs a store that other processes can open: store=...")
    if strict and not callable(getattr(store, "confirm", None)) and not getattr(store, "volatile", False):
        raise UsageError(
            f"strict=True needs a store with a method `confirm`, which {type(store).__name__} lacks."
        )
    return bool(strict)


def check_run_id(run_id: object) -> None:
    if not isinstance(run_id, str) or not run_id:
        raise UsageError(f"run_id must be the id of a root run, not {run_id!r}.")
    if "/" in run_id or ":" in run_id:
        raise UsageError(
            f"{run_id!r} is not a run's id. The store comes first: resume(store, run_id, agent=...)."
        )
    if "." in run_id:
        root = run_id.partition(".")[0]
        raise UsageError(
            f"{run_id!r} is a child run; only whole trees can be resumed. Resume its root: {root!r}."
        )


_NEW_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def check_new_run_id(run_id: object) -> None:
    """A dot would make the id a child's, and other characters would need quotes on a command line."""
    if run_id is None:
        return
    if not isinstance(run_id, str) or not _NEW_RUN_ID.fullmatch(run_id):
        raise UsageError(
            f"run_id must have 1 to 64 characters, only letters, digits, - and _, not {repr(run_id)[:80]}."
        )


def check_matches(agent: Agent, past: Tree) -> None:
    """Check that the agent still has the tools and subagents of the runs that will be resumed."""
    from remit.history.fold import going_on  # noqa: PLC0415 - only for resumed trees

    # Children started from code, and the runs below them, need not have declared agents.
    by_code = tuple(f"{run}." for run, record in past.runs.items() if record.start.key)
    records = [r for r in going_on(past) if not r.start.key and not r.id.startswith(by_code)]
    wrong = [words for record in records for words in _missing(agent, record)]
    if wrong:
        raise UsageError(
            f"The agent differs from the one that started {past.root}. " + " ".join(dict.fromkeys(wrong))
        )


def _missing(agent: Agent, record: RunRecord) -> Iterator[str]:
    who = " > ".join(record.path)
    if record.path[0] != agent.name:
        yield f"That was {record.path[0]!r}, but this is {agent.name!r}."
        return
    for name in record.path[1:]:
        # An ad hoc child has no declared agent: it uses some of its parent's tools.
        below = next((a for a in agent.subagents if a.name == name), None)
        if below is None and not (name == "subagent" and agent.adhoc):
            yield f"{who}: {agent.name!r} no longer has a subagent {name!r}."
            return
        agent = below or agent
    if record.start.program != (agent.program is not None):
        yield f"{who}: the agent is no longer {'a program' if record.start.program else 'an agent with a model'}."
        return
    adhoc = record.path[-1] == "subagent" and agent.name != "subagent"
    lost = [] if adhoc else sorted(set(record.start.subagents) - {a.name for a in agent.subagents})
    gone = sorted(set(record.start.tools) - {s.name for s in kit_for(agent, may_delegate=True).specs})
    if lost:
        # The delegate tools are missing only because the subagents are.
        gone = [name for name in gone if not is_reserved(name)]
    if gone:
        yield f"{who}: missing tools: {', '.join(gone)}."
    if lost:
        yield f"{who}: missing subagents: {', '.join(lost)}."


def check_workspace(workspace: object) -> Path | None:
    if workspace is None:
        return None
    from pathlib import Path  # noqa: PLC0415 - only if there is a workspace

    if not isinstance(workspace, (str, Path)):
        raise UsageError(f"workspace must be a path, not {workspace!r}.")
    # Absolute: a later os.chdir() must not change which folder is meant.
    folder = Path(workspace).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"workspace {str(workspace)!r} is not a folder. Create it, or pass another path.")
    return folder


def check_tools(agent: Agent) -> frozenset[str] | None:
    """The names of all tools in a tree of the agent; None if only its sources know them. Raises UsageError."""
    if agent in _checked:
        return _checked[agent]
    agents: dict[Agent, None] = {}
    left = [agent]
    while left:
        one = left.pop()
        if one not in agents:
            agents[one] = None
            left.extend(one.subagents)
    names = {name for one in agents for name in kit_for(one, may_delegate=True).tools}
    known = None if any(one.sources for one in agents) else frozenset(names)
    for one in agents:
        check_rules(one.policy, known, f"Agent {one.name!r}")
    _checked[agent] = known
    return known


_checked: WeakKeyDictionary[Agent, frozenset[str] | None] = WeakKeyDictionary()
"""Agents that passed this check, including all their subagents. Agents are immutable."""


def check_rules(policy: PolicyFunction | None, known: frozenset[str] | None, where: str) -> None:
    """Raises UsageError for a rule about a tool that does not exist: a misspelt denial would deny nothing.

    `known` is None if sources are still to list their tools. A pattern and a rule about a built-in tool, a
    delegate tool or an MCP tool are always valid: one list of rules may serve agents with different tools.
    """
    if not isinstance(policy, Rules) or known is None:
        return
    for rule in policy.rules:
        elsewhere = set(rule.name) & set("*?[") or rule.name.startswith("mcp__") or is_reserved(rule.name)
        # The built-in tools come last: they are slow to create, and most rules are about other tools.
        if rule.name in known or elsewhere or rule.name in built_in.tools():
            continue
        raise UsageError(
            f"{where}: the rule {str(rule)!r} has no effect, because no tool is named {rule.name!r}."
            f"{suggest(rule.name, known)} Tools here: {', '.join(sorted(known)) or 'none'}."
        )


def check_history(history: object) -> tuple[Message, ...]:
    if isinstance(history, Sequence) and not isinstance(history, str):
        found = tuple(cast("Sequence[object]", history))
        if all(isinstance(m, (UserMessage, AssistantMessage, ToolMessage)) for m in found):
            for number, message in enumerate(found):
                check_message(message, f"history[{number}]")
            return cast("tuple[Message, ...]", found)
    raise UsageError("history must be the messages of an earlier outcome (outcome.messages).")
