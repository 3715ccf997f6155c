"""Virtual time: an event loop whose clock jumps to the next timer when nothing else is ready.

Deadlines of asyncio and anyio use the loop's clock, so other code needs no change.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import selectors
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import remit.tasks.threads as threads
from remit.types.ports import new_root_id

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""The wall clock when virtual time is 0."""

_STEP_S = 0.05
_CLOSING_S = 2.0
_RESOLUTION = 1e-9

_Ready = list[tuple[selectors.SelectorKey, int]]


class _Selector(selectors.DefaultSelector):
    """A real selector that lets its loop decide how long to wait."""

    def __init__(self, decide: Callable[[float | None], _Ready]) -> None:
        super().__init__()
        self._decide = decide

    def select(self, timeout: float | None = None) -> _Ready:
        return self._decide(timeout)

    def wait(self, seconds: float) -> _Ready:
        """The events that are ready within `seconds` of real time."""
        return super().select(seconds)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and moves only when nothing is ready to run.

    While worker threads of this loop are busy, the loop waits for them up to `grace_s` real seconds before each jump.
    With no timer and no thread, it waits `stuck_s` real seconds; then `run_until_complete` raises RuntimeError. After
    `timeout_s` real seconds, `run_until_complete` raises TimeoutError, unless a callback never returns to the loop.
    """

    # Private fields of asyncio, missing in its stubs: the heap of timers, and how early a timer may fire.
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self, *, timeout_s: float = math.inf, grace_s: float = 0.25, stuck_s: float = 5.0) -> None:
        self._now = 0.0
        self._grace_s = grace_s
        self._stuck_s = stuck_s
        self._timeout_s = timeout_s
        self._stop_at = time.monotonic() + timeout_s
        self._real = _Selector(self._select)
        super().__init__(self._real)
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        return self._now

    def wall(self) -> float:
        """Virtual time in seconds since 1970, counted from `EPOCH`."""
        return EPOCH + self._now

    def allow_real(self, seconds: float) -> None:
        """Set the real time left before TimeoutError."""
        self._timeout_s = seconds
        self._stop_at = time.monotonic() + seconds

    def _select(self, timeout: float | None) -> _Ready:
        self._check_real_time()
        ready = self._real.wait(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._scheduled[0].when() == math.inf:
            return self._wait_for_real()
        # Checked before the poll: a thread reports to the loop before it stops being busy.
        patience = self._grace_s if threads.busy(self) else 0
        ready = self._real.wait(patience)
        if not ready:
            self._jump()
        return ready

    def _jump(self) -> None:
        # Set to the timer's time: adding timeouts would drift. asyncio fires timers before `time() + resolution`, which
        # must differ from `time()` even if virtual time is large.
        self._now = max(self._now, self._scheduled[0].when())
        self._clock_resolution = max(_RESOLUTION, math.ulp(self._now))

    def _wait_for_real(self) -> _Ready:
        step = min(_STEP_S, self._stuck_s)
        quiet_since = time.monotonic()
        while True:
            working = threads.busy(self) > 0
            ready = self._real.wait(step)
            if ready:
                return ready
            self._check_real_time()
            if working:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= self._stuck_s:
                raise RuntimeError(
                    "deadlock: nothing is scheduled, and every task waits" + _listing(asyncio.all_tasks(self))
                )

    def _check_real_time(self) -> None:
        if time.monotonic() < self._stop_at:
            return
        spent = self._timeout_s
        # The code that catches this must still cancel the tasks of this loop.
        self.allow_real(_CLOSING_S)
        raise TimeoutError(
            f"not finished after {spent:g} real seconds, at virtual time {self._now:g}"
            + _listing(asyncio.all_tasks(self))
        )


def run_virtual(
    main: Callable[..., Coroutine[object, object, T]] | Coroutine[object, object, T],
    *args: object,
    timeout_s: float = 30.0,
    stuck_s: float = 5.0,
    allow: Callable[[asyncio.Task[object]], bool] | None = None,
) -> T:
    """Run a coroutine, or an async function with `args`, to its end in virtual time; root ids are r1, r2, ...

    Raises TimeoutError after `timeout_s` real seconds, RuntimeError after a deadlock of `stuck_s` real seconds, and
    AssertionError if tasks that `allow` does not accept are alive at the end. Remaining tasks are always cancelled.
    """
    loop = VirtualTimeLoop(timeout_s=timeout_s, stuck_s=stuck_s)
    runner = asyncio.Runner(loop_factory=lambda: loop)
    with fixed_ids():
        # The runner keeps a copy of the context it is entered in.
        runner.__enter__()
    try:
        result = runner.run(main(*args) if callable(main) else main)
        left = [task for task in asyncio.all_tasks(loop) if allow is None or not allow(task)]
        if left:
            raise AssertionError("tasks are still alive at the end" + _listing(left))
        return result
    finally:
        loop.allow_real(_CLOSING_S)
        runner.close()


@contextmanager
def fixed_ids(prefix: str = "r") -> Generator[None]:
    """Root runs started inside the block get the ids `<prefix>1`, `<prefix>2`, ..."""
    numbers = itertools.count(1)
    token = new_root_id.set(lambda: f"{prefix}{next(numbers)}")
    try:
        yield
    finally:
        new_root_id.reset(token)


def _listing(tasks: Iterable[asyncio.Task[object]]) -> str:
    lines = sorted(f"  {task.get_name()}: {_where(task)}" for task in tasks)
    return ":\n" + "\n".join(lines) if lines else ""


def _where(task: asyncio.Task[object]) -> str:
    awaited: object = task.get_coro()
    chain: list[str] = []
    place = ""
    while isinstance(frame := getattr(awaited, "cr_frame", None), FrameType):
        chain.append(frame.f_code.co_qualname)
        place = f" ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None)
    return " > ".join(chain) + place if chain else repr(awaited)
