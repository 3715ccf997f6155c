"""Two common ways to delegate from code, written with `ctx.delegate` and `ctx.map` alone.

Copy and change them: they use nothing that your own tools and programs cannot use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from remit.agent import Agent
from remit.errors import UsageError
from remit.tools.contexts import CodeContext
from remit.types.outcome import Outcome, Rejection
from remit.types.task_message import Task

Result = Outcome | Rejection

MOST_TOGETHER = 16
"""Answers that `map_reduce` puts into one prompt."""


class Best(NamedTuple):
    """The result of `best_of`."""

    chosen: Result
    """The answer that the judge chose; without a usable verdict, the first candidate that completed, else the first."""
    candidates: list[Result]
    verdict: Result | None
    """The judge's outcome; None if fewer than two candidates completed, so that there was nothing to judge."""


class Reduced(NamedTuple):
    """The result of `map_reduce`."""

    answer: Result
    """The outcome of the last reducing child; if no part completed, the first part."""
    parts: list[Result]


async def best_of(
    ctx: CodeContext, n: int, agent: Agent | str, prompt: Task, *, judge: Agent | str, label: str = ""
) -> Best:
    """Let `n` children do the same task, and let `judge` choose one answer.

    The judge reads the answers that completed, numbered from 1, and must reply with a number: as its `output=int`, or as
    the only number in its text. Raises UsageError for an `n` below 1.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"best_of(n=...) must be a whole number from 1 up, not {n!r}.")
    candidates = await ctx.map(agent, [prompt] * n, label=label)
    good = [one for one in candidates if one.ok]
    if len(good) < 2:
        return Best(good[0] if good else candidates[0], candidates, None)
    question = f"Task:\n{_text(prompt)}\n\n{_numbered(good)}\n\nReply with the number of the best answer, 1 to {len(good)}."
    verdict = await ctx.delegate(judge, question, label="judge")
    number = _choice(verdict)
    chosen = good[number - 1] if 1 <= number <= len(good) else good[0]
    return Best(chosen, candidates, verdict)


async def map_reduce(
    ctx: CodeContext,
    agent: Agent | str,
    prompts: Iterable[Task],
    *,
    reducer: Agent | str,
    task: str,
    together: int = MOST_TOGETHER,
    concurrency: int | None = None,
    label: str = "",
) -> Reduced:
    """Let one child do each prompt, then let `reducer` do `task` with all answers, at most `together` at a time.

    With more answers, the reducer's own answers are reduced again until one is left. Each prompt of the reducer states how
    many answers are missing. Raises UsageError if `prompts` is empty or `together` is below 2.
    """
    items = list(prompts)
    if not items or together < 2:
        raise UsageError("map_reduce() needs at least one prompt, and together=2 or more.")
    level = parts = await ctx.map(agent, items, concurrency=concurrency, label=label)
    while True:
        good = [one for one in level if one.ok]
        if not good:
            return Reduced(level[0], parts)
        missing = (
            f"\n\n{len(level) - len(good)} of {len(level)} answers are missing."
            if len(good) < len(level)
            else ""
        )
        groups = [good[at : at + together] for at in range(0, len(good), together)]
        questions = [f"{task}{missing}\n\n{_numbered(group)}" for group in groups]
        level = await ctx.map(reducer, questions, concurrency=concurrency, label="reduce")
        if len(level) == 1:
            return Reduced(level[0], parts)


def _numbered(results: Sequence[Result]) -> str:
    """The answers in tags. Answers are data from models: a judge should not follow instructions inside them."""
    return "\n\n".join(f"<answer number={n}>\n{one.text}\n</answer>" for n, one in enumerate(results, 1))


def _text(prompt: Task) -> str:
    return (
        prompt
        if isinstance(prompt, str)
        else "\n".join(getattr(part, "text", "(attachment)") for part in prompt)
    )


def _choice(verdict: Result) -> int:
    """The number that the judge named; 0 if the judge did not complete or did not name exactly one number."""
    if not isinstance(verdict, Outcome) or not verdict.ok:
        return 0
    if isinstance(verdict.output, int):
        return verdict.output
    numbers = set(re.findall(r"\d{1,9}", verdict.text))
    return int(numbers.pop()) if len(numbers) == 1 else 0
