"""Fifth lesson: a process is killed in the middle of a tree, and another one goes on from its journal.

This file starts itself as a child process, lets it be killed (SIGKILL: nothing can be cleaned up), and
resumes. The model is a function of the conversation, as a real one is, and says when it is asked.

    .venv/bin/python examples/05_killed_and_resumed.py
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from remit import Agent, AssistantMessage, Call, Reply, Request, resume, run, tool
from remit.stores.sqlite import SqliteStore


@tool(tier="observe")
def count(word: str) -> int:
    """Count a word in the archive."""
    print(f"    the tool counts {word!r}", flush=True)
    return len(word) * 7


@tool  # Changes things, so it is on disk that it was begun before it begins.
def publish(text: str) -> str:
    """Publish a text."""
    print(f"    the tool publishes {text!r}", flush=True)
    if os.environ.get("DIE_HERE"):
        os.kill(os.getpid(), 9)
    return "published"


counter = Agent("counter", description="Counts words.", tools=[count])
lead = Agent("lead", subagents=[counter], tools=[publish])


class Rules:
    """Stands in for a model: what it says depends on the agent and on how far the conversation is."""

    name = "rules"

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit  # It has nothing to stream.
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        print(f"  the model is asked by {request.agent}, turn {turn + 1}", flush=True)
        if request.agent == "counter" and turn == 0:
            return Reply(calls=(Call("1", "count", {"word": "remit"}),), stop="calls")
        if request.agent == "counter":
            return Reply("35")
        if turn == 0:
            return Reply(calls=(Call("1", "task", {"agent": "counter", "prompt": "Count"}),), stop="calls")
        if turn == 1:
            return Reply(calls=(Call("1", "publish", {"text": "35 words"}),), stop="calls")
        return Reply(f"Counted. Publishing: {request.messages[-1].text.split('.')[0]}.")


async def first_life(file: str) -> None:
    await run(lead, "Count and publish", model=Rules(), store=f"sqlite:///{file}", policy=["allow publish"])


async def second_life(file: str) -> None:
    store = SqliteStore(file)
    (tree,) = await store.trees()
    print(f"\nThe journal has the run {tree.root}: {tree.events} events, and nobody runs it.")
    outcome = await resume(store, tree.root, agent=lead, model=Rules(), policy=["allow publish"])
    await store.close()
    print(f"{outcome.status}: {outcome.text}")
    print(f"{outcome.total_usage.requests} model calls in both lives together.")


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(first_life(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "runs.db"))
        print("A process runs the tree:")
        command = [sys.executable, __file__, file]
        died = subprocess.run(command, env={**os.environ, "DIE_HERE": "1"}, check=False).returncode
        print(f"It was killed (exit code {died}), in the middle of a call that changes things.")
        asyncio.run(second_life(file))


if __name__ == "__main__":
    main()
