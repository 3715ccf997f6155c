"""One model call: reserve, send, settle, and retry after temporary failures.

All retries happen here. Each attempt has its own reservation and its own events; nothing is reserved during a back-off.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import final

from msgspec import Struct, field

import remit.engine.budget.ledger as ledger
import remit.engine.budget.slots as slots
import remit.tasks.guest as foreign
from remit.engine.budget.account import LAST_WORD_TOKENS, RESULT_TOKENS, Want
from remit.engine.budget.ledger import Over, Reservation, Ticket
from remit.engine.budget.rate_limit import Lane
from remit.engine.run.reply import estimated, read, usage_of
from remit.engine.run.state import Run
from remit.engine.run.tokens import message_tokens
from remit.errors import ModelError
from remit.tasks.cancel import Phase, Stopped, on_loop, wake
from remit.types.events import (
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
"""If a provider asks for a longer wait, the call fails."""

RETRIES_BEFORE_FALLBACK = 1
"""With another model to switch to, a failing model gets fewer retries."""

NO_FALLBACK = ("invalid", "bug")
"""Kinds of failure that another model would not fix."""

TOO_MANY = ("rate_limit", "overloaded")
"""Kinds of failure that mean: send fewer requests at once."""


class OverBudget(Exception):
    """The next model call does not fit the budget; `after` is the error that it would have retried, if any."""

    def __init__(self, over: Over, after: ModelError | None = None) -> None:
        super().__init__(over.words if after is None else f"{over.words}, after: {clean(str(after))[:500]}")
        self.over = over
        self.after = after


class ModelFailed(Exception):
    """The model failed permanently, after `attempts` attempts."""

    def __init__(self, error: ModelError, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts


@final
class _Failed(Struct, frozen=True):
    """A failed attempt and its usage, which is already settled."""

    error: ModelError
    usage: Usage


_UNSENT = _Failed(ModelError("the request was not sent", kind="connection", retryable=False), Usage())
"""The result until a request is sent."""


async def exchange(run: Run, purpose: Purpose = "turn") -> Reply:
    """Get one reply from the model, with retries, and add it to the conversation.

    Raises OverBudget, ModelFailed or Stopped.
    """
    recorded = None if run.replay is None else run.replay.asides.pop(purpose, None)
    if recorded is not None:
        _record(run, recorded, Usage(), purpose, again=True)
        return recorded
    attempt, last = 0, None
    while True:
        lane = run.asking.lane
        if lane.was_closed and _turned_away(run, attempt):
            attempt = 0
            continue
        front = purpose != "turn"
        if not lane.step_in(front) and not await _wait_for_place(run, lane, front=front):
            continue
        attempt += 1
        heard = await _attempt(run, purpose, attempt, last)
        if isinstance(heard, Reply):
            return heard
        last, attempt = heard.error, await _after(run, heard, attempt)


async def _attempt(run: Run, purpose: Purpose, attempt: int, last: ModelError | None) -> Reply | _Failed:
    """One attempt, with a place in the model's lane, given back at the end. Raises OverBudget and Stopped."""
    lane = run.asking.lane
    heard: Reply | _Failed = _UNSENT
    try:
        sent = await _reserved(run, purpose, attempt, last)
        try:
            ended = await sent.send()
        except Stopped as stopped:
            # A reply that arrived together with the stop is paid for and recorded too.
            heard = sent.settle(stopped.ended)
            if sent.begun and isinstance(heard, _Failed):
                _emit_failed(run, attempt, heard, None, kind="stopped")
            raise
        heard = sent.settle(ended)
        return heard
    finally:
        _leave_lane(lane, heard)


async def _reserved(run: Run, purpose: Purpose, attempt: int, last: ModelError | None) -> _Sent:
    """Reserve the worst case of a request. Raises OverBudget or Stopped."""
    node, asking = run.node, run.asking
    want = Want(run.talk.tokens, asking.output_tokens, asking.model.price)
    # A turn that may delegate also asks for a spare last word.
    spare = run.kit.delegates and purpose == "turn"
    verdict = ledger.reserve(node.means.account, want, _nobody, spare)
    reservation = await _granted(node.life.phase, verdict, last)
    heard_at = node.tree.clock() if asking.model.streams else None
    return _Sent(run, reservation, purpose, attempt, heard_at)


def _leave_lane(lane: Lane, heard: Reply | _Failed) -> None:
    if isinstance(heard, Reply):
        lane.leave(True)
    elif heard.error.kind in TOO_MANY:
        lane.refused(heard.error.retry_after, str(heard.error))
    else:
        lane.leave(False)


async def _after(run: Run, failed: _Failed, attempt: int) -> int:
    """Back off, or switch to the next model; returns how many attempts count from now on. Raises ModelFailed or Stopped."""
    error, delay = failed.error, _delay(run, failed.error, attempt)
    _emit_failed(run, attempt, failed, delay)
    run.asking.last_error = f"{error.kind}: {error}"
    if delay is not None:
        await _back_off(run, delay)
        return attempt
    if not _next_model(run, error):
        raise ModelFailed(error, attempt)
    return 0


def _next_model(run: Run, error: ModelError) -> bool:
    """Switch to the next model in order of preference, for the rest of the run."""
    node, asking = run.node, run.asking
    if asking.place + 1 >= len(node.bounds.models) or error.kind in NO_FALLBACK:
        return False
    before, reason = asking.model.name, f"{error.kind}: {error}"
    asking.turn_to(asking.place + 1, node.bounds, node.tree)
    node.emit(ModelSwitched(*node.stamp(), before=before, model=asking.model.name, reason=reason))
    return True


def _turned_away(run: Run, attempt: int) -> bool:
    """Whether the run switched to the next model because this one's lane is closed for long. Raises ModelFailed."""
    closed = _closed(run)
    if closed is None:
        return False
    if not _next_model(run, closed):
        raise ModelFailed(closed, max(1, attempt))
    return True


def _closed(run: Run) -> ModelError | None:
    """The error if the model's lane is closed for longer than the run can or should wait."""
    node, lane = run.node, run.asking.lane
    opens_in, others = lane.opens_in(), run.asking.place + 1 < len(node.bounds.models)
    longest = MOST_BACK_OFF_S if others else MOST_RETRY_AFTER_S
    if opens_in <= min(longest, node.life.deadline.left()):
        return None
    what = lane.why or "too many requests"
    return ModelError(
        f"{what} (the provider asked to wait {opens_in:.0f} s)", kind="rate_limit", retry_after=opens_in
    )


async def _wait_for_place(run: Run, lane: Lane, *, front: bool) -> bool:
    """Wait for a place in the lane without holding a slot. Raises Stopped.

    False if the caller must check again: the lane was closed for long meanwhile, or another run took the place.
    """
    node = run.node
    seat, phase = node.means.seat, node.life.phase
    future: asyncio.Future[None] = node.tree.loop.create_future()
    place = lane.stand_in_line(functools.partial(wake, future), front=front)
    seat.leave()
    try:
        await phase.wait(future)
        aside = place.granted and slots.is_full(seat.pools) and not seat.held
        if aside:
            lane.lay_aside(place)
        await seat.enter(phase)
    except Stopped:
        lane.withdraw(place)
        raise
    return lane.take_up(place) if aside else place.granted


async def keep_last_word(run: Run, calls: int, phase: Phase) -> None:
    """Withhold one more model call before children can spend it. Raises OverBudget or Stopped."""
    want = want_after(run, run.talk.tokens, calls)
    await _granted(phase, ledger.withhold(run.node.means.account, want, _nobody), None)


def want_after(run: Run, conversation: int, calls: int) -> Want:
    """The call in which a run reads the results of its calls, after a conversation of so many tokens, and answers."""
    asking = run.asking
    output = min(LAST_WORD_TOKENS, asking.output_tokens)
    return Want(conversation + calls * RESULT_TOKENS, output, asking.model.price)


async def _granted(
    phase: Phase, verdict: Over | Ticket | Reservation | None, last: ModelError | None
) -> Reservation:
    """Wait until a ticket is decided. Raises OverBudget or Stopped."""
    if isinstance(verdict, Ticket):
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
    """Replaced before it can be called."""


class _Sent(Struct, eq=False):
    """One request in flight: its reservation, its streamed text, and its result."""

    run: Run
    reservation: Reservation
    purpose: Purpose
    attempt: int
    heard_at: float | None
    """When the model last sent something; None if the stall timeout has not started."""
    pieces: list[str] = field(default_factory=list[str])
    """Text streamed so far."""
    chars: int = 0
    deaf: bool = False
    begun: bool = False
    """Whether the model was called: a stop may come first."""
    poke: Callable[[], None] = _nobody
    """Makes the waiting code read `expires` again."""

    async def send(self) -> foreign.Ended:
        """Call the model. Raises Stopped, with the reply if it arrived meanwhile."""
        node, model = self.run.node, self.run.asking.model
        return await foreign.run(
            self.ask(),
            node.life.phase,
            name=f"model {model.name}",
            expires=self.expires,
            poked=self.listen,
            on_abandoned=node.left_behind,
        )

    async def ask(self) -> object:
        """Call the model. The start is recorded in the same step, so that only requests that were made are recorded."""
        self.begun = True
        self._emit_started()
        if self.run.node.tree.journal.strict:
            await self._confirm()
        model, request, tracing = self.run.asking.model, self._request(), self.run.node.tree.tracing
        if tracing is None:
            return await model.ask(request, self.hear)
        with tracing.in_model_call(self.run.node.run_id, model.name, request):
            return await model.ask(request, self.hear)

    async def _confirm(self) -> None:
        """Wait until the store has the start of this request. Raises ModelError if the request must not be sent."""
        tree = self.run.node.tree
        trouble = await tree.journal.before_request()
        if self.heard_at is not None:
            self.heard_at = tree.clock()
        if trouble:
            tree.check_claim()
            raise ModelError(
                f"the request was not sent, because the store did not confirm it: {trouble}",
                kind="connection",
                usage=Usage(1),
            )

    def _emit_started(self) -> None:
        run, node = self.run, self.run.node
        price, tokens = run.asking.model.price, run.talk.tokens
        node.emit(
            TurnStarted(
                *node.stamp(),
                turn=run.tally.replies + 1,
                attempt=self.attempt,
                purpose=self.purpose,
                reserved=self.reservation.tokens,
                input_tokens=tokens,
                input_usd=None if price is None else ceil(tokens * price.input) / 1_000_000,
            )
        )

    def _request(self) -> Request:
        run, node, where = self.run, self.run.node, self.run.node.where
        return Request(
            agent=where.agent,
            run_id=where.run,
            depth=where.depth,
            instructions=run.instructions or "",
            messages=tuple(run.talk.messages),
            tools=run.kit.specs,
            tool_choice="auto" if self.purpose == "turn" else "none",
            max_output_tokens=self.reservation.output_tokens,
            output_schema=node.bounds.output_schema,
            settings=node.bounds.settings,
        )

    def settle(self, ended: foreign.Ended | None) -> Reply | _Failed:
        """Read, settle and record the result. Never raises: the reservation must be settled."""
        run, self.deaf = self.run, True
        if not self.begun:
            ledger.give_back(self.reservation)
            return _UNSENT
        heard, usage = self._read(ended)
        if not isinstance(heard, Reply):
            return self._failed(heard, usage)
        calls, word = heard.calls, None
        if calls and run.delegates(calls):
            # An estimate does not measure the conversation: see `_record`.
            asked = run.talk.tokens if usage.estimated else usage.input_tokens
            word = want_after(run, asked + usage.output_tokens, len(calls))
        run.node.spend(usage, self.reservation, word)
        _record(run, heard, usage, self.purpose)
        return heard

    def _failed(self, error: ModelError, usage: Usage) -> _Failed:
        self.run.node.spend(usage, self.reservation, None)
        # Keep the beginning of an unfinished reply as partial text.
        text = "".join(self.pieces)
        if text.strip():
            self.run.talk.text = text
        return _Failed(error, usage)

    def _read(self, ended: foreign.Ended | None) -> tuple[Reply | ModelError, Usage]:
        run = self.run
        try:
            heard = read(run, ended)
            return heard, usage_of(run, heard, self.chars)
        except FOREIGN as bug:
            log.exception("the reply of %s could not be read", run.asking.model.name)
            what = f"the model {run.asking.model.name} returned a reply that cannot be read: {describe_error(bug)}"
            return ModelError(what, kind="bug", retryable=False), estimated(run, self.chars)

    def hear(self, delta: str | Delta) -> None:
        """Receive streamed text. May be called from any thread with any value; never raises."""
        piece = delta if isinstance(delta, Delta) else Delta(text=safe_str(delta))
        loop = self.run.node.tree.loop
        if on_loop(loop):
            self._hear(piece)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._hear, piece)

    def _hear(self, piece: Delta) -> None:
        if self.deaf:
            return
        node = self.run.node
        begins, self.heard_at = self.heard_at is None, node.tree.clock()
        if begins:
            self.poke()
        text, thinking = clean(safe_str(piece.text)), clean(safe_str(piece.thinking))
        self.chars += len(text) + len(thinking)
        self.pieces.append(text)
        # Take the number in any case: the journal must not depend on whether there are readers.
        stamp = node.stamp()
        # An empty piece only shows that the model is alive.
        if (text or thinking) and node.tree.stream.watched:
            turn = self.run.tally.replies + 1
            node.emit(DeltaReceived(*stamp, turn=turn, text=text, thinking=thinking))

    def listen(self, poke: Callable[[], None]) -> None:
        self.poke = poke

    def expires(self) -> float | None:
        """The stall timeout counts from the last streamed text, or from the start if the model streams."""
        stall = self.run.node.bounds.limits.stall_seconds
        if self.heard_at is None or not isinstance(stall, (int, float)):
            return None
        return self.heard_at + stall


def _record(run: Run, reply: Reply, usage: Usage, purpose: Purpose, *, again: bool = False) -> None:
    """Add a reply to the conversation."""
    node, talk, asking, tally = run.node, run.talk, run.asking, run.tally
    asking.last_error = None
    if run.replay is not None and purpose == "turn":
        run.replay.asides.clear()
    tally.replies += 1
    if reply.text.strip():
        talk.text = reply.text
    asking.used = reply.model or asking.used or asking.model.name
    message = AssistantMessage(reply.text, reply.calls, reply.thinking, reply.details)
    talk.messages.append(message)
    if again or usage.estimated:
        talk.tokens += message_tokens(message)
    else:
        talk.tokens = usage.input_tokens + usage.output_tokens
    node.emit(
        ReplyReceived(
            *node.stamp(), turn=tally.replies, reply=reply, usage=usage, purpose=purpose, again=again
        )
    )


def _delay(run: Run, error: ModelError, attempt: int) -> float | None:
    """Seconds until the next attempt; None if there is none."""
    node = run.node
    last = run.asking.place == len(node.bounds.models) - 1 or error.kind in NO_FALLBACK
    if not error.retryable or attempt > (RETRIES if last else RETRIES_BEFORE_FALLBACK):
        return None
    # Seeded by the run, so that siblings spread out and tests are deterministic.
    import random  # noqa: PLC0415 - only after a failure

    jitter = random.Random(f"{node.run_id}/{run.tally.replies}/{attempt}").uniform(0.5, 1.0)  # noqa: S311
    delay = min(MOST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** (attempt - 1)) * jitter
    if error.retry_after:
        # A retry_after of 0 says nothing about how long to wait.
        delay = error.retry_after
    return delay if delay < min(MOST_RETRY_AFTER_S, node.life.deadline.left()) else None


def _emit_failed(run: Run, attempt: int, failed: _Failed, delay: float | None, *, kind: str = "") -> None:
    node = run.node
    node.emit(
        ModelCallFailed(
            *node.stamp(),
            turn=run.tally.replies + 1,
            attempt=attempt,
            error=str(failed.error),
            error_kind=kind or failed.error.kind,
            usage=failed.usage,
            retry_in_s=delay,
        )
    )


async def _back_off(run: Run, delay: float) -> None:
    """Wait without holding a slot. Raises Stopped."""
    seat, phase = run.node.means.seat, run.node.life.phase
    seat.leave()
    await phase.sleep(delay)
    await seat.enter(phase)
