"""What models write into delegating calls when they get it wrong: clear words, and nothing spent."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import pytest

from remit import Agent, Call, Limits, Outcome, Reply, Request, Status, ToolMessage, Usage, run, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say, wrapped
from remit.testing.scripted import Line
from remit.types.event_json import encode
from remit.types.events import DelegationRejected, Event, RunStarted

UGLY = re.compile(
    r"Traceback|NoneType|\bNone\b|\bTrue\b|\bFalse\b|<class|<function|object at 0x|remit itself failed|"
    r"\bdict\b|\bstr\b|\bint\b|\bfloat\b|\bbool\b|TypeError|KeyError|ValueError|AttributeError|\\ud800"
)
"""Words of Python that no model should read."""


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "seen"


class Bad(NamedTuple):
    """One malformed call: the tool, its arguments, and words that the answer must have."""

    tool: str
    args: object
    words: tuple[str, ...]
    kind: str = "invalid_input"


BIG = "x" * 1_500_000
OK_TASK = {"agent": "explorer", "prompt": "go"}
OK_ADHOC = {"label": "part", "task_prompt": "go"}
NON_STRINGS = (3, 1.5, math.nan, True, None, [], ["explorer"], {}, {"a": None})
AGENTS = ("'explorer'", "'writer'")


def _task() -> list[Bad]:
    wrong = [
        Bad("task", {**OK_TASK, f: v}, (f, "must be a string"))
        for f in ("agent", "prompt")
        for v in NON_STRINGS
    ]
    blank = [
        Bad("task", {**OK_TASK, f: v}, (f, "empty", "non-empty string"))
        for f in ("agent", "prompt")
        for v in ("", " ", "\n\t")
    ]
    unknown = [
        Bad("task", {**OK_TASK, "agent": name}, (*AGENTS, "Known agents"), "unknown_agent")
        for name in (
            "nobody",
            "Explorer",
            "explorer\n",
            "subagent",
            "lead",
            "../explorer",
            "explorer\ud800",
            "'",
            "\0",
        )
    ]
    return [
        Bad("task", {}, ("agent", "missing")),
        Bad("task", {"agent": "explorer"}, ("prompt", "missing")),
        Bad("task", {"prompt": "go"}, ("agent", "missing")),
        *wrong,
        *blank,
        *unknown,
        Bad("task", {**OK_TASK, "agent": "x" * 201}, ("agent", "201", "200")),
        Bad("task", {**OK_TASK, "prompt": BIG}, ("prompt", "1,500,000", "1,000,000")),
        Bad("task", {**OK_TASK, "model": "big"}, ("'model'", "agent, prompt, description")),
        Bad("task", {**OK_TASK, "brief": "do this"}, ("'brief'", "agent, prompt")),
        Bad("task", {**OK_TASK, "limits": {"turns": 99}}, ("'limits'",)),
        Bad("task", {**OK_TASK, "": 1}, ("unknown field", "agent, prompt")),
        Bad("task", {**OK_TASK, "k" * 5_000: 1}, ("unknown field",)),
        Bad("task", {**OK_TASK, "\ud800": 1}, ("unknown field",)),
        Bad("task", {**OK_TASK, 7: "seven"}, ("unknown field", "7")),
        Bad("task", {**OK_TASK, "subagent_type": "writer"}, ("'agent'", "twice")),
        Bad("task", {**OK_TASK, "task": "another"}, ("'prompt'", "twice")),
        Bad("task", {**OK_TASK, "description": 3}, ("description", "must be a string")),
        Bad("task", {**OK_TASK, "description": ["a"]}, ("description", "must be a string")),
        Bad("task", {**OK_TASK, "description": "x" * 201}, ("description", "201", "200")),
    ]


def _adhoc() -> list[Bad]:
    def more(field: str, value: object, *words: str, kind: str = "invalid_input") -> Bad:
        return Bad("subagent", {**OK_ADHOC, field: value}, (field, *words), kind)

    turns = (0, 51, -1, 1.5, "ten", "10", True, False, 10**30, [], {"a": None})
    texts = ("label", "task_prompt")
    lists = ("look", 3, True, {}, {"look": True}, [3], [None], ["look", 3], [["look"]])
    return [
        Bad("subagent", {}, ("label", "missing")),
        Bad("subagent", {"label": "part"}, ("task_prompt", "missing")),
        *(more(f, v, "must be a string") for f in texts for v in NON_STRINGS),
        *(more(f, v, "empty") for f in texts for v in ("", "  ")),
        more("label", "x" * 201, "201", "200"),
        more("task_prompt", BIG, "1,500,000", "1,000,000"),
        *(more("summary_prompt", v, "must be a string") for v in (3, True, [], {})),
        *(more("max_turns", v, "whole number from 1 to 50") for v in turns),
        *(more(f, v, "list of strings") for f in ("allowed_tools", "denied_tools") for v in lists),
        more("allowed_tools", ["subagent"], "'subagent'"),
        more("allowed_tools", ["look", "subagent"], "'subagent'"),
        *(
            more(f, v, "not one of your tools", "look", kind="unknown_tool")
            for f in ("allowed_tools", "denied_tools")
            for v in (["nope"], ["look", "nope"], [""], ["Look"], ["x" * 9_999])
        ),
        more("allowed_tools", ["task"], "'task'", "look"),
        Bad("subagent", {**OK_ADHOC, "depth": 9}, ("'depth'", "label, task_prompt")),
        Bad("subagent", {**OK_ADHOC, "prompt": "another"}, ("'task_prompt'", "twice")),
        Bad("subagent", {**OK_ADHOC, "tools": ["look"], "allowed_tools": []}, ("'allowed_tools'", "twice")),
    ]


def _named() -> list[Bad]:
    name = "subagent_explorer"
    return [
        Bad(name, {}, ("task", "missing")),
        *(Bad(name, {"task": v}, ("task", "must be a string")) for v in NON_STRINGS),
        *(Bad(name, {"task": v}, ("task", "empty")) for v in ("", " \n")),
        Bad(name, {"task": BIG}, ("task", "1,500,000", "1,000,000")),
        Bad(name, {"task": "go", "agent": "writer"}, ("'agent'", "Valid fields: task")),
        Bad(name, {"task": "go", "prompt": "another"}, ("'task'", "twice")),
        Bad(name, {"task": "go", "description": 3}, ("description", "must be a string")),
    ]


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


def lead_for(tool_name: str) -> Agent:
    children = [Agent("explorer", description="Reads."), Agent("writer")]
    if tool_name.startswith("subagent_"):
        return Agent("lead", subagents=children, surface="subagent_<name>")
    return Agent("lead", subagents=children, adhoc=True, tools=[look])


def good_call(tool_name: str) -> Line:
    args = {"task": OK_TASK, "subagent": OK_ADHOC}.get(tool_name, {"task": "go"})
    return call(tool_name, dict(args))


def name_of(bad: Bad) -> str:
    return f"{bad.tool}-{str(bad.args)[:60]!r}".encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize("bad", [*_task(), *_adhoc(), *_named()], ids=name_of)
async def test_a_malformed_delegation_is_explained_and_costs_nothing(bad: Bad) -> None:
    """The result names the field and the allowed values; no child starts and nothing is counted (law 1)."""
    worker = [say("done"), wrapped("done")] if bad.tool == "subagent" else [say("done")]
    scripts = {
        "lead": [call(bad.tool, bad.args), good_call(bad.tool), say("ok")],  # pyright: ignore[reportArgumentType]
        "subagent" if bad.tool == "subagent" else "explorer": worker,
    }
    store = MemoryStore()
    with ScriptedModel(scripts) as model:
        # With one delegation in all, the good call only works if the bad one was not counted.
        outcome = await run(
            lead_for(bad.tool), "go", model=model, store=store, limits=Limits(delegations=1, calls=1)
        )
    first, second = results(outcome)
    assert not first.ok
    for word in bad.words:
        assert word in first.content
    assert not UGLY.search(first.text), first.text
    assert len(first.text) < 1_000
    first.text.encode()
    assert (second.content, second.ok) == ("done", True)
    events = await events_of(store, outcome)
    assert [e.rejection.kind for e in events if isinstance(e, DelegationRejected)] == [bad.kind]
    assert sum(isinstance(e, RunStarted) for e in events) == 2
    assert model.calls_made == 3 + len(worker)


def test_there_are_enough_of_them() -> None:
    """The table has at least sixty malformed delegations, all different."""
    table = {name_of(bad) + "".join(bad.words) for bad in [*_task(), *_adhoc(), *_named()]}
    assert len(table) >= 60


@pytest.mark.parametrize("name", ["task", "subagent", "subagent_explorer"])
@pytest.mark.parametrize(
    "args",
    ["", "{", "[]", "null", "agent: explorer", '{"agent": "explorer"', BIG],
    ids=lambda v: repr(v)[:30],
)
async def test_arguments_that_are_not_an_object(name: str, args: str) -> None:
    """Arguments that are not a JSON object start nothing and get a short explanation."""
    with ScriptedModel({"lead": [call(name, args), say("ok")]}) as model:
        outcome = await run(lead_for(name), "go", model=model)
    result = results(outcome)[0]
    assert not result.ok
    assert f"{name} are not a JSON object" in result.content
    assert len(result.text) < 1_000
    assert outcome.children == ()
    assert outcome.total_usage.requests == 2


ALIASES: list[tuple[str, dict[str, object]]] = [
    ("task", {"subagent_type": "explorer", "prompt": "go"}),
    ("task", {"agent": "explorer", "task": "go"}),
    ("task", {"agent_name": "explorer", "instructions": "go", "label": "a few words"}),
    ("task", {"agent": "explorer", "subagent_type": "explorer", "prompt": "go", "message": "go"}),
    ("task", {"agent": "explorer", "prompt": "go", "description": None}),
    ("task", {"agent": "explorer", "prompt": "go", "description": "  "}),
    ("subagent_explorer", {"prompt": "go"}),
    ("subagent", {"description": "part", "prompt": "go"}),
    ("subagent", {"label": "part", "task": "go", "tools": ["look"]}),
    (
        "subagent",
        {**OK_ADHOC, "allowed_tools": None, "max_turns": None, "summary_prompt": None, "denied_tools": None},
    ),
    ("subagent", {**OK_ADHOC, "max_turns": 5.0}),
    ("subagent", {**OK_ADHOC, "max_turns": 1}),
    ("subagent", {**OK_ADHOC, "max_turns": 50}),
    ("subagent", {**OK_ADHOC, "allowed_tools": [], "denied_tools": ["subagent"]}),
    ("subagent", {**OK_ADHOC, "allowed_tools": ["look", "look"]}),
    ("subagent", {**OK_ADHOC, "allowed_tools": ["read_artifact"]}),
]


@pytest.mark.parametrize(("name", "args"), ALIASES)
async def test_common_variations_of_arguments_are_accepted(name: str, args: dict[str, object]) -> None:
    """Aliases, null for optional fields, and whole numbers written as 5.0 are valid."""
    worker = [say("done"), wrapped("done")] if name == "subagent" else [say("done")]
    scripts = {
        "lead": [call(name, args), say("ok")],
        "subagent" if name == "subagent" else "explorer": worker,
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(lead_for(name), "go", model=model)
    assert (results(outcome)[0].content, results(outcome)[0].ok) == ("done", True)
    assert next(r for r in model.requests if r.agent != "lead").messages[0].text == "go"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("task", {"agent": "explorer", "prompt": "half \ud800 a pair"}),
        ("subagent", {"label": "part \udfff", "task_prompt": "half \ud800 a pair"}),
        ("subagent_explorer", {"task": "half \ud800 a pair"}),
    ],
)
async def test_broken_text_is_mended_before_anybody_reads_it(name: str, args: dict[str, object]) -> None:
    """A lone surrogate never reaches a child, an event or an outcome: all of it can be written as UTF-8."""
    store = MemoryStore()
    script = [say("done \ud800"), wrapped("done")] if name == "subagent" else [say("done \ud800")]
    scripts = {
        "lead": [call(name, args), say("ok")],
        "subagent" if name == "subagent" else "explorer": script,
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(lead_for(name), "go", model=model, store=store)
    seen = next(r for r in model.requests if r.agent != "lead").messages[0].text
    assert seen == "half \ufffd a pair"
    for message in (*outcome.messages, *outcome.children[0].messages):
        message.text.encode()
    assert all(encode(event) for event in await events_of(store, outcome))


async def test_sixty_bad_calls_in_one_reply() -> None:
    """Many malformed calls in one reply are each answered, and the good one among them works."""
    table = [bad for bad in _task() if bad.tool == "task"]
    asked = [call("task", bad.args) for bad in table]  # pyright: ignore[reportArgumentType]
    scripts = {"lead": [calls(*asked, call("task", dict(OK_TASK))), say("ok")], "explorer": [say("done")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead_for("task"), "go", model=model, limits=Limits(delegations=1))
    assert [m.ok for m in results(outcome)] == [False] * len(table) + [True]
    assert (outcome.status, len(outcome.children)) == (Status.COMPLETED, 1)
    assert model.calls_made == 3


READS: list[tuple[dict[str, object], str]] = [
    ({}, "artifact"),
    ({"artifact": ""}, "artifact"),
    ({"artifact": 3}, "artifact"),
    ({"artifact": None}, "artifact"),
    ({"artifact": "nowhere"}, "nowhere"),
    ({"artifact": "r1/../../etc/passwd"}, "No artifact"),
    ({"artifact": "r1/x", "start": -1}, "start"),
    ({"artifact": "r1/x", "start": "first"}, "start"),
    ({"artifact": "r1/x", "length": 0}, "length"),
    ({"artifact": "r1/x", "length": 20_001}, "length"),
    ({"artifact": "r1/x", "length": 10**30}, "length"),
    ({"artifact": "r1/x", "page": 2}, "page"),
]


@pytest.mark.parametrize(("args", "word"), READS)
async def test_a_malformed_read_of_an_artifact(args: dict[str, object], word: str) -> None:
    """`read_artifact` tells what is wrong with its input like every other tool."""
    with ScriptedModel({"lead": [call("read_artifact", args), say("ok")]}) as model:
        outcome = await run(lead_for("task"), "go", model=model)
    result = results(outcome)[0]
    assert not result.ok
    assert word in result.content
    assert not UGLY.search(result.text), result.text


@pytest.mark.parametrize("args", [None, 3, [], True, ("a",)], ids=repr)
async def test_arguments_of_the_wrong_type_from_an_adapter(args: object) -> None:
    """Arguments that are not even text or an object (a careless adapter) are a result, not a crash."""

    def lead(request: Request) -> Line:
        if len(request.messages) > 1:
            return say("ok")
        broken = Call("a", "task", args)  # pyright: ignore[reportArgumentType]
        return Reply("", (broken,), stop="calls", usage=Usage(1, 1, 1))

    outcome = await run(lead_for("task"), "go", model=ScriptedModel({"lead": lead}))
    assert outcome.text == "ok"
    assert not results(outcome)[0].ok
    assert "not a JSON object" in results(outcome)[0].content
    assert not UGLY.search(results(outcome)[0].text), results(outcome)[0].text
