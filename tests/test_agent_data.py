"""Agents as data: to a dictionary, through JSON, and back."""

from __future__ import annotations

import json

import jsonschema
import pytest
from pydantic import BaseModel

from remit import Agent, Limits, Sandbox, UsageError, run, tool
from remit.testing import ScriptedModel, call, say
from remit.tools.mcp import McpServer


class Report(BaseModel):
    title: str


@tool(tier="observe")
async def look(place: str) -> str:
    """Look."""
    return f"saw {place}"


MODEL = ScriptedModel({"lead": [call("task", agent="scout", prompt="go"), say('{"title": "x"}')], "scout": [call("look", place="here"), say("seen")]})  # fmt: skip

SCOUT = Agent(
    "scout",
    nickname="Scout",
    description="Looks.",
    tools=["read", look],
    limits=Limits(turns=3, tokens=None),
    settings={"temperature": 0.5},
    policy=["deny terminal(rm *)"],
    sandbox="read-only",
    summary="auto",
)
LEAD = Agent(
    "lead",
    instructions="Lead.",
    model=MODEL,
    subagents=[SCOUT],
    surface="subagent_<name>",
    adhoc=True,
    output=Report,
)


def test_an_agent_round_trips_through_json() -> None:
    """Every field survives; tools and models are found by name, and a structured answer keeps its schema."""
    data = json.loads(json.dumps(LEAD.to_dict()))
    again = Agent.from_dict(data, tools=[look], models={"scripted": MODEL})
    assert again.to_dict() == LEAD.to_dict()
    assert again.model is MODEL
    scout = again.subagents[0]
    assert scout.tools == ("read", look)
    assert (scout.limits, scout.settings, scout.sandbox) == (
        SCOUT.limits,
        SCOUT.settings,
        Sandbox("read-only"),
    )
    assert (scout.nickname, scout.description, scout.summary) == ("Scout", "Looks.", "auto")
    assert (again.surface, again.adhoc, again.instructions) == ("subagent_<name>", True, "Lead.")
    assert data["output"]["properties"] == {"title": {"type": "string"}}


async def test_an_agent_from_data_runs() -> None:
    """An agent built from data runs like the original."""
    lead = Agent("lead", subagents=[Agent("scout", tools=[look])])
    again = Agent.from_dict(lead.to_dict(), tools={"look": look})
    outcome = await run(again, "go", model=MODEL)
    assert outcome.ok
    assert outcome.children[0].calls[0].name == "look"


def test_defaults_are_omitted() -> None:
    """A plain agent is a short dictionary."""
    assert Agent("one").to_dict() == {"name": "one"}


def test_a_tool_source_becomes_a_name() -> None:
    """The data has the name of an MCP server, not its command and environment."""
    server = McpServer("files", command="files-server", env={"TOKEN": "abc"})
    agent = Agent("one", tools=[server])
    assert agent.to_dict() == {"name": "one", "tools": ["files"]}
    assert Agent.from_dict(agent.to_dict(), tools=[server]).sources == (server,)


def test_the_data_matches_its_json_schema() -> None:
    """`Agent.json_schema()` accepts the output of `to_dict` and rejects what `from_dict` rejects."""
    schema = Agent.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(LEAD.to_dict(), schema)
    for wrong in ({}, {"name": "a b"}, {"name": "x", "tool": []}, {"name": "x", "tools": "read"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
        with pytest.raises(UsageError):
            Agent.from_dict(wrong)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "the agent must be a dictionary, not int"),
        ({"nam": "x"}, "the agent has no name"),
        ({"name": "x", "tool": []}, "'x' has an unknown field 'tool'. Did you mean 'tools'?"),
        ({"name": "x", "tools": [3]}, "x: tools has 3, which is not a name"),
        (
            {"name": "x", "limits": {"turn": 3}},
            "x: limits has an unknown field 'turn'. Did you mean 'turns'?",
        ),
        ({"name": "x", "limits": {"turns": 0}}, "x: limits: Limits.turns must be at least 1"),
        ({"name": "x", "subagents": [{"name": "y", "adhoc": 1}]}, "Agent 'y': adhoc must be True or False"),
        ({"name": "x", "subagents": [{}]}, "a subagent of x has no name"),
    ],
)
def test_a_mistake_in_the_data_names_the_field(data: object, words: str) -> None:
    """The message names the agent and the field."""
    with pytest.raises(UsageError) as told:
        Agent.from_dict(data)  # pyright: ignore[reportArgumentType]
    assert words in str(told.value)


def test_a_policy_function_is_refused() -> None:
    """A policy function cannot be represented as data, so `to_dict` raises."""
    with pytest.raises(UsageError, match="cannot represent a policy function"):
        Agent("one", policy=lambda call, scope: "allow").to_dict()
