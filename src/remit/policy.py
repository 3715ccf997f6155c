"""Allow, ask or deny: rules about tools, and a person's answers.

Rules are strings, `"ask terminal"`, `"deny subagent_*"`, or one function of the call and the scope. Within
one set of rules the strictest that matches wins. A child's rules only narrow its parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from msgspec import Struct

from remit.errors import UsageError
from remit.limits import Usage
from remit.messages import Call, JsonObject
from remit.rules import Answer, Rule, decide, parse
from remit.text import clean, safe_str
from remit.tool import Tier, Tool

if TYPE_CHECKING:
    from remit.scope import Scope

PolicyFunction = Callable[[Call, "Scope"], Answer]
Policy = Sequence[str] | PolicyFunction

_ANSWERS = ("allow", "ask", "deny")


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """What a person is asked. `path` says who asks, from the root down."""

    id: str
    path: tuple[str, ...]
    agent: str
    task: str
    tool: str
    args: JsonObject
    total_usage: Usage
    """What the whole tree has spent so far."""
    preview: str = ""
    """What the call would change, where its tool can tell: a diff."""
    rule: str = ""
    """The rule that has this asked; empty when the tool's tier has."""


class Decision(Struct, frozen=True):
    """A person's answer; made by `allow()` and `deny()`."""

    allowed: bool
    scope: Literal["once", "run", "tree"] = "once"
    reason: str = ""


def allow(scope: Literal["once", "run", "tree"] = "once") -> Decision:
    """Yes: to this call, to this tool for the rest of the run, or for the rest of the tree."""
    if scope not in ("once", "run", "tree"):
        raise UsageError(f'allow(scope=...) must be "once", "run" or "tree", not {scope!r}.')
    return Decision(allowed=True, scope=scope)


def deny(reason: str = "") -> Decision:
    """No; the model reads the reason."""
    return Decision(allowed=False, reason=clean(safe_str(reason)))


def compile_policy(policy: Policy | None, where: str) -> PolicyFunction | None:
    """Rules as a function that answers "allow" for what no rule matches; None for no rules.

    Raises UsageError for a rule that cannot be read.
    """
    if policy is None or callable(policy):
        return policy
    if isinstance(policy, str) or not isinstance(cast(object, policy), Sequence):
        raise UsageError(f'{where}: policy must be a list of rules such as ["ask terminal"], not one string.')
    return Rules([parse(rule, where) for rule in policy])


class Rules:
    """A list of rules as a policy. It has no opinion on what no rule matches."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules

    def decide(self, call: Call, tool: Tool, scope: Scope) -> Rule | None:
        rules = [rule for rule in self.rules if rule.names(call.name)]
        if not any(rule.pattern for rule in rules) or isinstance(call.args, str):
            return decide(rules, ())
        return decide(rules, tool.subjects(call.args, scope.tree.workspace))

    def __call__(self, call: Call, scope: Scope) -> Answer:
        """By the tools' names alone: for those who call it like any other policy."""
        del scope
        rule = decide([rule for rule in self.rules if rule.names(call.name)], ())
        return "allow" if rule is None else rule.answer


class Verdict(NamedTuple):
    """What a policy says of a call, and the rule that says so."""

    answer: Answer
    rule: str = ""


def judge(call: Call, tool: Tool, scope: Scope) -> Verdict:
    """The answer for this call: the caller's rules, else the root agent's, else the tier's default; then narrowed.

    `scope.policies` is the caller's, the root agent's, and those of the agents below it.
    """
    caller, root, *narrower = scope.policies
    verdict = _asked(caller, call, tool, scope)
    if verdict is not None:
        narrower.append(root)
    else:
        verdict = _asked(root, call, tool, scope)
    if verdict is None:
        verdict = Verdict("ask" if tool.tier is Tier.CONFIRM and not tool.delegates else "allow")
    for policy in narrower:
        verdict = _stricter(verdict, _asked(policy, call, tool, scope))
    return verdict


def _stricter(one: Verdict, other: Verdict | None) -> Verdict:
    return one if other is None or _ANSWERS.index(other.answer) <= _ANSWERS.index(one.answer) else other


def _asked(policy: PolicyFunction | None, call: Call, tool: Tool, scope: Scope) -> Verdict | None:
    """None where a policy has no opinion."""
    if policy is None:
        return None
    if isinstance(policy, Rules):
        rule = policy.decide(call, tool, scope)
        return None if rule is None else Verdict(rule.answer, str(rule))
    answer = policy(call, scope)
    if answer not in _ANSWERS:
        raise UsageError(f'policy returned {answer!r}; it must be "allow", "ask" or "deny".')
    return Verdict(answer)
