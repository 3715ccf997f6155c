"""The tools and the output schema of a request, in pydantic-ai's terms."""

from __future__ import annotations

from typing import Literal, cast

from pydantic_ai.models import Model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from remit.types.messages import Json, JsonObject, Request

_Mode = Literal["text", "native", "prompted"]


def tools_of(request: Request) -> list[ToolDefinition]:
    return [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in request.tools
    ]


def output_of(model: Model, request: Request) -> tuple[_Mode, OutputObjectDefinition | None]:
    """How to request the output schema: with the provider's own feature, else in the instructions."""
    if request.output_schema is None:
        return "text", None
    native = model.profile.get("supports_json_schema_output", False) and not _has_maps(request.output_schema)
    if model.system.startswith("google") and request.tools:
        native = native and cast(JsonObject, model.profile).get("google_supports_tool_combination", False)
    output = OutputObjectDefinition(json_schema=request.output_schema, name="answer")
    return ("native" if native else "prompted"), output


def _has_maps(schema: Json) -> bool:
    """Whether an object in the schema may have arbitrary keys: providers' own features would forbid all keys there."""
    if isinstance(schema, list):
        return any(map(_has_maps, cast(list[Json], schema)))
    if not isinstance(schema, dict):
        return False
    fields = cast(JsonObject, schema)
    if fields.get("type") == "object" and (
        fields.get("additionalProperties") not in (None, False) or not fields.get("properties")
    ):
        return True
    return any(map(_has_maps, fields.values()))
