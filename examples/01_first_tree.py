"""Example 1: a lead delegates to three explorers in parallel, and one of them delegates to a reader.

The model is a script that replies after a short delay, so no network and no API key are needed. Everything else
is real: the tree, the tools (they read the installed remit package), the limits and the live events.

    .venv/bin/python examples/01_first_tree.py
"""

import asyncio
import textwrap
from pathlib import Path

import remit
from remit import Agent, Event, Limits, Request, ToolMessage, start, tool
from remit.events import CallEnded, RunEnded, RunStarted
from remit.testing import ScriptedModel, call, calls, say

PACKAGE = Path(remit.__file__).parent


# 1. Tools are plain functions. These tools only read, so they need no approval.


@tool(tier="observe")
def grep(pattern: str) -> str:
    """The files of the remit package that contain a text."""
    files = sorted(PACKAGE.rglob("*.py"))
    return "\n".join(f.relative_to(PACKAGE).as_posix() for f in files if pattern in f.read_text("utf-8"))


@tool(tier="observe")
def read(path: str) -> str:
    """The first line of a file of the remit package: what the file is for."""
    return (PACKAGE / path).read_text("utf-8").partition("\n")[0].strip('"')


# 2. An agent is a description: its tools, and the agents that it may delegate to.

reader = Agent("reader", description="Reads one file and says what it is for.", tools=[read])
explorer = Agent("explorer", description="Finds things in the code.", tools=[grep], subagents=[reader])
lead = Agent("lead", instructions="Send explorers, then answer.", subagents=[explorer])


# 3. The script: the model's replies for each agent. Pass a real model to `start` in the same way.


def results(request: Request) -> list[str]:
    """The tool results so far in this run's conversation."""
    return [m.content for m in request.messages if isinstance(m, ToolMessage)]


def play_explorer(request: Request):
    """Plays all three explorers: the reply depends on the task and on the results so far."""
    wanted = request.messages[0].text.removeprefix("Where is ").rstrip("?")
    found = results(request)
    if not found:
        return call("grep", pattern=f"class {wanted}", delay=0.3)
    if wanted == "Phase" and len(found) == 1:
        return call("task", agent="reader", prompt=found[0], delay=0.3)
    return say(f"{wanted} is in {found[0]}." + "".join(f" It says: {text}" for text in found[1:]), delay=0.4)


model = ScriptedModel(
    {
        "lead": [
            calls(
                call("task", agent="explorer", prompt="Where is Account?", description="limits"),
                call("task", agent="explorer", prompt="Where is Phase?", description="stopping"),
                call("task", agent="explorer", prompt="Where is Stream?", description="events"),
                delay=0.3,
            ),
            lambda request: say("\n".join(results(request)), delay=0.3),
        ],
        "explorer": play_explorer,
        "reader": [
            lambda request: call("read", path=request.messages[0].text, delay=0.3),
            lambda request: say(results(request)[0], delay=0.2),
        ],
    }
)


# 4. Live events arrive from every depth, and each names its run.

names: dict[str, str] = {}


def show(event: Event, began: float) -> None:
    """One line per event that matters, indented by depth."""
    if isinstance(event, RunStarted):
        names[event.run] = f"{event.agent} ({event.label})" if event.label else event.agent
        words = f"starts: {event.task.text}"
    elif isinstance(event, CallEnded) and event.tool in ("grep", "read"):
        words = f"{event.tool} {event.context} -> {event.summary}"
    elif isinstance(event, RunEnded):
        words = f"{event.outcome.status}, {event.outcome.usage.tokens} tokens"
    else:
        return
    line = f"{event.at - began:4.1f} s  {'    ' * event.depth}{names[event.run]}  {words}"
    print(line if len(line) <= 79 else f"{line[:76]}...", flush=True)


async def main() -> None:
    print("One lead, three parallel explorers, and a reader below one of them.")
    print("The model is a script: no network, no API key.\n")
    began = 0.0
    limits = Limits(depth=2, requests=20, seconds=30)
    async with start(lead, "Where do limits, stopping and events live?", model=model, limits=limits) as tree:
        async for event in tree.events():
            began = began or event.at
            show(event, began)
        outcome = await tree.outcome()

    print(f"\nThe answer ({outcome.status}):")
    for line in outcome.text.splitlines():
        print(textwrap.fill(line, 78, initial_indent="  ", subsequent_indent="    "))
    total = outcome.total_usage
    print(f"\nIn total: {len(names)} runs, {total.requests} model calls, {total.tokens} tokens;", end=" ")
    print(f"the lead alone: {outcome.usage.requests} calls.")
    print("\nTry next")
    print("  in this file: set requests=7 or depth=1, and see which agents are refused")
    print("  .venv/bin/python examples/02_limits_and_partial_results.py")
    print("  .venv/bin/python examples/03_asking_a_person.py")


if __name__ == "__main__":
    asyncio.run(main())
