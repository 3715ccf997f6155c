"""The built-in tools in agents: presets, tiers, schemas, and their results in a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workbench import Bench

import remit.tools
from remit import Agent, ToolMessage, allow, run
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import ApprovalRequest, Decision

READ_ONLY = ["read", "ls", "glob", "grep"]
CHANGING = ["write", "edit", "terminal", "fetch"]


def test_presets() -> None:
    """read_only() has the tools that only read, all() also those that change things, by tier."""
    assert [tool.name for tool in remit.tools.read_only()] == READ_ONLY
    assert [tool.name for tool in remit.tools.all()] == [*READ_ONLY, *CHANGING]
    tiers = {name: str(tool.tier) for name, tool in remit.tools.built_in().items()}
    assert tiers == {**dict.fromkeys(READ_ONLY, "observe"), **dict.fromkeys(CHANGING, "confirm")}


def test_one_tool_each() -> None:
    """Every call returns the same tool objects, so that lists of tools can be compared and cached."""
    assert remit.tools.all() == remit.tools.all()
    assert remit.tools.built_in()["read"] is remit.tools.read_only()[0]


@pytest.mark.parametrize("name", remit.tools.built_in())
def test_every_argument_is_described(name: str) -> None:
    """Each tool and each of its arguments has a description; the context is not an argument."""
    spec = remit.tools.built_in()[name].spec
    assert spec.description
    properties = spec.parameters["properties"]
    assert isinstance(properties, dict)
    assert "ctx" not in properties
    assert [key for key, value in properties.items() if not value.get("description")] == []


def test_importing_the_tools_is_light() -> None:
    """Importing `remit.tools` and listing the tools imports no heavy package."""
    code = "import sys, remit.tools; remit.tools.all(); print(*{'pydantic', 'jsonschema', 'httpx', 'httpx2', 'httpcore2', 'idna', 'mcp'} & set(sys.modules))"
    env = {"PYTHONPATH": str(Path(remit.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.real_time
async def test_a_run_works_in_its_workspace(bench: Bench) -> None:
    """A run with the reading tools sees its workspace, in several calls at once, and nothing outside."""
    bench.file("src/a.py", "def f(): ...\n")
    script = [
        calls(
            call("ls", depth=2), call("glob", pattern="**/*.py"), call("grep", pattern="def", mode="files")
        ),
        calls(call("read", path="src/a.py"), call("read", path="../outside/secret.txt")),
        say("done"),
    ]
    agent = Agent("explorer", tools=remit.tools.read_only())
    outcome = await run(agent, "look", model=ScriptedModel({"explorer": script}), workspace=bench.root)
    assert outcome.ok
    said = [m.content for m in outcome.messages if isinstance(m, ToolMessage)]
    assert said == [
        "src/\n  a.py  13 bytes\n(.: 1 folder, 1 file.)",
        "src/a.py",
        "src/a.py",
        "     1\tdef f(): ...",
        "../outside/secret.txt leads outside the workspace. Use a path inside it.",
    ]
    assert [entry.result for entry in outcome.calls][:4] == ["2 files", "1 file", "1 match", "1 line"]


@pytest.mark.real_time
async def test_tools_can_be_named(bench: Bench) -> None:
    """An agent may list built-in tools by name."""
    bench.file("a.txt", "hi\n")
    model = ScriptedModel({"explorer": [call("read", path="a.txt"), say("done")]})
    outcome = await run(Agent("explorer", tools=["read", "grep"]), "look", model=model, workspace=bench.root)
    assert outcome.ok
    assert [(entry.name, entry.result) for entry in outcome.calls] == [("read", "1 line")]


@pytest.mark.real_time
async def test_changes_ask_first(bench: Bench) -> None:
    """A write happens if a person allows it, and not if there is no approver."""
    asked: list[str] = []

    async def approve(request: ApprovalRequest) -> Decision:
        asked.append(request.tool)
        return allow()

    agent = Agent("writer", tools=remit.tools.all())
    for approver, made in ((None, False), (approve, True)):
        model = ScriptedModel({"writer": [call("write", path="a.txt", content="hi"), say("done")]})
        await run(agent, "write", model=model, workspace=bench.root, approver=approver)
        assert (bench.root / "a.txt").exists() is made
    assert asked == ["write"]


@pytest.mark.real_time
async def test_two_children_do_not_overwrite_each_other(bench: Bench) -> None:
    """If two children read a file and then both edit it, one edit is made and the other is refused."""
    bench.file("a.txt", "one\ntwo\n")
    child = [
        call("read", path="a.txt"),
        call("edit", path="a.txt", old_text="one", new_text="1"),
        say("tried"),
    ]
    both = calls(call("task", agent="worker", prompt="p"), call("task", agent="worker", prompt="q"))
    worker = Agent("worker", tools=remit.tools.all())

    async def approve(request: ApprovalRequest) -> Decision:
        return allow()

    outcome = await run(
        Agent("lead", subagents=[worker]),
        "go",
        model=ScriptedModel({"lead": [both, say("done")], "worker": child}),
        workspace=bench.root,
        approver=approve,
    )
    assert outcome.ok
    edits = sorted(entry.success for kid in outcome.children for entry in kid.calls if entry.name == "edit")
    assert edits == [False, True]
    assert (bench.root / "a.txt").read_text() == "1\ntwo\n"
