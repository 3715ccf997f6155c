"""What the runtime says to a parent about a child: what is left, and when to stop."""

from __future__ import annotations

import pytest

from remit import Agent, Limits, Price, ToolMessage, run
from remit.testing import ScriptedModel, call, say


async def note_of(limits: Limits) -> str:
    """What a parent reads after its child."""
    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="p"), say("done")], "kid": [say("ok")]})
    model.price = Price(1.0, 1.0)
    outcome = await run(Agent("lead", model=model, subagents=[Agent("kid")]), "go", limits=limits)
    [result] = [m for m in outcome.messages if isinstance(m, ToolMessage)]
    return result.note.partition("Left: ")[2]


async def test_large_remainders_are_not_counted() -> None:
    """Remainders too large to plan with cost the parent no tokens to read."""
    limits = Limits(requests=10_003, tokens=20_000_000, usd=1_500.0, calls=50_000, delegations=10_002)
    left = await note_of(limits)
    assert left.startswith("depth 3, delegations over 10,000, time")
    assert not [word for word in ("requests", "tokens", "calls", "$") if word in left]


async def test_what_is_not_plenty_is_counted_out() -> None:
    left = await note_of(Limits(requests=9_000, tokens=9_000_000, usd=900.0, calls=900, delegations=9_000))
    assert "delegations 8999, requests 8998, tokens 8,999,9" in left
    assert "calls 899, $900.0000, time" in left


@pytest.mark.parametrize("limits", [Limits(tokens=500), Limits(usd=0.0005), Limits(requests=2)])
async def test_with_only_the_last_word_left_the_parent_is_told_to_answer(limits: Limits) -> None:
    """If only the last word is affordable, in requests, tokens or money, the note tells the model to answer now."""
    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="p"), say("done")]})
    model.price = Price(1.0, 1.0)
    outcome = await run(Agent("lead", model=model, subagents=[Agent("kid")]), "go", limits=limits)
    [result] = [m for m in outcome.messages if isinstance(m, ToolMessage)]
    assert "budget exhausted" in result.content
    assert result.note.endswith("This is your last reply: answer now."), result.note
    assert outcome.text == "done"
