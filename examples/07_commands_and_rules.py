"""Example 7: commands. Commands that a rule allows run at once, others need approval, and no process is left behind.

The model is a script, and the person is a rule. The commands are real; they run in a temporary folder.

    .venv/bin/python examples/07_commands_and_rules.py
"""

import asyncio
import tempfile

from remit import Agent, ApprovalRequest, ToolMessage, allow, deny, run
from remit.testing import ScriptedModel, call, say

COMMANDS = (
    "echo 'a note' > notes.txt; cat notes.txt",
    "cat notes.txt | wc -w",
    "cat notes.txt && rm notes.txt",
    "sleep 1000 & echo started something",
)
# Every part of a command must be allowed, including files that it writes.
POLICY = [
    "allow terminal(echo *)",
    "allow terminal(cat *)",
    "allow terminal(> *.txt)",
    "allow terminal(wc *)",
]


async def ask(request: ApprovalRequest):
    """A person who denies deletions."""
    command = str(request.args["command"])
    print(f"asked: {command}")
    return deny("keep the notes") if "rm " in command else allow()


async def main() -> None:
    clerk = Agent("clerk", tools=["terminal"])
    model = ScriptedModel([*(call("terminal", command=command) for command in COMMANDS), say("Done.")])
    with tempfile.TemporaryDirectory() as folder:
        outcome = await run(clerk, "Go", model=model, policy=POLICY, approver=ask, workspace=folder)
    results = [message for message in outcome.messages if isinstance(message, ToolMessage)]
    for command, result in zip(COMMANDS, results, strict=True):
        print(f"\n$ {command}")
        for line in result.content.splitlines():
            print(f"  {line}")


if __name__ == "__main__":
    asyncio.run(main())
