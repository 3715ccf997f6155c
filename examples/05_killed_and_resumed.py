"""Example 5: a process is killed in the middle of a tree, and another process resumes the tree from its journal.

This file starts itself as a child process, which is killed by SIGKILL and cannot clean up, and then resumes the
run. The model replies depending on the conversation, like a real model, and prints when it is called.

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


@tool  # Changes things, so remit records the start of a call on disk before it runs.
def publish(text: str) -> str:
    """Publish a text."""
    print(f"    the tool publishes {text!r}", flush=True)
    if os.environ.get("DIE_HERE"):
        os.kill(os.getpid(), 9)
    return "published"


counter = Agent("counter", description="Counts words.", tools=[count])
lead = Agent("lead", subagents=[counter], tools=[publish])


class Rules:
    """A fake model: its reply depends on the agent and on the number of turns."""

    name = "rules"

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit  # It has nothing to stream.
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        print(f"  model call for {request.agent}, turn {turn + 1}", flush=True)
        if request.agent == "counter" and turn == 0:
            return Reply(calls=(Call("1", "count", {"word": "remit"}),), stop="calls")
        if request.agent == "counter":
            return Reply("35")
        if turn == 0:
            return Reply(calls=(Call("1", "task", {"agent": "counter", "prompt": "Count"}),), stop="calls")
        if turn == 1:
            return Reply(calls=(Call("1", "publish", {"text": "35 words"}),), stop="calls")
        return Reply(f"Counted. Publishing: {request.messages[-1].text.split('.')[0]}.")


async def first_process(file: str) -> None:
    await run(lead, "Count and publish", model=Rules(), store=f"sqlite:///{file}", policy=["allow publish"])


async def second_process(file: str) -> None:
    store = SqliteStore(file)
    (tree,) = await store.trees()
    print(f"\nThe journal has the run {tree.root}: {tree.events} events, and no process runs it.")
    outcome = await resume(store, tree.root, agent=lead, model=Rules(), policy=["allow publish"])
    await store.close()
    print(f"{outcome.status}: {outcome.text}")
    print(f"{outcome.total_usage.requests} model calls in both processes together.")


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(first_process(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "runs.db"))
        print("A process runs the tree:")
        command = [sys.executable, __file__, file]
        died = subprocess.run(command, env={**os.environ, "DIE_HERE": "1"}, check=False).returncode
        print(f"It was killed (exit code {died}), in the middle of a call that changes things.")
        asyncio.run(second_process(file))


if __name__ == "__main__":
    main()
