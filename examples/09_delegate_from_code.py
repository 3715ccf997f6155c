"""Ninth lesson: code that delegates. A program maps over parts, reduces the answers, and lets a judge choose a title.

The model here is a script. The children, the limits, the journal and the resume are real.

    .venv/bin/python examples/09_delegate_from_code.py
"""

import asyncio
from itertools import count

from remit import Agent, Limits, ProgramContext, Request, resume, run
from remit.patterns import best_of, map_reduce
from remit.stores import open_store
from remit.testing import ScriptedModel, say

PARTS = ["src", "tests", "docs"]

reader = Agent("reader", description="Reads one part.")
writer = Agent("writer", description="Joins findings into one report.")
titler = Agent("titler", description="Proposes a title.")
judge = Agent("judge", description="Chooses the best answer.", output=int)

lives = count(1)


async def survey(ctx: ProgramContext) -> str:
    """The program: ordinary code. Each delegation is a child of this run, under the same limits."""
    life = next(lives)
    found = await map_reduce(
        ctx, reader, [f"Read {part}" for part in PARTS], reducer=writer, task="Join these findings."
    )
    # Recorded: a resumed program reads the result from the journal and does not call the function again.
    words = await ctx.step("count words", lambda: len(found.answer.text.split()))
    if life == 1:
        raise RuntimeError("a bug after the expensive part")
    best = await best_of(ctx, 3, titler, f"Title for: {found.answer.text}", judge=judge)
    print(f"  left: {ctx.left.requests} model calls, {ctx.left.delegations} delegations")
    return f"{best.chosen.text} ({words} words, {len(best.candidates)} titles proposed)"


surveyor = Agent("surveyor", program=survey, subagents=[reader, writer, titler, judge])


def scripted() -> ScriptedModel:
    titles = iter(["A survey", "Three parts, no surprises", "Report"])

    def read(request: Request):
        return say(f"{request.messages[0].text.split()[1]} is tidy.")

    def join(request: Request):
        lines = request.messages[0].text.splitlines()
        return say(" ".join(line for line in lines if line.endswith("tidy.")))

    return ScriptedModel(
        {"reader": read, "writer": join, "titler": lambda _: say(next(titles)), "judge": lambda _: say("2")}
    )


async def main() -> None:
    print("The model here is a script: no network, no key.\n")
    store, limits = open_store("memory://"), Limits(requests=20)
    print("First life: the program maps, reduces, records a step, and then raises.")
    first = await run(surveyor, "Survey", model=scripted(), limits=limits, store=store)
    print(f"  {first.status}: {first.reason}")
    print(f"  {len(first.children)} children, {first.total_usage.requests} model calls\n")

    print("Second life: the bug is fixed. Recorded children are not paid for again.")
    model = scripted()
    outcome = await resume(store, first.run_id, agent=surveyor, model=model)
    print(f"  {outcome.status}: {outcome.text}")
    print(f"  {len(outcome.children)} children in both lives, {outcome.total_usage.requests} model calls")
    for child in outcome.children:
        print(f"    {child.agent}: {child.text}")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
