"""Policies: allow, ask or deny a tool call. Also the requests to, and the answers of, the person who approves.

A policy is a list of rules, `"ask terminal"`, `"deny subagent_*"`, or one function of the call and the scope. Within one
list, the strictest matching rule wins. A child's policy only narrows its parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, cast

import msgspec
from msgspec import Struct

from remit.errors import UsageError
from remit.tools.policy_rules import Answer, Rule, Ruling, decide, parse
from remit.tools.tool import Tier, Tool
from remit.types.limits import Usage
from remit.types.messages import Call, JsonObject
from remit.types.sizes import MOST_ARGS, weigh
from remit.types.text import clean, clean_json, safe_repr, safe_str, shorten

if TYPE_CHECKING:
    from pathlib import Path


class Scope(Protocol):
    """The run that makes a call, as policies see it."""

    @property
    def run_id(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def depth(self) -> int: ...
    @property
    def task(self) -> str: ...
    @property
    def workspace(self) -> Path | None: ...


PolicyFunction = Callable[[Call, Scope], Answer]
Policy = Sequence[str] | PolicyFunction

_ANSWERS = ("allow", "ask", "deny")


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A request to a person to approve a call. `path` holds the agent names from the root down to the asking run."""

    id: str
    path: tuple[str, ...]
    agent: str
    task: str
    tool: str
    args: JsonObject
    total_usage: Usage
    """The usage of the whole tree so far."""
    preview: str = ""
    """The change that the call would make, as a diff, if its tool can show one."""
    rules: tuple[str, ...] = ()
    """Why approval is needed: rules, or that the command is unclear. Empty if the tool's tier requires approval."""


class Decision(Struct, frozen=True):
    """A person's answer; made by `allow()` and `deny()`."""

    allowed: bool
    scope: Literal["once", "run", "tree"] = "once"
    reason: str = ""
    args: JsonObject | None = None
    """The arguments that the call runs with instead of the model's; None: the model's."""


def allow(scope: Literal["once", "run", "tree"] = "once", *, args: JsonObject | None = None) -> Decision:
    """Approve this call, or this tool for the rest of the run or of the tree.

    `args` replaces all arguments of this call. They are validated and checked against the policy, and the model reads
    which arguments the call ran with.
    """
    if scope not in ("once", "run", "tree"):
        raise UsageError(f'allow(scope=...) must be "once", "run" or "tree", not {scope!r}.')
    if args is None:
        return Decision(allowed=True, scope=scope)
    tidy = tidy_args(args)
    if tidy is None:
        raise UsageError(
            f"allow(args=...) must be a dictionary of JSON values, not {shorten(safe_repr(args), 200, 197)}."
        )
    return Decision(allowed=True, scope=scope, args=tidy)


def tidy_args(args: object) -> JsonObject | None:
    """A copy of a call's arguments that can be recorded; None if they are not a dictionary of JSON values."""
    if not isinstance(args, dict) or weigh(cast(object, args), MOST_ARGS) > MOST_ARGS:
        return None
    try:
        return cast("JsonObject", clean_json(msgspec.json.decode(msgspec.json.encode(args))))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def deny(reason: str = "") -> Decision:
    """Deny this call. The model reads the reason."""
    return Decision(allowed=False, reason=clean(safe_str(reason)))


def compile_policy(policy: Policy | None, where: str) -> PolicyFunction | None:
    """A policy as a function; None if there is no policy. Raises UsageError for an invalid rule."""
    if policy is None or callable(policy):
        return policy
    if isinstance(policy, str) or not isinstance(cast(object, policy), Sequence):
        what = "one string" if isinstance(policy, str) else repr(policy)
        raise UsageError(f'{where}: policy must be a list of rules such as ["ask terminal"], not {what}.')
    return Rules([parse(rule, where) for rule in policy])


class Rules:
    """A list of rules as a policy. It has no answer for a call that no rule matches."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules

    def decide(self, call: Call, tool: Tool, scope: Scope) -> Ruling | None:
        rules = [rule for rule in self.rules if rule.names(call.name)]
        if not any(rule.pattern for rule in rules) or isinstance(call.args, str):
            return decide(rules, ())
        return decide(rules, tool.subjects(call.args, scope.workspace))

    def __call__(self, call: Call, scope: Scope) -> Answer:
        """Decide by tool name alone, for callers that treat this as a policy function."""
        del scope
        ruling = decide([rule for rule in self.rules if rule.names(call.name)], ())
        return "allow" if ruling is None else ruling.answer


_BY_TIER = Ruling("ask", ("",))
_ALLOWED = Ruling("allow", ())


def judge(call: Call, tool: Tool, scope: Scope, policies: Sequence[PolicyFunction | None]) -> Ruling:
    """The answer for this call: the caller's rules, else the root agent's, else the tier's default; then narrowed.

    `policies` holds the caller's policy, the root agent's, then the policies of the agents below the root.
    """
    caller, root, *narrower = policies
    ruling = _consult(caller, call, tool, scope)
    if ruling is not None:
        narrower.append(root)
    else:
        ruling = _consult(root, call, tool, scope)
    if ruling is None:
        ruling = _BY_TIER if tool.tier is Tier.CONFIRM and not tool.delegates else _ALLOWED
    for policy in narrower:
        if policy is not None:
            ruling = _stricter(ruling, _consult(policy, call, tool, scope))
    return ruling


def _stricter(one: Ruling, other: Ruling | None) -> Ruling:
    """The stricter ruling; if both give the same answer, with the reasons of both."""
    if other is None:
        return one
    if one.answer == other.answer != "deny":
        reasons = tuple(sorted({*one.reasons, *other.reasons}))
        return Ruling(one.answer, reasons, one.by_pattern or other.by_pattern)
    return one if _ANSWERS.index(other.answer) <= _ANSWERS.index(one.answer) else other


def _consult(policy: PolicyFunction | None, call: Call, tool: Tool, scope: Scope) -> Ruling | None:
    """The policy's ruling; None if it has none for this call."""
    if policy is None:
        return None
    if isinstance(policy, Rules):
        return policy.decide(call, tool, scope)
    answer = policy(call, scope)
    if answer not in _ANSWERS:
        raise UsageError(f'policy returned {answer!r}; it must be "allow", "ask" or "deny".')
    return Ruling(answer, ("",))
