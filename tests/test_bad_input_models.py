"""What people get wrong in a model of their own: words that name the slip, and a run that ends with them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from remit import Agent, ModelError, Reply, Request, Status, UsageError, run
from remit.testing import fail

# Without a type checker's eye, as most people write.
E: Any = ModelError


class Own:
    """A model that answers with what a function of the request gives; an exception is raised."""

    name = "own"

    def __init__(self, function: Callable[[Request], object]) -> None:
        self.function = function
        self.asked = 0

    async def reply(self, request: Request, emit: object) -> Any:
        self.asked += 1
        said = self.function(request)
        if isinstance(said, BaseException):
            raise said
        return said


# --- Failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "meant"),
    [("ratelimit", "'rate_limit'"), ("Server", "'server'"), ("context_length", "'context'")],
)
def test_a_kind_of_failure_that_is_none(kind: str, meant: str) -> None:
    """A kind that does not exist is refused where the error is made, with the kinds and the near one."""
    with pytest.raises(UsageError) as caught:
        E("slow down", kind=kind)
    assert f"{kind!r}" in str(caught.value)
    assert f"Did you mean {meant}?" in str(caught.value)
    assert "rate_limit, overloaded, server" in str(caught.value)


@pytest.mark.parametrize("kind", [None, 3, [], "", "x" * 10_000], ids=lambda v: repr(v)[:20])
def test_a_kind_that_is_like_no_other(kind: object) -> None:
    """What is near to no kind is refused in few words too."""
    with pytest.raises(UsageError, match="kind must be one of rate_limit") as caught:
        E("slow down", kind=kind)
    assert len(str(caught.value)) < 400


def test_a_step_that_fails_with_no_kind() -> None:
    """A script's `fail` says it when it is written, not when it is played."""
    with pytest.raises(UsageError, match="Did you mean 'rate_limit'"):
        fail("slow down", "ratelimit")  # pyright: ignore[reportArgumentType]


def test_a_failure_can_be_sent_to_another_process() -> None:
    """A copy has everything that was said."""
    copied = pickle.loads(pickle.dumps(ModelError("no", kind="auth", retry_after=3)))
    assert (str(copied), copied.kind, copied.retryable, copied.retry_after) == ("no", "auth", False, 3)


async def test_a_misspelt_kind_is_in_the_outcome() -> None:
    """In a run it is a failed outcome with that sentence; the runs beside it go on."""
    model = Own(lambda _: E("slow down", kind="ratelimit"))
    outcome = await run(Agent("lead"), "go", model=model)
    assert outcome.status is Status.FAILED
    assert "Did you mean 'rate_limit'?" in outcome.reason
    assert "own" in outcome.reason
    assert model.asked == 1


def _set_later(request: Request) -> Exception:
    del request
    error = ModelError("slow down")
    error.kind = "ratelimit"  # pyright: ignore[reportAttributeAccessIssue]
    return error


async def test_a_kind_that_was_set_later_is_tried_again_and_told() -> None:
    """An unknown kind that nobody could refuse counts as `server`: it is tried again, and the outcome says why."""
    model = Own(_set_later)
    outcome = await run(Agent("lead"), "go", model=model)
    assert model.asked == 6
    assert outcome.status is Status.FAILED
    assert "slow down" in outcome.reason
    assert "'ratelimit'" in outcome.reason
    assert "Did you mean 'rate_limit'?" in outcome.reason


class Bare(ModelError):
    """One that never made itself whole."""

    def __init__(self) -> None:
        Exception.__init__(self, "slow down")


async def test_a_failure_without_a_kind_is_the_providers() -> None:
    """One that says nothing of its kind counts as `server`, and there is nothing to be told of."""
    said: list[object] = [Bare(), Reply("done")]
    model = Own(lambda _: said[min(model.asked, 2) - 1])
    outcome = await run(Agent("lead"), "go", model=model)
    assert outcome.text == "done"
