"""Example 6: built-in tools, and a model that needs no API key: survey a folder, part by part.

The offline model is a set of rules, not a language model. It uses the real engine and the real tools: every
number in the output comes from a tool result. Pass the name of a real model to use that instead.

    .venv/bin/python examples/06_survey_a_folder.py [folder] [model]
"""

import asyncio
import sys
import textwrap

from remit import Event, start
from remit.events import RunEnded, RunStarted
from remit.survey import survey


def show(event: Event) -> None:
    """Print the start and the end of each child."""
    if isinstance(event, RunStarted) and event.depth:
        print(f"{'  ' * event.depth}{event.agent} starts: {event.label}")
    elif isinstance(event, RunEnded) and event.depth:
        print(f"{'  ' * event.depth}{event.agent} {event.run} {event.outcome.status}")


async def main() -> None:
    folder, model, *_ = [*sys.argv[1:], *[".", "offline"][len(sys.argv) - 1 :]]
    if model == "offline":
        print("The model is offline: rules, not a language model.\n")
    async with start(survey(), "Survey this folder.", model=model, workspace=folder) as tree:
        async for event in tree.events():
            show(event)
        outcome = await tree.outcome()
    runs, calls = 1 + _count(outcome), outcome.total_usage.requests
    print()
    for line in (outcome.text or outcome.reason).splitlines():
        print("\n".join(textwrap.wrap(line, 78, subsequent_indent="    ") or [""]))
    print(f"\n{outcome.status}: {runs} runs, {calls} model calls")


def _count(outcome) -> int:
    return sum(1 + _count(child) for child in outcome.children)


if __name__ == "__main__":
    asyncio.run(main())
