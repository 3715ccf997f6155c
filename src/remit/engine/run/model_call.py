"""One model call, paid for: reserve, send, settle; and again when the provider fails in passing.

Retries have this one owner. Each attempt has its own reservation and its own events; none is held
while backing off.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import final

from msgspec import Struct

import remit.engine.budget.ledger as ledger
import remit.engine.budget.slots as slots
import remit.tasks.guest as foreign
from remit.engine.budget.account import LAST_WORD_TOKENS, RESULT_TOKENS, Want
from remit.engine.budget.ledger import Over, Reservation, Ticket
from remit.engine.budget.model_choice import window_of
from remit.engine.budget.rate_limit import Lane
from remit.engine.run.reply import estimated, read, usage_of
from remit.engine.run.state import Run, message_tokens
from remit.errors import ModelError
from remit.tasks.cancel import Stopped, on_loop, wake
from remit.types.events import (
    VERSION,
    DeltaReceived,
    ModelCallFailed,
    ModelSwitched,
    Purpose,
    ReplyReceived,
    TurnStarted,
)
from remit.types.limits import Usage
from remit.types.messages import AssistantMessage, Delta, Reply, Request
from remit.types.text import FOREIGN, clean, describe_error, safe_str

log = logging.getLogger("remit")

RETRIES = 5
FIRST_BACK_OFF_S = 1.0
MOST_BACK_OFF_S = 60.0

MOST_RETRY_AFTER_S = 86_400.0
"""A provider that asks for a longer wait is not waited for."""

RETRIES_BEFORE_FALLBACK = 1
"""With another model to turn to, one that fails is not waited for as long."""

NO_FALLBACK = ("invalid", "bug")
"""Kinds of failure that another model would not mend."""

TOO_MANY = ("rate_limit", "overloaded")
"""Kinds of failure that say: fewer at once, whoever asks."""


class OverBudget(Exception):
    """The next model call does not fit; `after` is the error it was to be tried again after, if that is why."""

    def __init__(self, over: Over, after: ModelError | None = None) -> None:
        super().__init__(over.words if after is None else f"{over.words}, after: {clean(str(after))[:500]}")
        self.over = over
        self.after = after


class ModelFailed(Exception):
    """The model failed for good, at the last of so many attempts."""

    def __init__(self, error: ModelError, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts


@final
class _Failed(Struct, frozen=True):
    """What came of an attempt that failed, and what it used, which is settled."""

    error: ModelError
    usage: Usage


_UNSENT = _Failed(ModelError("it was not sent", kind="connection", retryable=False), Usage())
"""Until a request is sent."""


async def exchange(run: Run, purpose: Purpose = "turn") -> Reply:
    """Ask the model once, through passing failures. The reply is in the conversation afterwards.

    Raises OverBudget, ModelFailed or Stopped.
    """
    if run.asides and (recorded := run.asides.pop(purpose, None)) is not None:
        _record(run, recorded, Usage(), run.replies + 1, purpose, True)
        return recorded
    attempt, last, scope = 0, None, run.scope
    while True:
        lane = run.lane
        if lane.was_closed and _turned_away(run, attempt):
            attempt = 0
            continue
        front = purpose != "turn"
        if not lane.step_in(front) and not await _wait_for_place(run, lane, front=front):
            continue
        attempt += 1
        model = run.model
        heard: Reply | _Failed = _UNSENT
        try:
            # The worst case; a turn that may delegate asks for a last word to spare besides.
            want = Want(run.estimate, run.output_tokens, model.price)
            verdict = ledger.reserve(scope.account, want, _nobody, run.kit.delegates and not front)
            reservation = await _granted(run, verdict, last)
            heard_at = scope.tree.clock() if model.streams else None
            sent = _Sent(run, reservation, purpose, attempt, run.replies + 1, heard_at)
            # Whatever comes back, and also when a stop comes with it, it is paid for and kept.
            try:
                ended = await foreign.run(
                    sent.ask(),
                    scope.phase,
                    name=f"model {model.name}",
                    expires=sent.expires,
                    poked=sent.listen,
                    on_abandoned=scope.left_behind,
                )
            except Stopped as stopped:
                if not sent.begun:
                    ledger.give_back(reservation)
                    raise
                heard = sent.settle(stopped.ended)
                if isinstance(heard, _Failed):
                    _tell_failed(run, attempt, heard, None, kind="stopped")
                raise
            heard = sent.settle(ended)
        finally:
            if isinstance(heard, _Failed):
                _leave_unanswered(lane, heard.error)
            else:
                lane.leave(True)
        if isinstance(heard, Reply):
            return heard
        last, attempt = heard.error, await _after(run, heard, attempt)


def _leave_unanswered(lane: Lane, error: ModelError) -> None:
    if error.kind in TOO_MANY:
        lane.refused(error.retry_after, str(error))
    else:
        lane.leave(False)


async def _after(run: Run, failed: _Failed, attempt: int) -> int:
    """Back off, or turn to the next model; how many attempts count from then on. Raises ModelFailed or Stopped."""
    error, delay = failed.error, _delay(run, failed.error, attempt)
    _tell_failed(run, attempt, failed, delay)
    run.last_error = f"{error.kind}: {error}"
    if delay is not None:
        await _back_off(run, delay)
        return attempt
    if not _next_model(run, error):
        raise ModelFailed(error, attempt)
    return 0


def turn_to(run: Run, place: int) -> None:
    """Ask another model from now on: that one in the order of preference."""
    run.model_at, run.model = place, run.shared.models[place]
    run.window = window_of(run.model, run.scope.limits, run.learnt)
    run.lane = run.scope.tree.lane_of(run.model)


def _next_model(run: Run, error: ModelError) -> bool:
    """Turn to the next model in the order of preference, for the rest of the run."""
    if run.model_at + 1 >= len(run.shared.models) or error.kind in NO_FALLBACK:
        return False
    before = run.model.name
    turn_to(run, run.model_at + 1)
    run.scope.emit(ModelSwitched, before=before, model=run.model.name, reason=f"{error.kind}: {error}")
    return True


def _turned_away(run: Run, attempt: int) -> bool:
    """Whether it turned to the next model, as the lane of this one is closed for long. Raises ModelFailed."""
    closed = _closed(run)
    if closed is None:
        return False
    if not _next_model(run, closed):
        raise ModelFailed(closed, max(1, attempt))
    return True


def _closed(run: Run) -> ModelError | None:
    """The failure of a model whose lane is closed for longer than the run can wait, or than it need wait."""
    opens_in, others = run.lane.opens_in(), run.model_at + 1 < len(run.shared.models)
    if opens_in <= min(MOST_BACK_OFF_S if others else MOST_RETRY_AFTER_S, run.scope.deadline.left()):
        return None
    what = run.lane.why or "too many requests"
    return ModelError(f"{what} (asked to wait for {opens_in:.0f} s)", kind="rate_limit", retry_after=opens_in)


async def _wait_for_place(run: Run, lane: Lane, *, front: bool) -> bool:
    """Wait for a place in the lane, without a slot: who waits for it is not working. Raises Stopped.

    False when it is time to look again: the lane was closed for long meanwhile, or there is a place for who has a slot.
    """
    scope = run.scope
    future: asyncio.Future[None] = scope.tree.loop.create_future()
    place = lane.stand_in_line(functools.partial(wake, future), front=front)
    scope.seat.leave()
    try:
        await scope.phase.wait(future)
        aside = place.granted and slots.is_full(scope.seat.pools) and not scope.seat.held
        if aside:
            lane.lay_aside(place)
        await scope.seat.enter(scope.phase)
    except Stopped:
        lane.withdraw(place)
        raise
    return lane.take_up(place) if aside else place.granted


async def keep_last_word(run: Run, calls: int) -> None:
    """Withhold one more model call before children can spend it. Raises OverBudget or Stopped."""
    verdict = ledger.withhold(run.scope.account, _want_after(run, run.estimate, calls), _nobody)
    await _granted(run, verdict, None)


def _want_after(run: Run, conversation: int, calls: int) -> Want:
    """What a run needs that reads the results of its calls, after a conversation of so many tokens, and answers."""
    return Want(
        conversation + calls * RESULT_TOKENS, min(LAST_WORD_TOKENS, run.output_tokens), run.model.price
    )


async def _granted(
    run: Run, verdict: Over | Ticket | Reservation | None, last: ModelError | None
) -> Reservation:
    """What was not granted at once. Raises OverBudget or Stopped."""
    if isinstance(verdict, Ticket):
        phase = run.scope.phase
        future: asyncio.Future[None] = phase.loop.create_future()
        verdict.wake = lambda: wake(future)
        try:
            await phase.wait(future)
        except Stopped:
            ledger.withdraw(verdict)
            raise
        verdict = verdict.verdict
    assert verdict is not None and not isinstance(verdict, Ticket)
    if isinstance(verdict, Over):
        raise OverBudget(verdict, last)
    return verdict


def _nobody() -> None:
    """Replaced before anything can wake it."""


# A record: made for each request, a class with an `__init__` of its own would take three times as long.
class _Sent(Struct, eq=False):
    """One request: what is held for it, what is heard while it is in flight, and what became of it."""

    run: Run
    reservation: Reservation
    purpose: Purpose
    number: int
    turn: int
    heard_at: float | None
    pieces: list[str] | tuple[()] = ()
    chars: int = 0
    deaf: bool = False
    begun: bool = False
    """Whether the model was asked: a stop may come first."""
    poke: Callable[[], None] = _nobody
    """Has whoever waits for the call look again at when it expires."""

    async def ask(self) -> object:
        """Ask the model. The intent is recorded in the same step, so no request is recorded that was never made."""
        self.begun = True
        return await self.run.model.ask(self.request(), self.hear)

    def request(self) -> Request:
        """What the model is sent; it is recorded first."""
        run, reservation, purpose = self.run, self.reservation, self.purpose
        scope, estimate, price = run.scope, run.estimate, run.model.price
        tree = scope.tree
        stamp, publish = tree.stamp, tree.publish
        seq, at = stamp()
        publish(
            # By position, as names cost more: the fields stand in types/events.py in this order.
            TurnStarted(
                seq,
                at,
                scope.run_id,
                scope.parent_id,
                tree.root,
                scope.depth,
                scope.path,
                scope.agent,
                VERSION,
                self.turn,
                self.number,
                purpose,
                reservation.tokens,
                estimate,
                None if price is None else ceil(estimate * price.input) / 1_000_000,
            )
        )
        return Request(
            scope.agent,
            scope.run_id,
            scope.depth,
            run.agent.instructions,
            tuple(run.messages),
            run.kit.specs,
            "auto" if purpose == "turn" else "none",
            reservation.output_tokens,
            run.shared.output_schema,
            run.settings,
        )

    def settle(self, ended: foreign.Ended | None) -> Reply | _Failed:
        """What came back, paid and recorded. Never raises: what was reserved has to be settled."""
        run, self.deaf = self.run, True
        heard, usage = self._read(ended)
        if not isinstance(heard, Reply):
            return self._failed(heard, usage)
        calls, word = heard.calls, None
        if calls and run.delegates(calls):
            # What was only estimated, by whomever, is no measure of the conversation: see `_record`.
            asked = run.estimate if usage.estimated else usage.input_tokens
            word = _want_after(run, asked + usage.output_tokens, len(calls))
        run.scope.spend(usage, self.reservation, word)
        _record(run, heard, usage, self.turn, self.purpose, False)
        return heard

    def _failed(self, error: ModelError, usage: Usage) -> _Failed:
        run = self.run
        run.scope.spend(usage, self.reservation, None)
        # What was heard of a reply that never ended is better than nothing.
        run.text = self.text if self.text.strip() else run.text
        return _Failed(error, usage)

    def _read(self, ended: foreign.Ended | None) -> tuple[Reply | ModelError, Usage]:
        run = self.run
        try:
            heard = read(run, ended)
            return heard, usage_of(run, heard, self.chars)
        except FOREIGN as bug:
            log.exception("the reply of %s could not be read", run.model.name)
            what = f"the model {run.model.name} gave back what cannot be read: {describe_error(bug)}"
            return ModelError(what, kind="bug", retryable=False), estimated(run, self.chars)

    def hear(self, delta: str | Delta) -> None:
        """Never raises, from whatever thread and with whatever it is called: a delta is only for the eye."""
        piece = delta if isinstance(delta, Delta) else Delta(text=safe_str(delta))
        loop = self.run.scope.tree.loop
        if on_loop(loop):
            self._hear(piece)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._hear, piece)

    def _hear(self, piece: Delta) -> None:
        if self.deaf:
            return
        begins, self.heard_at = self.heard_at is None, self.run.scope.tree.clock()
        if begins:
            self.poke()
        text, thinking = clean(safe_str(piece.text)), clean(safe_str(piece.thinking))
        self.chars += len(text) + len(thinking)
        if not text and not thinking:
            # A sign of life: something is being written that cannot be shown yet.
            self.run.scope.tree.stamp()
            return
        self.pieces = self.pieces or []
        self.pieces.append(text)
        if self.run.scope.tree.stream.watched:
            self.run.scope.emit(DeltaReceived, turn=self.turn, text=text, thinking=thinking)
        else:
            # Its number is taken all the same: what is journalled must not depend on who looks.
            self.run.scope.tree.stamp()

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self.pieces)

    def listen(self, poke: Callable[[], None]) -> None:
        self.poke = poke

    def expires(self) -> float | None:
        """Silence has a limit once the model has begun to speak, or from the start if it says it streams."""
        stall = self.run.scope.limits.stall_seconds
        if self.heard_at is None or not isinstance(stall, (int, float)):
            return None
        return self.heard_at + stall


def _record(run: Run, reply: Reply, usage: Usage, turn: int, purpose: Purpose, again: bool) -> None:  # noqa: PLR0917
    """Put a reply in the conversation."""
    run.last_error = None
    if run.asides and purpose == "turn":
        run.asides = {}
    run.replies += 1
    text = reply.text
    if text and not text.isspace():
        run.text = text
    run.model_used = reply.model or run.model_used or run.model.name
    message = AssistantMessage(text, reply.calls, reply.thinking, reply.details)
    run.messages.append(message)
    if again or usage.estimated:
        run.estimate += message_tokens(message)
    else:
        run.estimate = usage.input_tokens + usage.output_tokens
    scope = run.scope
    tree = scope.tree
    stamp, publish = tree.stamp, tree.publish
    seq, at = stamp()
    if seq > tree.trim_at:
        tree.trim(seq)
    publish(
        ReplyReceived(
            seq,
            at,
            scope.run_id,
            scope.parent_id,
            tree.root,
            scope.depth,
            scope.path,
            scope.agent,
            VERSION,
            turn,
            reply,
            usage,
            purpose,
            again,
        )
    )


def _delay(run: Run, error: ModelError, attempt: int) -> float | None:
    """Seconds until the next attempt; None when there is to be none."""
    last = run.model_at == len(run.shared.models) - 1 or error.kind in NO_FALLBACK
    if not error.retryable or attempt > (RETRIES if last else RETRIES_BEFORE_FALLBACK):
        return None
    # Seeded by the run, so that siblings spread out and a test sees the same every time.
    import random  # noqa: PLC0415 - only those that fail wait

    jitter = random.Random(f"{run.scope.run_id}/{run.replies}/{attempt}").uniform(0.5, 1.0)  # noqa: S311
    delay = min(MOST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** (attempt - 1)) * jitter
    if error.retry_after:
        # A wait of nothing at all is no answer to how long to wait.
        delay = error.retry_after
    return delay if delay < min(MOST_RETRY_AFTER_S, run.scope.deadline.left()) else None


def _tell_failed(run: Run, attempt: int, failed: _Failed, delay: float | None, *, kind: str = "") -> None:
    run.scope.emit(
        ModelCallFailed,
        turn=run.replies + 1,
        attempt=attempt,
        error=str(failed.error),
        error_kind=kind or failed.error.kind,
        usage=failed.usage,
        retry_in_s=delay,
    )


async def _back_off(run: Run, delay: float) -> None:
    """Wait without a slot: who backs off is not working."""
    scope = run.scope
    scope.seat.leave()
    await scope.phase.sleep(delay)
    await scope.seat.enter(scope.phase)
