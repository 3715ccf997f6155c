"""Checks an answer: against the agent's `output`, then with its validators."""

from __future__ import annotations

from typing import cast

from remit.engine.run.hooks import rejected
from remit.engine.run.loop_ending import Ending
from remit.engine.run.state import NOT_ACCEPTED, NOT_IN_FORM, Run
from remit.engine.run.tool_run import LARGE_S, off_loop
from remit.tools.schema import parse_output
from remit.types.outcome import Status
from remit.types.sizes import LARGE

OUTPUT_TRIES = 3
"""How many answers may fail validation."""


async def checked(run: Run, text: str) -> Ending | None:
    """The ending for an answer; None if the model is asked to answer again. Raises Stopped."""
    agent, value, problem, lead = run.agent, None, "", NOT_IN_FORM
    if agent.output is not None:
        value, problem = await _parsed(run, text)
    if not problem and agent.validators:
        lead = NOT_ACCEPTED
        problem, broken = await rejected(run, text if agent.output is None else value)
        if broken:
            return Ending(Status.FAILED, text, broken, error=broken)
    if not problem:
        return Ending(Status.COMPLETED, text, output=value)
    run.tally.tries += 1
    if run.tally.tries >= OUTPUT_TRIES:
        why = f"{run.tally.tries} answers failed validation. {problem}"
        return Ending(Status.FAILED, text, why, error=why)
    run.tell(f"{lead} {problem}\n\nAnswer again.")
    return None


async def _parsed(run: Run, text: str) -> tuple[object, str]:
    """`parse_output`; a long answer is parsed in a thread. Raises Stopped."""
    output = run.agent.output
    if len(text) <= LARGE:
        return parse_output(output, text)
    ended = await off_loop(
        run, run.node.life.phase, "the check of the answer", lambda: parse_output(output, text)
    )
    if ended.error is not None:
        raise ended.error
    if ended.how == "timed_out":
        return None, f"The answer is too long: checking it took more than {LARGE_S:g} s."
    return cast("tuple[object, str]", ended.value)
