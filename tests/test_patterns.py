"""`best_of` and `map_reduce`: delegation patterns on top of `ctx.delegate` and `ctx.map`."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from codebench import WORKER, lead_of, play, program_of, results, script, tool_of

from remit import Agent, Limits, ProgramContext, Request, ToolContext, UsageError
from remit.patterns import Best, Reduced, best_of, map_reduce
from remit.testing import fail, say
from remit.testing.scripted import Line, Script

JUDGE = Agent("judge", description="Judges.")
TYPED = Agent("judge", description="Judges.", output=int)


async def best(judge: Script, worker: Script, n: int = 3, who: Agent = JUDGE, **limits: Any) -> Best:
    kept: list[Best] = []

    async def work(ctx: ProgramContext) -> str:
        kept.append(await best_of(ctx, n, WORKER, "Write", judge=who))
        return kept[0].chosen.text or "nothing"

    await play(program_of(work), script(worker, judge=judge), Limits(concurrency=1, **limits))
    return kept[0]


def numbered() -> Script:
    numbers = count(1)
    return lambda _: say(f"draft {next(numbers)}")


@pytest.mark.parametrize(("who", "verdict"), [(JUDGE, "Number 2 is best."), (TYPED, "2")])
async def test_the_judge_chooses_one_of_n_answers(who: Agent, verdict: str) -> None:
    """`best_of` starts n children with the same prompt and returns the answer whose number the judge replies with."""
    asked: list[str] = []

    def judge(request: Request) -> Line:
        asked.append(request.messages[0].text)
        return say(verdict)

    found = await best(judge, numbered(), who=who)
    assert (found.chosen.text, len(found.candidates)) == ("draft 2", 3)
    assert all(f"<answer number={n}>\ndraft {n}\n</answer>" in asked[0] for n in (1, 2, 3))


@pytest.mark.parametrize("verdict", ["7", "0", "none", "1 or 2", "-"])
async def test_a_verdict_that_names_no_answer_keeps_the_first(verdict: str) -> None:
    """Without a usable number, the first answer that completed is chosen, and the verdict is there to read."""
    found = await best(lambda _: say(verdict), numbered())
    assert found.chosen.text == "draft 1"
    assert found.verdict is not None
    assert found.verdict.text == verdict


async def test_a_judge_that_fails_keeps_the_first() -> None:
    """A judge that fails loses no answer."""
    found = await best(lambda _: fail("no", kind="auth"), numbered())
    assert found.chosen.text == "draft 1"
    assert found.verdict is not None
    assert not found.verdict.ok


async def test_one_answer_needs_no_judge() -> None:
    """With fewer than two completed answers the judge is not asked; with none, the first failure is returned."""
    numbers = count(1)
    found = await best(
        lambda _: say("1"), lambda _: say("ok") if next(numbers) == 2 else fail("no", kind="auth")
    )
    assert (found.chosen.text, found.verdict) == ("ok", None)
    failed = await best(lambda _: say("1"), lambda _: fail("no", kind="auth"))
    assert (failed.chosen.ok, failed.verdict) == (False, None)


async def test_a_budget_that_ends_early_still_gives_an_answer() -> None:
    """Under `requests=2`, two candidates answer, the third and the judge do not, and an answer is still chosen."""
    found = await best(lambda _: say("2"), numbered(), requests=2)
    assert found.chosen.text == "draft 1"
    assert [one.ok for one in found.candidates] == [True, True, False]


async def reduced(parts: int, reducer: Script, worker: Script, together: int = 16) -> Reduced:
    kept: list[Reduced] = []

    async def work(ctx: ToolContext) -> str:
        prompts = [f"part {n}" for n in range(parts)]
        kept.append(
            await map_reduce(
                ctx, WORKER, prompts, reducer=Agent("reducer"), task="Add up.", together=together
            )
        )
        return kept[0].answer.text

    played = await play(lead_of(tool_of(work)), script(worker, reducer=reducer))
    assert results(played.outcome) == [kept[0].answer.text]
    return kept[0]


def add_up(request: Request) -> Line:
    """A reducer that adds the numbers in the answers."""
    lines = request.messages[0].text.splitlines()
    return say(str(sum(int(line) for line in lines if line.isdigit())))


@pytest.mark.parametrize("together", [2, 3, 16])
async def test_answers_are_reduced_to_one(together: int) -> None:
    """`map_reduce` reduces every answer exactly once, in as many rounds as `together` needs."""
    found = await reduced(
        20, add_up, lambda request: say(request.messages[0].text.split()[1]), together=together
    )
    assert (found.answer.text, len(found.parts)) == (str(sum(range(20))), 20)


async def test_the_reducer_reads_how_many_answers_are_missing() -> None:
    """A part that failed is not passed on, and the reducer's prompt says how many are missing."""
    asked: list[str] = []

    def reducer(request: Request) -> Line:
        asked.append(request.messages[0].text)
        return say("done")

    def worker(request: Request) -> Line:
        return fail("no", kind="auth") if request.messages[0].text == "part 1" else say("ok")

    found = await reduced(3, reducer, worker)
    assert "1 of 3 answers are missing." in asked[0]
    assert [one.ok for one in found.parts] == [True, False, True]


async def test_no_answers_start_no_reducer() -> None:
    """If every part fails, `answer` is the first part, and no reducer starts."""
    found = await reduced(2, lambda _: say("never"), lambda _: fail("no", kind="auth"))
    assert found.answer is found.parts[0]


async def test_mistakes_raise_before_anything_starts() -> None:
    """A wrong n, no prompts and a `together` that cannot reduce are mistakes in code: UsageError."""

    async def work(ctx: ProgramContext) -> str:
        for wrong in (0, True, "2"):
            with pytest.raises(UsageError, match="whole number"):
                await best_of(ctx, wrong, WORKER, "go", judge=JUDGE)  # pyright: ignore[reportArgumentType]
        for prompts, together in (([], 2), (["a"], 1)):
            with pytest.raises(UsageError, match="at least one prompt"):
                await map_reduce(ctx, WORKER, prompts, reducer=JUDGE, task="Join.", together=together)
        return "done"

    played = await play(program_of(work), script())
    assert (played.outcome.text, played.started) == ("done", [])
