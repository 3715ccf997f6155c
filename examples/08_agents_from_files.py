"""Example 8: agents from files in the format of other programs, and the warnings for a file with mistakes.

The model is a script. The files are written to a temporary folder.

    .venv/bin/python examples/08_agents_from_files.py
"""

import asyncio
import tempfile
import textwrap
from pathlib import Path

from remit import run
from remit.definitions import build, check, load
from remit.testing import ScriptedModel, call, say

LEAD = """---
name: lead
description: Puts things together
tools: Read, Task
subagents: reader
---
Send the reader, then answer.
"""
READER = """---
name: reader
description: Use this agent for reading: it reads, and says what it saw
tools: Read, Grep, WebSearch
temprature: 0.2
---
Read what you are asked to read.
"""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "lead.md").write_text(LEAD)
        (place / "reader.md").write_text(READER)
        (place / "notes.txt").write_text("remember the milk\n")
        loaded = load(place)
        for name, definition in loaded.agents.items():
            print(f"{name}: {definition.description}")
        print("\nProblems in these files:")
        for problem in check(loaded):
            words = str(problem).removeprefix(f"{folder}/")
            print(textwrap.fill(words, 78, initial_indent="- ", subsequent_indent="  "))
        lead = build(loaded.agents["lead"], loaded)
        print("\nlead's children:", ", ".join(child.name for child in lead.subagents))
        model = ScriptedModel(
            {
                "lead": [call("task", agent="reader", prompt="Read notes.txt"), say("It is about milk.")],
                "reader": [call("read", path="notes.txt"), say("It says: remember the milk.")],
            }
        )
        outcome = await run(lead, "What is in the notes?", model=model, workspace=folder)
    print(f"{outcome.status}: {outcome.text}")
    print(f"reader {outcome.children[0].status}: {outcome.children[0].text}")


if __name__ == "__main__":
    asyncio.run(main())
