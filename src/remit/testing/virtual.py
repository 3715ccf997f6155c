"""Virtual time: an event loop whose clock jumps to the next timer when there is nothing else to do.

asyncio's and anyio's deadlines follow the loop's clock, so nothing else has to know.
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
        """What is ready now or within `seconds`, for real."""
        return super().select(seconds)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and moves only when nothing is ready to run.

    While worker threads of this loop are out, it waits for them up to `grace_s` real seconds before
    each jump. With no timer and no thread it waits `stuck_s` real seconds and then raises
    RuntimeError out of `run_until_complete`. After `timeout_s` real seconds it raises TimeoutError
    there; only a callback that never returns to the loop escapes that.
    """

    # Declared, not ours: asyncio's heap of timers, and how early it may fire one. The stubs have neither.
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
        """Seconds since 1970, had virtual time begun at `EPOCH`."""
        return EPOCH + self._now

    def allow_real(self, seconds: float) -> None:
        """Sets the real time left before TimeoutError."""
        self._timeout_s = seconds
        self._stop_at = time.monotonic() + seconds

    def _select(self, timeout: float | None) -> _Ready:
        self._check_real_time()
        ready = self._real.wait(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._scheduled[0].when() == math.inf:
            return self._wait_for_real()
        # Asked before the poll: a thread reports to the loop first and stops being busy afterwards.
        patience = self._grace_s if threads.busy(self) else 0
        ready = self._real.wait(patience)
        if not ready:
            self._jump()
        return ready

    def _jump(self) -> None:
        # To the timer itself: adding up timeouts would drift. asyncio fires what is due before
        # `time() + resolution`, which must differ from `time()` also when virtual time is large.
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
                    "nothing is scheduled: every task waits for something that cannot happen"
                    + _listing(asyncio.all_tasks(self))
                )

    def _check_real_time(self) -> None:
        if time.monotonic() < self._stop_at:
            return
        spent = self._timeout_s
        # Whoever catches this still has to cancel the tasks on this loop.
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
    """Runs a coroutine, or an async function with `args`, to its end in virtual time; root ids are r1, r2, ...

    Raises TimeoutError after `timeout_s` real seconds, RuntimeError when nothing can happen any more and
    nothing did for `stuck_s` of them, and AssertionError when tasks are still alive at the end, those that
    `allow` accepts excepted. Whatever happens, the tasks left are cancelled.
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
    """Root runs started inside are called `<prefix>1`, `<prefix>2`, ..."""
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
