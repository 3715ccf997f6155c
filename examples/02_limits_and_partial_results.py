"""Second lesson: limits hold for a whole tree, and what a child had is not lost when one ends it.

The model here is a script. The limits, the clock and the results are real.

    python examples/02_limits_and_partial_results.py
"""

import asyncio
import textwrap

from remit import Agent, Limits, Outcome, Request, ToolMessage, run, tool
from remit.testing import ScriptedModel, call, calls, say, wrapped


def indented(text: str) -> str:
    return "\n".join(
        textwrap.fill(line, 78, initial_indent="    ", subsequent_indent="    ") for line in text.splitlines()
    )


def read_by_the_lead(outcome: Outcome) -> list[ToolMessage]:
    """The results in the lead's conversation: all that it knows of its children."""
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


# 1. Six children and five model calls. The lead's first turn is one call; another is kept back for its answer
#    before any child may start. That leaves three, so three children work and three are turned away.


async def more_children_than_budget() -> None:
    scout = Agent("scout", description="Looks once and reports.")
    lead = Agent("lead", subagents=[scout])
    ask_six = calls(*(call("task", agent="scout", prompt=f"Look at part {n}") for n in range(1, 7)))

    def report(request: Request):
        return say(f"{request.messages[0].text}: nothing unusual.")

    model = ScriptedModel({"lead": [ask_six, say("Three of six parts are looked at.")], "scout": report})
    outcome = await run(lead, "Look at all six parts", model=model, limits=Limits(requests=5))

    print("1. Six children, five model calls for the whole tree")
    for number, result in enumerate(read_by_the_lead(outcome), 1):
        print(f"  child {number}: {'answered' if result.ok else 'not started'}\n{indented(result.content)}")
    print(f"  The lead {outcome.status}: {outcome.text}")
    print(f"  Model calls: {outcome.total_usage.requests} of 5\n")


# 2. A child with two seconds. The last tenth of its time is kept for one more turn without tools, in which it
#    says what it has. The parent reads that, marked as not finished, and decides what to do with it.


@tool(tier="observe")
async def search(place: str) -> str:
    """Look for the key in one place."""
    await asyncio.sleep(30 if place == "the attic" else 0.1)
    return f"no key in {place}"


async def a_child_that_runs_out_of_time() -> None:
    seeker = Agent("seeker", description="Searches.", tools=[search], limits=Limits(seconds=2))
    lead = Agent("lead", subagents=[seeker])
    model = ScriptedModel(
        {
            "lead": [
                call("task", agent="seeker", prompt="Find the key"),
                say("Not downstairs; try the attic."),
            ],
            "seeker": [
                call("search", place="the hall"),
                call("search", place="the kitchen"),
                call("search", place="the attic"),
                wrapped("Not in the hall, not in the kitchen. The attic is not finished."),
            ],
        }
    )
    outcome = await run(lead, "Where is the key?", model=model)

    print("2. A child with two seconds, and a search that takes thirty")
    (seeker_outcome,) = outcome.children
    print(f"  The seeker ended {seeker_outcome.status} after {seeker_outcome.duration_s:.1f} s.")
    for entry in seeker_outcome.calls:
        print(f"    {entry.name} -> {entry.result}")
    print(f"  The lead reads:\n{indented(read_by_the_lead(outcome)[0].content)}")
    print(f"  The lead {outcome.status}: {outcome.text}")


async def main() -> None:
    print("The model here is a script: no network, no key.\n")
    await more_children_than_budget()
    await a_child_that_runs_out_of_time()
    print("\nTry next: requests=9 above, or python examples/03_asking_a_person.py")


if __name__ == "__main__":
    asyncio.run(main())
