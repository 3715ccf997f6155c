"""What callers get wrong in agents, limits and calls: a UsageError that names the field, before anything ran."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

import remit.tools
from remit import Agent, Limits, Reply, Request, TextPart, UsageError, allow, run, run_sync, start, tool
from remit.testing import ScriptedModel, call, say
from remit.types.event_json import decode, encode
from remit.types.events import Event

BROKEN = "half \ud800 a pair"


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "seen"


def plain() -> str:
    return "not a tool"


class Named:
    """A model whose name is its class's, so that the class has one too."""

    name = "named"

    async def reply(self, request: Request, emit: object) -> Reply:
        raise NotImplementedError


def check_words(error: UsageError, words: tuple[str, ...]) -> None:
    text = str(error)
    for word in words:
        assert word in text
    assert "object at 0x" not in text
    assert len(text) < 600
    text.encode()


# --- Agents --------------------------------------------------------------------------------------

NAMES = ["", " ", "a b", "a" * 49, "é", "a/b", "a.b", "a\n", "\0", None, 3, True, b"lead", ["lead"]]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_an_agents_name(name: object) -> None:
    """A name is 1 to 48 letters, digits, hyphens or underscores."""
    with pytest.raises(UsageError) as caught:
        Agent(name)  # pyright: ignore[reportArgumentType]
    check_words(caught.value, ("name", "1 to 48 letters, digits, hyphens or underscores"))


AGENTS: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({"nickname": 3}, ("nickname", "string")),
    ({"nickname": BROKEN}, ("nickname", "surrogate")),
    ({"description": None}, ("description", "string")),
    ({"description": ["a"]}, ("description", "string")),
    ({"description": BROKEN}, ("description", "surrogate")),
    ({"instructions": None}, ("instructions", "string")),
    ({"instructions": b"bytes"}, ("instructions", "string")),
    ({"instructions": BROKEN}, ("instructions", "surrogate", "5")),
    ({"instructions": "x" * 1_000_001}, ("instructions", "1,000,001", "1,000,000")),
    ({"model": 3}, ("model", "anthropic:claude-haiku-4-5")),
    ({"model": ""}, ("model is empty", "anthropic:claude-haiku-4-5", "omit model")),
    ({"model": "  "}, ("model is empty",)),
    ({"model": ScriptedModel}, ("model", "It is a class: write ScriptedModel(...)")),
    ({"model": Named}, ("model", "It is a class: write Named(...)")),
    ({"model": [Named]}, ("model", "It is a class: write Named(...)")),
    ({"settings": 3}, ("settings", "mapping")),
    ({"settings": []}, ("settings", "mapping")),
    ({"settings": "fast"}, ("settings", "mapping")),
    *(
        ({"settings": {"max_output_tokens": n}}, ("max_output_tokens", "at least 1"))
        for n in (0, -1, 1.5, True, "9", math.nan)
    ),
    ({"tools": "look"}, ("tools", "list")),
    ({"tools": 3}, ("tools", "list")),
    ({"tools": None}, ("tools", "list")),
    ({"tools": {look}}, ("tools", "list")),
    ({"tools": look}, ("tools", "Put it in a list")),
    ({"tools": plain}, ("tools", "list", "Decorate it with @remit.tool")),
    ({"tools": remit.tools.all}, ("tools", "Call it: remit.tools.all()")),
    ({"tools": [remit.tools.read_only]}, ("tools", "Call it: remit.tools.read_only()")),
    ({"tools": [remit.tools.make_terminal]}, ("tools", "Call it: remit.tools.make_terminal()")),
    ({"tools": [remit.tools.read_only()]}, ("tools", "a list inside the list", "*")),
    ({"tools": [look, (plain,)]}, ("tools", "a list inside the list", "*")),
    ({"tools": [None]}, ("tools",)),
    ({"tools": [3]}, ("tools", "3")),
    ({"tools": [look, look]}, ("tools", "'look'", "unique")),
    ({"tools": [look, "look"]}, ("tools", "'look'", "unique")),
    *(({"tools": [n]}, (repr(n), "reserved")) for n in ("task", "subagent", "subagent_x", "read_artifact")),
    ({"subagents": "explorer"}, ("subagents", "list")),
    ({"subagents": None}, ("subagents", "list")),
    ({"subagents": Agent("w")}, ("subagents", "list")),
    ({"subagents": ["explorer"]}, ("subagents", "'explorer'", "not an Agent")),
    ({"subagents": [Agent]}, ("subagents", "not an Agent")),
    ({"subagents": [Agent("w"), Agent("w")]}, ("subagents", "'w'", "unique")),
    ({"limits": 3}, ("limits", "Limits(...)")),
    ({"limits": {"turns": 3}}, ("limits", "Limits(...)")),
    ({"limits": Limits}, ("limits", "Limits(...)")),
    ({"surface": "tasks"}, ("surface", "task, subagent_<name>", "'tasks'")),
    ({"surface": None}, ("surface", "task, subagent_<name>")),
    ({"surface": ["task"]}, ("surface", "task, subagent_<name>")),
    ({"adhoc": "yes"}, ("adhoc", "True or False")),
    ({"adhoc": 1}, ("adhoc", "True or False")),
    ({"adhoc": None}, ("adhoc", "True or False")),
    ({"summary": "sometimes"}, ("summary", "never, auto, always", "'sometimes'")),
    ({"summary": True}, ("summary", "never, auto, always")),
    ({"output": "Finding"}, ("output",)),
    ({"output": {"type": "nonsense"}}, ("output", "schema")),
    ({"output": 3}, ("output must be a type or a JSON schema, not 3",)),
    ({"output": True}, ("output must be a type or a JSON schema, not True",)),
    ({"output": [int]}, ("output must be a type or a JSON schema", "list[...]")),
    ({"output": plain}, ("output must be a type or a JSON schema",)),
    ({"policy": "deny terminal"}, ("policy", "list of rules")),
    ({"policy": ["maybe terminal"]}, ("policy", "maybe terminal", '"allow", "ask" or "deny"')),
    ({"policy": ["deny"]}, ("policy", "deny", "tool name or pattern")),
    ({"policy": [3]}, ("policy", "3")),
    ({"policy": 3}, ("policy",)),
]


def short(value: object) -> str:
    """What a case is called: the same in every process."""
    return str(value).partition(" at 0x")[0][:60].encode("ascii", "replace").decode()


@pytest.mark.parametrize(("fields", "words"), AGENTS, ids=short)
def test_an_agent_that_cannot_work(fields: dict[str, object], words: tuple[str, ...]) -> None:
    """What cannot work is an error when the Agent is built, with the agent, the field and what is allowed."""
    with pytest.raises(UsageError) as caught:
        Agent("lead", **fields)  # pyright: ignore[reportCallIssue, reportArgumentType]
    check_words(caught.value, ("Agent 'lead': ", *words))
    assert "arbitrary_types" not in str(caught.value)


@pytest.mark.parametrize("name", ["task", "subagent", "subagent_x", "read_artifact"])
def test_a_tool_may_not_have_a_reserved_name(name: str) -> None:
    """The names of remit's own tools cannot be taken, so that no tool can stand in front of a limit."""
    with pytest.raises(UsageError, match=name):
        tool(plain, name=name)


def test_a_plain_function_is_not_a_tool() -> None:
    """A function in `tools` is told to be decorated."""
    with pytest.raises(UsageError, match="Decorate it"):
        Agent("lead", tools=[plain])  # pyright: ignore[reportArgumentType]


# --- Limits --------------------------------------------------------------------------------------

WHOLE = (
    "depth",
    "delegations",
    "requests",
    "tokens",
    "calls",
    "concurrency",
    "turns",
    "result_chars",
    "context_tokens",
)
REAL = ("usd", "seconds", "call_seconds", "stall_seconds")


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize(
    "value", [-1, 1.5, 1.0, math.nan, math.inf, True, False, "3", [], {}, 10**16], ids=repr
)
def test_a_limit_that_is_counted(field: str, value: object) -> None:
    """A counted limit is a whole number within bounds, None, or left out; anything else names the field."""
    with pytest.raises(UsageError) as caught:
        Limits(**{field: value})  # pyright: ignore[reportArgumentType]
    check_words(caught.value, (f"Limits.{field}", "None"))


@pytest.mark.parametrize("field", REAL)
@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf, -math.inf, True, "3", [], 1e16], ids=repr)
def test_a_limit_that_is_measured(field: str, value: object) -> None:
    """A measured limit is a number within bounds, None, or left out; anything else names the field."""
    with pytest.raises(UsageError) as caught:
        Limits(**{field: value})  # pyright: ignore[reportArgumentType]
    check_words(caught.value, (f"Limits.{field}", "None"))


@pytest.mark.parametrize("field", ["turns", "concurrency"])
def test_what_must_be_at_least_one(field: str) -> None:
    """No run works with zero turns or zero slots, so zero is an error there."""
    with pytest.raises(UsageError, match=f"{field} must be at least 1"):
        Limits(**{field: 0})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", ["wait", "", "Queue", None, True, 3, []], ids=repr)
def test_when_full_is_one_of_two(value: object) -> None:
    """`when_full` is "queue" or "reject"."""
    with pytest.raises(UsageError, match='when_full must be "queue" or "reject"'):
        Limits(when_full=value)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("field", [*(n for n in WHOLE if n not in ("turns", "concurrency")), *REAL])
def test_zero_and_none_are_said_apart(field: str) -> None:
    """Zero and None are both allowed, and are not the same."""
    fields: list[dict[str, Any]] = [{field: 0}, {field: None}, {}]
    zero, none, unset = (Limits(**one) for one in fields)
    assert zero != none
    assert none != unset
    assert zero != unset


# --- Calls of run() ------------------------------------------------------------------------------


async def async_reader(event: Event) -> None:
    del event


CALLS: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({"task": ""}, ("task", "empty")),
    ({"task": " \n"}, ("task", "empty")),
    ({"task": []}, ("task", "empty")),
    ({"task": [TextPart("")]}, ("task", "empty")),
    ({"task": None}, ("task", "string or a list of parts")),
    ({"task": 3}, ("task", "string or a list of parts")),
    ({"task": {"prompt": "go"}}, ("task", "string or a list of parts")),
    ({"task": b"go"}, ("task",)),
    ({"task": ["go"]}, ("task", "TextPart")),
    ({"task": [TextPart(3)]}, ("task", "text")),  # pyright: ignore[reportArgumentType]
    ({"task": BROKEN}, ("task", "surrogate", "5")),
    ({"task": "x" * 10_000_000}, ("task", "10,000,000", "5,000,000")),
    ({"limits": 3}, ("limits", "Limits(...)")),
    ({"limits": {"turns": 3}}, ("limits", "Limits(...)")),
    ({"store": 3}, ("store", "sqlite:///runs.db")),
    ({"store": Path("x.db")}, ("store", "Write 'sqlite:///x.db'")),
    ({"store": Path("/tmp/a b%.db")}, ("store", "Write 'sqlite:////tmp/a%20b%25.db'")),
    ({"approver": 3}, ("approver", "a function that takes one ApprovalRequest")),
    ({"approver": "me"}, ("approver", "a function that takes one ApprovalRequest")),
    ({"on_event": 3}, ("on_event", "plain function")),
    ({"on_event": async_reader}, ("on_event", "plain function")),
    ({"on_event": lambda: None}, ("on_event", "plain function that takes one event")),
    ({"history": "what we said"}, ("history", "outcome.messages")),
    ({"history": ["what we said"]}, ("history", "outcome.messages")),
    ({"history": 3}, ("history", "outcome.messages")),
    ({"history": None}, ("history", "outcome.messages")),
    ({"policy": "deny x"}, ("policy", "list of rules")),
    ({"policy": ["forbid x"]}, ("policy", "forbid x")),
    ({"policy": 3}, ("policy",)),
    ({"workspace": 3}, ("workspace",)),
    ({"model": 3}, ("model",)),
    ({"model": ""}, ("run(model=...): model is empty", "anthropic:claude-haiku-4-5")),
    ({"model": " "}, ("run(model=...): model is empty",)),
    ({"model": Named}, ("run(model=...)", "It is a class: write Named(...)")),
    ({"model": ["provider:x", Named], "models": {"provider:x": ScriptedModel([])}}, ("It is a class",)),
    ({"model": "x", "models": {"x": Named}}, ("'x'", "It is a class: write Named(...)")),
    ({"model": "provider:nowhere"}, ("provider:nowhere",)),
    ({"model": None}, ("'lead'", "no model")),
    ({"models": 3, "model": "provider:x"}, ("models",)),
]


@pytest.mark.parametrize(("given", "words"), CALLS, ids=short)
async def test_a_call_of_run_that_cannot_work(given: dict[str, object], words: tuple[str, ...]) -> None:
    """A mistake in the call raises UsageError that names the argument, before anything ran."""
    model = ScriptedModel([say("ok")])
    arguments: dict[str, object] = {"task": "go", "model": model, **given}
    with pytest.raises(UsageError) as caught:
        await run(Agent("lead"), **arguments)  # pyright: ignore[reportCallIssue, reportArgumentType]
    check_words(caught.value, words)
    assert model.calls_made == 0


@pytest.mark.parametrize("agent", [None, "lead", 3, Agent, {"name": "lead"}], ids=repr)
async def test_the_first_argument_is_an_agent(agent: object) -> None:
    """Anything but an Agent is told so, by run() and start() alike."""
    model = ScriptedModel([])
    with pytest.raises(UsageError, match="Agent"):
        start(agent, "go", model=model)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="Agent"):
        await run(agent, "go", model=model)  # pyright: ignore[reportArgumentType]


async def test_a_tool_nobody_has_is_said_before_the_run() -> None:
    """A tool's name that nothing answers to, anywhere in the tree, is an error before the first request."""
    model = ScriptedModel([say("ok")])
    deep = Agent("lead", subagents=[Agent("mid", subagents=[Agent("leaf", tools=["no_such_tool"])])])
    with pytest.raises(UsageError, match=r"'leaf'.*'no_such_tool'"):
        await run(deep, "go", model=model)
    assert model.calls_made == 0


async def test_run_sync_inside_a_loop_says_what_to_do() -> None:
    """`run_sync` inside a running loop names `await run(...)`."""
    with pytest.raises(UsageError, match=r"await run\("):
        run_sync(Agent("lead"), "go", model=ScriptedModel([]))


@pytest.mark.parametrize("scope", ["forever", "", None, True])
def test_allow_knows_three_scopes(scope: object) -> None:
    """`allow(scope=...)` is once, run or tree."""
    with pytest.raises(UsageError, match='"once", "run" or "tree"'):
        allow(scope=scope)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("run_id", ["", "elsewhere", 3, ["r1"]], ids=repr)
async def test_a_run_that_is_not_in_the_tree(run_id: object) -> None:
    """Cancelling a run by an id that is not of this tree is an error, and stops nothing."""
    model = ScriptedModel([say("ok", delay=5)])
    async with start(Agent("lead"), "go", model=model) as running:
        await asyncio.sleep(1)
        with pytest.raises(UsageError):
            await running.cancel("no", run=run_id)  # pyright: ignore[reportArgumentType]
        assert (await running.outcome()).text == "ok"


class Marked(str):
    """A text as template engines give it."""

    __slots__ = ()


async def test_a_text_of_another_kind_is_a_text() -> None:
    """Whatever is derived from str is written down like any other text: the journal has all of the tree."""
    stare = tool(
        plain,
        tier="observe",
        name=Marked("stare"),
        display_name=Marked("Stare"),
        description=Marked("Stares."),
    )
    lead = Agent(
        Marked("lead"), nickname=Marked("Lea"), instructions=Marked("Look."), tools=[Marked("read"), stare]
    )
    model = ScriptedModel([call("stare"), say("done", delay=5)])
    async with start(lead, Marked("go"), model=model) as running:
        running.send(Marked("and look again"))
        await asyncio.sleep(1)
        await running.cancel(Marked("enough"))
        events = [event async for event in running.events()]
    assert [decode(encode(event)) for event in events] == events


@pytest.mark.parametrize(
    ("policy", "words"), [("ask look", "not one string"), ({"deny": "look"}, "not {'deny': 'look'}")]
)
async def test_a_policy_that_is_no_list_is_told_as_what_it_is(policy: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        await run(Agent("lead", tools=[look]), "go", model=ScriptedModel([say("on")]), policy=policy)
    check_words(caught.value, ("policy must be a list of rules", words))
