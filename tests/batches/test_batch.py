"""Batches in one process: one outcome per row, one cap over all trees, retries, cancel and resume."""

from __future__ import annotations

import asyncio

import pytest

import remit.remote as remote
from remit import (
    Agent,
    Limits,
    ModelError,
    Outcome,
    Price,
    Rejection,
    Reply,
    Request,
    TreeOwned,
    Usage,
    UsageError,
    batch,
)
from remit.batches.records import Item
from remit.stores.memory import MemoryStore

LEAD = Agent("lead")


class Counting:
    """Counts requests per row. Fails or waits as it is told."""

    name = "counting"
    price = Price(input=1.0, output=1.0)

    def __init__(self, *, seconds: float = 0.0, fails: dict[str, int] | None = None) -> None:
        self.seconds = seconds
        self.fails = dict(fails or {})
        self.asked: list[str] = []
        self.most = self.now = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        task = request.messages[0].text
        self.asked.append(task)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.now -= 1
        if self.fails.get(task, 0) > 0:
            self.fails[task] -= 1
            raise ModelError("no", kind="server")
        return Reply(f"done {task}", usage=Usage(1, 10, 5))


async def collect(job: object) -> list[Item[str]]:
    return [item async for item in job.outcomes()]  # pyright: ignore[reportAttributeAccessIssue] - a Batch


ROWS = [f"row {n}" for n in range(1, 21)]


async def test_every_row_has_one_outcome() -> None:
    """Each row runs in a tree of its own, with at most `concurrency` at once, and is delivered once."""
    model = Counting(seconds=1)
    async with batch(LEAD, ROWS, task=lambda row: f"Review {row}", model=model, concurrency=4) as job:
        items = await collect(job)
        outcome = await job.outcome()
    assert sorted(item.number for item in items) == list(range(1, 21))
    assert {item.outcome.text for item in items} == {f"done Review {row}" for row in ROWS}
    assert all(item.row == ROWS[item.number - 1] for item in items)
    assert (len(model.asked), model.most, outcome.status) == (20, 4, "completed")
    assert job.summary.by_status == {"completed": 20}
    assert str(job.progress).startswith("20/20 rows, 20 ok, 0 running")


async def test_the_total_is_never_exceeded() -> None:
    """`total` caps all trees together: rows beyond it do not run and say why, and the batch is not completed."""
    model, store = Counting(seconds=1), MemoryStore()
    async with batch(
        LEAD, ROWS, model=model, store=store, id="b", limits=Limits(requests=3), total=Limits(requests=7)
    ) as job:
        items = await collect(job)
        outcome = await job.outcome()
    # A tree starts only if all of its three requests fit: the sixth would need three of two.
    assert len(model.asked) == 5
    assert sum(isinstance(item.outcome, Outcome) for item in items) == 5
    left = [item.outcome for item in items if isinstance(item.outcome, Rejection)]
    assert len(left) == 15
    assert left[0].message == "request limit reached: 5 of 7 used or reserved, 3 needed (set on the batch)"
    assert outcome.status == "failed"
    assert "15 of 20 rows did not run: request limit reached" in outcome.reason
    # Reservations hold the cap at every moment: no third tree of three requests ran beside two others.
    assert model.most == 2
    async with batch(
        LEAD, ROWS, model=model, store=store, id="b", limits=Limits(requests=3), total=Limits(requests=100)
    ) as job:
        again = await collect(job)
    assert (len(model.asked), len(again), {item.outcome.ok for item in again}) == (20, 20, {True})


@pytest.mark.parametrize(
    ("total", "limits", "words"),
    [
        (Limits(usd=1), Limits(requests=1), "total caps 'usd', so limits must cap it"),
        (Limits(requests=5), None, "total caps 'requests', so limits must cap it"),
        (Limits(seconds=5), Limits(seconds=5), "total cannot cap 'seconds', only requests, tokens, usd"),
    ],
)
def test_what_total_caps_each_tree_caps_too(total: Limits, limits: Limits | None, words: str) -> None:
    """A tree can reserve its share of `total` only if its own limits cap the same resource."""
    with pytest.raises(UsageError, match=words):
        batch(LEAD, ROWS, model=Counting(), limits=limits, total=total)


def test_mistakes_are_found_before_anything_runs() -> None:
    """A wrong id, row, number or option is a UsageError at once."""
    for wrong in (
        {"id": "b"},
        {"id": "a.b", "store": MemoryStore()},
        {"concurrency": 0},
        {"retries": -1},
        {"task": lambda _: ""},
        {"timeout": 3},
        {"model": "nosuch:model"},
    ):
        with pytest.raises(UsageError):
            batch(LEAD, ROWS, **({"model": Counting()} | wrong))  # pyright: ignore[reportArgumentType] - the mistakes


async def test_a_failure_that_may_pass_is_tried_again_in_a_new_tree() -> None:
    """A row whose tree failed for a retryable reason runs again under a new id, is charged again, and has one outcome."""
    # A tree makes six attempts by itself.
    model, store = Counting(fails={"row 1": 6, "row 2": 100}), MemoryStore()
    async with batch(LEAD, ROWS[:3], model=model, store=store, id="b", retries=1) as job:
        items = {item.number: item async for item in job.outcomes()}
    assert {n: item.outcome.ok for n, item in items.items()} == {1: True, 2: False, 3: True}
    results = {n: item.result for n, item in items.items()}
    assert {n: (r.tree, r.attempts, r.requests) for n, r in results.items() if r} == {
        1: ("b-1r1", 2, 7),
        2: ("b-2r1", 2, 12),
        3: ("b-3", 1, 1),
    }
    assert job.summary.retries == 2
    assert list(job.summary.by_cause.values()) == [1]


async def test_a_cancelled_batch_resumes_with_the_same_id() -> None:
    """After a cancel nothing runs any more; the same id delivers finished rows as recorded and runs only the others."""
    model, store = Counting(seconds=10), MemoryStore()
    async with batch(LEAD, ROWS, model=model, store=store, id="b", concurrency=5) as job:
        await asyncio.sleep(15)
        assert await job.cancel("enough")
        assert (model.now, (await job.outcome()).status) == (0, "cancelled")
    assert len(model.asked) == 10
    async with batch(LEAD, ROWS, model=model, store=store, id="b", concurrency=5) as job:
        items = await collect(job)
    assert sorted(item.number for item in items) == list(range(1, 21))
    assert all(item.outcome.ok for item in items)
    # Five were under way, and asked again.
    assert len(model.asked) == 25
    async with batch(LEAD, ROWS, model=model, store=store, id="b") as job:
        recorded = await collect(job)
    assert (len(recorded), len(model.asked)) == (20, 25)
    assert {item.outcome.text for item in recorded} == {f"done {row}" for row in ROWS}


async def test_a_batch_is_cancelled_from_elsewhere() -> None:
    """`remote.cancel` with the batch's id stops all its trees."""
    model, store = Counting(seconds=100), MemoryStore()
    async with batch(LEAD, ROWS, model=model, store=store, id="b") as job:
        await asyncio.sleep(1)
        assert await remote.cancel(store, "b", "no money", by="anna")
        outcome = await job.outcome()
    assert (outcome.status, outcome.reason, model.now) == ("cancelled", "cancelled by anna: no money", 0)


async def test_two_drivers_with_one_id() -> None:
    """While a batch runs, a second batch with its id raises TreeOwned."""
    model, store = Counting(seconds=1), MemoryStore()
    async with batch(LEAD, ROWS, model=model, store=store, id="b") as job:
        with pytest.raises(TreeOwned):
            async with batch(LEAD, ROWS, model=model, store=store, id="b"):
                pass
        assert len(await collect(job)) == 20
    assert len(model.asked) == 20


async def test_an_id_belongs_to_its_rows() -> None:
    """The same id with other rows, or the id of a run, is a UsageError."""
    store = MemoryStore()
    async with batch(LEAD, ROWS[:2], model=Counting(), store=store, id="b") as job:
        await collect(job)
    for name, words in (("b", "has other rows, tasks or another agent"), ("b-1", "is the id of a run")):
        with pytest.raises(UsageError, match=words):
            async with batch(LEAD, ROWS[:3], model=Counting(), store=store, id=name):
                pass


async def test_events_of_all_trees() -> None:
    """`events()` has the events of every tree that starts after the call."""
    seen: set[str] = set()
    async with batch(LEAD, ROWS, model=Counting(seconds=1), concurrency=2) as job:
        async for event in job.events():
            seen.add(event.root)
    assert len(seen) >= 18
