"""Allow, ask or deny: rules about tools, and a person's answers.

Rules are strings, `"ask terminal"`, `"deny subagent_*"`, or one function of the call and the scope. Within
one set of rules the strictest that matches wins. A child's rules only narrow its parent's.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from remit.errors import UsageError
from remit.limits import Usage
from remit.messages import Call, JsonObject
from remit.text import clean, safe_str
from remit.tool import Tier, Tool

if TYPE_CHECKING:
    from remit.scope import Scope

Answer = Literal["allow", "ask", "deny"]
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
    return Rules([_parse(rule, where) for rule in policy])


class Rules:
    """A list of rules as a function. It answers for what a rule names; `speaks_of` tells whether one does."""

    def __init__(self, rules: list[tuple[Answer, str]]) -> None:
        self.rules = rules

    def speaks_of(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for _, pattern in self.rules)

    def __call__(self, call: Call, scope: Scope) -> Answer:
        del scope
        return strictest(
            [answer for answer, pattern in self.rules if fnmatch.fnmatchcase(call.name, pattern)]
        )


def judge(call: Call, tool: Tool, scope: Scope) -> Answer:
    """The answer for this call: the caller's rules, else the root agent's, else the tier's default; then narrowed.

    `scope.policies` is the caller's, the root agent's, and those of the agents below it.
    """
    caller, root, *narrower = scope.policies
    if _speaks(caller, call):
        answer = _asked(caller, call, scope)
        narrower.append(root)
    elif _speaks(root, call):
        answer = _asked(root, call, scope)
    else:
        answer = "ask" if tool.tier is Tier.CONFIRM and not tool.delegates else "allow"
    return strictest([answer, *(_asked(rule, call, scope) for rule in narrower)])


def _speaks(rules: PolicyFunction | None, call: Call) -> bool:
    return rules is not None and not (isinstance(rules, Rules) and not rules.speaks_of(call.name))


def strictest(answers: Sequence[Answer]) -> Answer:
    if "deny" in answers:
        return "deny"
    return "ask" if "ask" in answers else "allow"


def _asked(rule: PolicyFunction | None, call: Call, scope: Scope) -> Answer:
    answer = "allow" if rule is None else rule(call, scope)
    if answer not in _ANSWERS:
        raise UsageError(f'policy returned {answer!r}; it must be "allow", "ask" or "deny".')
    return answer


def _parse(rule: object, where: str) -> tuple[Answer, str]:
    words = rule.split() if isinstance(rule, str) else []
    if len(words) == 2 and (words[0] == "allow" or words[0] == "ask" or words[0] == "deny"):
        return words[0], words[1]
    raise UsageError(
        f'{where}: policy rule {rule!r} must be "allow", "ask" or "deny" and a tool name or pattern.'
    )
