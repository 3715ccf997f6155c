"""Example 2: limits apply to a whole tree, and a child that reaches its limit still returns a partial result.

The model is a script. The limits, the clock and the results are real. Change the numbers below and run the
example again: the output follows from them.

    .venv/bin/python examples/02_limits_and_partial_results.py
"""

import asyncio
import textwrap

from remit import Agent, Limits, Outcome, Request, Status, ToolMessage, run, tool
from remit.testing import ScriptedModel, call, calls, say

CHILDREN = 6
REQUESTS = 5
"""Model calls that the lead and all its children may make together."""

SECONDS = 2.0
"""The time limit of one child."""
PLACES = {"the hall": 0.1, "the kitchen": 0.1, "the attic": 30.0}
"""The places that the child searches, and the seconds that each search takes."""


def indented(text: str, by: str = "    ") -> str:
    lines = text.splitlines()
    return "\n".join(textwrap.fill(line, 78, initial_indent=by, subsequent_indent=by) for line in lines)


def results(messages: Request | Outcome) -> list[ToolMessage]:
    """The tool results in a conversation: everything that a parent knows about its children."""
    return [m for m in messages.messages if isinstance(m, ToolMessage)]


# 1. More children than model calls. The lead's first turn is one call, and another is reserved for its answer before
#    any child starts. Each child needs one call, so the children that find none left are rejected.


async def more_children_than_budget() -> None:
    scout = Agent("scout", description="Looks once and reports.")
    lead = Agent("lead", subagents=[scout])
    ask_all = calls(*(call("task", agent="scout", prompt=f"Look at part {n + 1}") for n in range(CHILDREN)))

    def report(request: Request):
        return say(f"{request.messages[0].text}: nothing unusual.")

    def answer(request: Request):
        return say(f"{sum(m.ok for m in results(request))} of {CHILDREN} parts were checked.")

    model = ScriptedModel({"lead": [ask_all, answer], "scout": report})
    outcome = await run(lead, "Look at all parts", model=model, limits=Limits(requests=REQUESTS))

    print(f"1. Children: {CHILDREN}. Model calls for the whole tree: {REQUESTS}")
    print(indented("One is for the lead's first turn, one is reserved for its answer.", "  "))
    for number, result in enumerate(results(outcome), 1):
        print(f"  child {number}: {'answered' if result.ok else 'no answer'}\n{indented(result.content)}")
    print(f"  Started: {len(outcome.children)} of {CHILDREN} children")
    print(f"  Model calls: {outcome.total_usage.requests} of {REQUESTS}")
    print(indented(f"The lead ended {outcome.status}: {outcome.text or outcome.reason}", "  "), end="\n\n")


# 2. A child that runs out of time. The last tenth of its time is reserved for one more turn without tools, in which
#    it reports its result so far. The parent reads this report, marked as partial, and decides what to do.


@tool(tier="observe", describe=lambda args: str(args["place"]))
async def search(place: str) -> str:
    """Look for the key in one place."""
    await asyncio.sleep(PLACES[place])
    return f"no key in {place}"


def play_seeker(request: Request):
    """Searches one place after another; asked to wrap up, it reports what is done and what is not."""
    asked = results(request)
    done = [m.content for m in asked if m.ok]
    if request.tool_choice == "auto" and len(asked) < len(PLACES):
        return call("search", place=[*PLACES][len(asked)])
    missing = ", ".join([*PLACES][len(done) :]) or "nothing"
    return say(f"Done: {', '.join(done) or 'nothing'}. Not finished: {missing}.")


def play_lead(request: Request):
    if not results(request):
        return call("task", agent="seeker", prompt="Find the key")
    stopped = "The seeker was stopped; I continue with its partial result."
    return say("Every place was searched." if results(request)[0].ok else stopped)


async def a_child_that_runs_out_of_time() -> None:
    seeker = Agent("seeker", description="Searches.", tools=[search], limits=Limits(seconds=SECONDS))
    lead = Agent("lead", subagents=[seeker])
    model = ScriptedModel({"lead": play_lead, "seeker": play_seeker})
    outcome = await run(lead, "Where is the key?", model=model)

    print(f"2. A child with {SECONDS:g} s, and {sum(PLACES.values()):g} s of searches")
    (child,) = outcome.children
    print(f"  The seeker ended {child.status} after {child.duration_s:.2f} s.")
    if child.status is Status.TIMED_OUT:
        kept = min(30.0, SECONDS / 10)
        words = f"The last tenth of a run's time, at most 30 s, is reserved for the wrap-up: here {kept:g} s."
        print(indented(f"{words} So its work was stopped at {SECONDS - kept:g} s.", "  "))
    for entry in child.calls:
        print(f"    {entry.name} {entry.context} -> {entry.result}")
    print(f"  The lead reads:\n{indented(results(outcome)[0].content)}")
    print(indented(f"The lead ended {outcome.status}: {outcome.text or outcome.reason}", "  "))


async def main() -> None:
    print("The model is a script: no network, no API key.\n")
    await more_children_than_budget()
    await a_child_that_runs_out_of_time()
    print("\nTry next")
    print(f"  in this file: REQUESTS = {REQUESTS + 4} or SECONDS = {SECONDS / 10:g}")
    print("  .venv/bin/python examples/03_asking_a_person.py")


if __name__ == "__main__":
    asyncio.run(main())
