"""Waiting for a thread that works for an event loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

import remit.stores.writing.worker as worker
from remit.errors import StoreError


class Busy(worker.Worker):
    """A thread that has been inside one turn since a given time on the loop's clock."""

    def __init__(self, since: float) -> None:
        self.since = since

    def stuck_s(self) -> float:
        return asyncio.get_running_loop().time() - self.since

    @property
    def alive(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("since", "refused_at"),
    [
        pytest.param(0.001, 5.001, id="its turn began just after the request"),
        pytest.param(-60.0, 5.0, id="it was stuck before"),
        pytest.param(3.0, 8.0, id="it made progress meanwhile"),
    ],
)
async def test_a_request_to_a_hanging_thread_times_out(
    monkeypatch: pytest.MonkeyPatch, since: float, refused_at: float
) -> None:
    """The caller does not wait twice as long if the thread's turn began just after the request."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=loop.time))
    with pytest.raises(StoreError, match="stuck"):
        await worker.answer(worker.Promise[None](), Busy(since), 5.0, "stuck")
    assert loop.time() == pytest.approx(refused_at)
