"""Agents as JSON data, with tools and models by name. Behind `Agent.to_dict`, `from_dict` and `json_schema`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from remit.errors import UsageError
from remit.tools.policy import Rules
from remit.tools.schema import output_schema
from remit.tools.source import ToolSource
from remit.tools.tool import Tool
from remit.types.limits import Limits
from remit.types.messages import Json, JsonObject
from remit.types.ports import Model
from remit.types.sandbox import Sandbox
from remit.types.spelling import suggest

if TYPE_CHECKING:
    from remit.agent import Agent

Given = Mapping[str, "Tool | ToolSource"] | Sequence["Tool | ToolSource"]
"""The tools and tool sources to use for names in the data."""

_TEXT: JsonObject = {"type": "string"}
_FIELDS: dict[str, JsonObject] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,48}$"},
    "nickname": _TEXT,
    "description": _TEXT,
    "instructions": _TEXT,
    "model": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]},
    "settings": {"type": "object"},
    "tools": {"type": "array", "items": _TEXT},
    "subagents": {"type": "array", "items": {"$ref": "#"}},
    "limits": {"$ref": "#/$defs/Limits"},
    "surface": {"enum": ["task", "subagent_<name>"]},
    "adhoc": {"type": "boolean"},
    "summary": {"enum": ["never", "auto", "always"]},
    "output": {"type": "object", "description": "A JSON schema that the answer must match."},
    "policy": {"type": "array", "items": _TEXT},
    "sandbox": {"$ref": "#/$defs/Sandbox"},
}


def json_schema() -> JsonObject:
    """The JSON schema of `Agent.to_dict()` dictionaries."""
    (_, _), parts = msgspec.json.schema_components([Limits, Sandbox], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Agent",
        "type": "object",
        "properties": dict(_FIELDS),
        "required": ["name"],
        "additionalProperties": False,
        "$defs": cast(Json, parts),
    }


def to_dict(agent: Agent) -> JsonObject:
    """The fields without a default value. Raises UsageError for functions, which are not data."""
    if agent.program is not None:
        raise UsageError(f"Agent {agent.name!r}: to_dict() cannot represent a program.")
    if not isinstance(agent.instructions, str):
        raise UsageError(f"Agent {agent.name!r}: to_dict() cannot represent a function for instructions.")
    for field in ("validators", "on_call", "on_result"):
        if getattr(agent, field):
            raise UsageError(
                f"Agent {agent.name!r}: to_dict() cannot represent {field}, which are functions."
            )
    found: dict[str, object] = {
        "name": agent.name,
        "nickname": agent.nickname,
        "description": agent.description,
        "instructions": agent.instructions,
        "model": _model_names(agent.model),
        "settings": None if agent.settings is None else dict(agent.settings),
        "tools": [tool if isinstance(tool, str) else tool.name for tool in agent.tools],
        "subagents": [to_dict(child) for child in agent.subagents],
        "limits": agent.limits,
        "surface": None if agent.surface == "task" else agent.surface,
        "adhoc": agent.adhoc,
        "summary": None if agent.summary == "never" else agent.summary,
        "output": None if agent.output is None else output_schema(agent.output),
        "policy": _rules(agent),
        "sandbox": agent.sandbox,
    }
    return cast(
        JsonObject,
        msgspec.to_builtins({name: value for name, value in found.items() if value or name == "name"}),
    )


def _model_names(choice: object) -> str | list[str] | None:
    if isinstance(choice, tuple):
        return [str(_model_names(one)) for one in cast("tuple[object, ...]", choice)]
    return choice if choice is None or isinstance(choice, str) else str(cast(Model, choice).name)


def _rules(agent: Agent) -> list[str] | None:
    if agent.policy is None or isinstance(agent.policy, Rules):
        return None if agent.policy is None else list(map(str, agent.policy.rules))
    raise UsageError(
        f"Agent {agent.name!r}: to_dict() cannot represent a policy function. Write the policy as rules."
    )


def from_dict(
    kind: type[Agent], data: object, *, tools: Given = (), models: Mapping[str, Model] | None = None
) -> Agent:
    """Build the agent that `to_dict` described. Names missing in `tools` and `models` are resolved at run time."""
    named = dict(tools) if isinstance(tools, Mapping) else {tool.name: tool for tool in tools}
    return _agent(kind, data, named, models or {}, ())


def _agent(
    kind: type[Agent],
    data: object,
    tools: Mapping[str, Tool | ToolSource],
    models: Mapping[str, Model],
    above: tuple[str, ...],
) -> Agent:
    fields = _checked(data, above)
    path = (*above, str(fields["name"]))
    made = dict(fields)
    made["tools"] = [tools.get(name, name) for name in _texts(fields, "tools", path)]
    made["subagents"] = [
        _agent(kind, child, tools, models, path) for child in _items(fields, "subagents", path)
    ]
    if isinstance(fields.get("model"), (str, list)):
        names = _texts(fields, "model", path) if isinstance(fields["model"], list) else [str(fields["model"])]
        found = [models.get(name, name) for name in names]
        made["model"] = found if isinstance(fields["model"], list) else found[0]
    for name, record in (("limits", Limits), ("sandbox", Sandbox)):
        if name in fields:
            made[name] = _record(fields[name], record, name, path)
    return kind(**cast("dict[str, Any]", made))  # Agent checks each field


def _checked(data: object, above: tuple[str, ...]) -> JsonObject:
    where = f"a subagent of {' > '.join(above)}" if above else "the agent"
    if not isinstance(data, Mapping):
        raise UsageError(f"Agent.from_dict: {where} must be a dictionary, not {type(data).__name__}.")
    fields = dict(cast("Mapping[str, Json]", data))
    if not isinstance(fields.get("name"), str):
        raise UsageError(f"Agent.from_dict: {where} has no name.")
    for name in fields:
        if name not in _FIELDS:
            raise UsageError(
                f"Agent.from_dict: {fields['name']!r} has an unknown field {name!r}.{suggest(name, _FIELDS)}"
                f" Fields: {', '.join(_FIELDS)}."
            )
    return fields


def _items(fields: JsonObject, name: str, path: tuple[str, ...]) -> list[Json]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise UsageError(
            f"Agent.from_dict: {' > '.join(path)}: {name} must be a list, not {type(value).__name__}."
        )
    return cast("list[Json]", value)


def _texts(fields: JsonObject, name: str, path: tuple[str, ...]) -> list[str]:
    for item in _items(fields, name, path):
        if not isinstance(item, str):
            raise UsageError(
                f"Agent.from_dict: {' > '.join(path)}: {name} has {item!r}, which is not a name."
            )
    return cast("list[str]", _items(fields, name, path))


def _record(value: object, kind: type[Limits | Sandbox], name: str, path: tuple[str, ...]) -> object:
    where = f"Agent.from_dict: {' > '.join(path)}: {name}"
    known = kind.__struct_fields__
    if isinstance(value, Mapping):
        for field in cast("Mapping[str, object]", value):
            if field not in known:
                raise UsageError(f"{where} has an unknown field {field!r}.{suggest(field, known)}")
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{where}: {error}") from None
