"""Decisions that an untrusted file may not make: rules that allow, limits above the defaults, servers, model addresses.

An untrusted project's files may only narrow. Anything that widens is ignored and reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import UNSET

from remit.definitions.agent_files.definition import WrittenWord
from remit.definitions.agent_files.tool_names import ToolWord
from remit.tools.policy import Rules, compile_policy
from remit.tools.policy_rules import Ruling, parse
from remit.tools.tool import Tool
from remit.types.limits import OWN, ROOT_DEFAULTS, SHARED, Limits
from remit.types.messages import Call, Json

if TYPE_CHECKING:
    from remit.tools.policy import Scope
    from remit.tools.policy_rules import Rule

HARMLESS = (
    *("temperature", "top_p", "top_k", "seed", "thinking", "max_output_tokens", "parallel_tool_calls"),
    *("presence_penalty", "frequency_penalty", "stop_sequences"),
)
"""Model settings that neither choose where a request is sent nor add data to it."""

MOST_SCHEMA = 20_000
"""Characters of the schema of an answer."""

_QUICK = frozenset(
    (
        *(
            "type",
            "properties",
            "required",
            "additionalProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        ),
        *("items", "prefixItems", "contains", "minContains", "maxContains", "minItems", "maxItems"),
        *(
            "minLength",
            "maxLength",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ),
        *("enum", "const", "default", "examples", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"),
        *("title", "description", "format", "deprecated", "readOnly", "writeOnly", "nullable"),
        *("$schema", "$id", "$comment", "$defs", "definitions", "dependentRequired", "dependentSchemas"),
    )
)
"""Keywords whose check takes time in proportion to the schema and the answer."""
_NAMING = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"enum", "const", "default", "examples"})

NUMBERS = tuple(name for name in (*SHARED, *OWN) if name != "when_full")

CONSENT = "run `remit trust` in the project if you trust its files"


def narrow_rules(rules: Sequence[WrittenWord]) -> tuple[list[WrittenWord], list[WrittenWord]]:
    """The rules that ask or deny, and the rules that allow."""
    kept, allowing = list[WrittenWord](), list[WrittenWord]()
    for rule in rules:
        (allowing if allows(rule.text) else kept).append(rule)
    return kept, allowing


def allows(rule: str) -> bool:
    """Whether a rule allows, however it is spelled: any whitespace may follow the answer."""
    return parse(rule, "policy").answer == "allow"


def narrow_limits(limits: Limits, outer: Limits = ROOT_DEFAULTS) -> tuple[Limits, list[str]]:
    """The limits, lowered to the outer ones, and the names of those that were lowered."""
    narrowed, wider = dict[str, object](), list[str]()
    for name in NUMBERS:
        wanted, most = cast(object, getattr(limits, name)), cast(object, getattr(outer, name))
        if wanted is UNSET or most is UNSET or most is None:
            continue
        if wanted is None or cast(float, wanted) > cast(float, most):
            narrowed[name] = most
            wider.append(name)
    return (msgspec.structs.replace(limits, **narrowed) if narrowed else limits), wider


def narrow_settings(settings: Mapping[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """The harmless model settings, and the names of the others."""
    kept = {key: value for key, value in settings.items() if key in HARMLESS}
    return kept, [key for key in settings if key not in HARMLESS]


def why_not_output(schema: Json) -> str:
    """Why an untrusted file's schema may not validate answers; empty if it may.

    References, patterns and keywords such as `unevaluatedProperties` can take exponential time, which would block the process.
    """
    if len(json.dumps(schema)) > MOST_SCHEMA:
        return f"it has more than {MOST_SCHEMA:,} characters"
    todo: list[Json] = [schema]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += cast("list[Json]", value)
        elif isinstance(value, dict):
            for key, inner in cast("dict[str, Json]", value).items():
                if key not in _QUICK:
                    return f"it uses {key!r}, whose check may never end"
                # Keys below these are names, not keywords; literal values are not schemas.
                by_name = key in _NAMING and isinstance(inner, dict)
                todo += cast("dict[str, Json]", inner).values() if by_name else [inner] * (key not in _VALUES)
    return ""


class Only(Rules):
    """Rules, plus tools that may be used only for calls that match their patterns: `Bash(git *)`."""

    def __init__(self, rules: Sequence[str], only: Sequence[ToolWord], *, allows: bool, where: str) -> None:
        super().__init__(_compiled(rules, where))
        asking = {word.name for word in only if word.asks}
        self._allowing = {word.name for word in only if allows} - asking
        self._within = {
            name: Rules(_compiled([f"allow {name}({w.within})" for w in only if w.name == name], where))
            for name in dict.fromkeys(word.name for word in only)
        }

    def decide(self, call: Call, tool: Tool, scope: Scope) -> Ruling | None:
        said = super().decide(call, tool, scope)
        within = self._within.get(call.name)
        if within is None or (said is not None and said.answer == "deny"):
            return said
        found = within.decide(call, tool, scope)
        if found is None:
            return Ruling("deny", (f"only {call.name}({', '.join(r.pattern for r in within.rules)})",))
        return found if said is None and call.name in self._allowing else said


def _compiled(rules: Sequence[str], where: str) -> list[Rule]:
    made = compile_policy(list(rules), where)
    assert isinstance(made, Rules)
    return made.rules
