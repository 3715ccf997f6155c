"""One model call, paid for: reserve, send, settle; and again when the provider fails in passing.

Retries have this one owner. Each attempt has its own reservation and its own events; none is held
while backing off.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import remit.foreign as foreign
import remit.ledger as ledger
import remit.slots as slots
from remit.amounts import LEAST_OUTPUT, Want, cost
from remit.errors import ModelError
from remit.events import (
    VERSION,
    DeltaReceived,
    ModelCallFailed,
    ModelSwitched,
    Purpose,
    ReplyReceived,
    TurnStarted,
)
from remit.execution import Run, message_tokens
from remit.lanes import Lane
from remit.ledger import Over, Reservation, Ticket
from remit.limits import Usage
from remit.messages import AssistantMessage, Delta, Reply, Request
from remit.phase import Stopped, on_loop, wake
from remit.providers import lane_of, name_of, price_of, streams, window_of
from remit.reading import estimated, read, usage_of
from remit.text import FOREIGN, clean, describe_error, safe_str

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


class _AttemptFailed(Exception):
    """One attempt failed; what it used is already settled. The model's own exception is never written to."""

    def __init__(self, error: ModelError, usage: Usage) -> None:
        super().__init__(str(error))
        self.error = error
        self.usage = usage


async def exchange(run: Run, purpose: Purpose = "turn") -> Reply:
    """Ask the model once, through passing failures. The reply is in the conversation afterwards.

    Raises OverBudget, ModelFailed or Stopped.
    """
    recorded = run.asides.pop(purpose, None) if run.asides else None
    if recorded is not None:
        _record(run, recorded, Usage(), run.replies + 1, purpose, again=True)
        return recorded
    attempt, last = 0, None
    while True:
        closed = _closed(run) if run.lane.was_closed else None
        if closed is not None:
            if not _next_model(run, closed):
                raise ModelFailed(closed, max(1, attempt))
            attempt = 0
            continue
        front = purpose != "turn"
        if not run.lane.step_in(front=front) and not await _wait_for_place(run, run.lane, front=front):
            continue
        attempt += 1
        try:
            return await _attempt(run, purpose, attempt)
        except OverBudget as over:
            raise OverBudget(over.over, last) from None
        except _AttemptFailed as failed:
            delay = _delay(run, failed.error, attempt)
            _tell_failed(run, attempt, failed, delay)
            last = failed.error
            run.last_error = f"{last.kind}: {last}"
        if delay is not None:
            await _back_off(run, delay)
        elif _next_model(run, last):
            attempt = 0
        else:
            raise ModelFailed(last, attempt)


def turn_to(run: Run, place: int) -> None:
    """Ask another model from now on: that one in the order of preference."""
    model = run.models[place]
    run.model_at, run.model, run.model_name, run.price = place, model, name_of(model), price_of(model)
    run.streams, run.window = streams(model), window_of(model, run.scope.limits, run.learnt)
    run.lane = run.scope.tree.lanes.find(*lane_of(model))


def _next_model(run: Run, error: ModelError) -> bool:
    """Turn to the next model in the order of preference, for the rest of the run."""
    if run.model_at + 1 >= len(run.models) or error.kind in NO_FALLBACK:
        return False
    before = run.model_name
    turn_to(run, run.model_at + 1)
    run.scope.emit(ModelSwitched, before=before, model=run.model_name, reason=f"{error.kind}: {error}")
    return True


async def _attempt(run: Run, purpose: Purpose, number: int) -> Reply:
    """One request, with a place in the model's lane. Raises OverBudget, Stopped or _AttemptFailed."""
    lane, refused, answered = run.lane, None, False
    try:
        verdict = _ask_ledger(run, run.want(), keep=False, spare=run.kit.delegates and purpose == "turn")
        reservation = verdict if isinstance(verdict, Reservation) else await _granted(run, verdict)
        sent, stop = _Sent(run, reservation, purpose, number), None
        try:
            begun = foreign.begin(_ask(run, sent.request(), sent), run.scope.phase)
            ended = begun if isinstance(begun, foreign.Ended) else await _attend(run, begun, sent)
        except Stopped as stopped:
            stop, ended = stopped, stopped.ended
        # Whatever came back, and also when a stop came with it, it is paid for and kept.
        heard, usage = sent.settle(ended)
        if stop is not None:
            if not isinstance(heard, Reply):
                _tell_failed(run, number, _AttemptFailed(heard, usage), None, kind="stopped")
            raise stop
        if not isinstance(heard, Reply):
            refused = heard if heard.kind in TOO_MANY else None
            raise _AttemptFailed(heard, usage)
        answered = True
        return heard
    finally:
        if refused is None:
            lane.leave(answered=answered)
        else:
            lane.refused(refused.retry_after, str(refused))


def _closed(run: Run) -> ModelError | None:
    """The failure of a model whose lane is closed for longer than the run can wait, or than it need wait."""
    opens_in, others = run.lane.opens_in(), run.model_at + 1 < len(run.models)
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


async def reserve(run: Run, want: Want, *, keep: bool = False, spare: bool = False) -> Reservation:
    """Head-room for one call, waiting only for calls in flight. Raises OverBudget or Stopped.

    `keep` withholds it for the run's last word; `spare` holds a last word besides, should the reply delegate.
    """
    verdict = _ask_ledger(run, want, keep=keep, spare=spare)
    return verdict if isinstance(verdict, Reservation) else await _granted(run, verdict)


def _ask_ledger(run: Run, want: Want, *, keep: bool, spare: bool) -> Reservation | Over | Ticket:
    account = run.scope.account
    if keep:
        return ledger.withhold(account, want, _nobody)
    extra = Want(run.estimate, LEAST_OUTPUT, run.price) if spare and account.capped else None
    return ledger.reserve(account, want, _nobody, spare=extra)


async def _granted(run: Run, verdict: Over | Ticket | Reservation | None) -> Reservation:
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
        raise OverBudget(verdict)
    return verdict


def _attend(run: Run, guest: foreign.Guest, sent: _Sent) -> Awaitable[foreign.Ended]:
    return foreign.attend(
        guest,
        run.scope.phase,
        name=f"model {run.model_name}",
        expires=sent.expires,
        poked=sent.listen,
        on_abandoned=run.scope.left_behind,
    )


async def _ask(run: Run, request: Request, sent: _Sent) -> object:
    return await run.model.reply(request, sent.hear)


class _Sent:
    """One request: what is held for it, what is heard while it is in flight, and what became of it."""

    __slots__ = (
        "_heard_at",
        "_number",
        "_pieces",
        "_purpose",
        "_reservation",
        "_run",
        "_turn",
        "chars",
        "deaf",
        "poke",
    )

    def __init__(self, run: Run, reservation: Reservation, purpose: Purpose, number: int) -> None:
        self._run = run
        self._reservation = reservation
        self._purpose: Purpose = purpose
        self._number = number
        self._turn = run.replies + 1
        self._heard_at = run.scope.tree.clock() if run.streams else None
        self._pieces: list[str] | tuple[()] = ()
        self.chars = 0
        self.deaf = False
        self.poke: Callable[[], None] = _nobody
        """Has whoever waits for the call look again at when it expires."""

    def request(self) -> Request:
        """What the model is sent; it is told of first."""
        run, reservation, purpose = self._run, self._reservation, self._purpose
        scope, tree, price = run.scope, run.scope.tree, run.price
        seq, at = tree.stamp()
        tree.publish(
            TurnStarted(
                seq=seq,
                at=at,
                run=scope.run_id,
                parent=scope.parent_id,
                root=tree.root,
                depth=scope.depth,
                path=scope.path,
                agent=scope.agent,
                v=VERSION,
                turn=self._turn,
                attempt=self._number,
                purpose=purpose,
                reserved=reservation.tokens,
                input_tokens=run.estimate,
                input_usd=None if price is None else cost(price, run.estimate, 0) / 1_000_000,
            )
        )
        return Request(
            agent=scope.agent,
            run_id=scope.run_id,
            depth=scope.depth,
            instructions=run.agent.instructions,
            messages=tuple(run.messages),
            tools=run.kit.specs,
            tool_choice="auto" if purpose == "turn" else "none",
            max_output_tokens=reservation.output_tokens,
            output_schema=run.output_schema,
            settings=run.settings,
        )

    def settle(self, ended: foreign.Ended | None) -> tuple[Reply | ModelError, Usage]:
        """What came back and what it cost, paid and recorded. Never raises: what was reserved has to be settled."""
        run, self.deaf = self._run, True
        try:
            heard = read(run, ended)
            usage = usage_of(run, heard, self.chars)
        except FOREIGN as bug:
            log.exception("the reply of %s could not be read", run.model_name)
            what = f"the model {run.model_name} gave back what cannot be read: {describe_error(bug)}"
            heard, usage = ModelError(what, kind="bug", retryable=False), estimated(run, self.chars)
        if isinstance(heard, Reply):
            delegates = bool(heard.calls) and run.delegates(heard.calls)
            run.scope.spend(usage, self._reservation, delegates=delegates)
            _record(run, heard, usage, self._turn, self._purpose)
        else:
            run.scope.spend(usage, self._reservation)
            # What was heard of a reply that never ended is better than nothing.
            run.text = self.text if self.text.strip() else run.text
        return heard, usage

    def hear(self, delta: str | Delta) -> None:
        """Never raises, from whatever thread and with whatever it is called: a delta is only for the eye."""
        piece = delta if isinstance(delta, Delta) else Delta(text=safe_str(delta))
        loop = self._run.scope.tree.loop
        if on_loop(loop):
            self._hear(piece)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._hear, piece)

    def _hear(self, piece: Delta) -> None:
        if self.deaf:
            return
        begins, self._heard_at = self._heard_at is None, self._run.scope.tree.clock()
        if begins:
            self.poke()
        text, thinking = clean(safe_str(piece.text)), clean(safe_str(piece.thinking))
        self.chars += len(text) + len(thinking)
        if not text and not thinking:
            # A sign of life: something is being written that cannot be shown yet.
            self._run.scope.tree.stamp()
            return
        self._pieces = self._pieces or []
        self._pieces.append(text)
        if self._run.scope.tree.stream.watched:
            self._run.scope.emit(DeltaReceived, turn=self._turn, text=text, thinking=thinking)
        else:
            # Its number is taken all the same: what is journalled must not depend on who looks.
            self._run.scope.tree.stamp()

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._pieces)

    def listen(self, poke: Callable[[], None]) -> None:
        self.poke = poke

    def expires(self) -> float | None:
        """Silence has a limit once the model has begun to speak, or from the start if it says it streams."""
        stall = self._run.scope.limits.stall_seconds
        if self._heard_at is None or not isinstance(stall, (int, float)):
            return None
        return self._heard_at + stall


def _record(
    run: Run, reply: Reply, usage: Usage, turn: int, purpose: Purpose, *, again: bool = False
) -> None:
    """Put a reply in the conversation."""
    run.last_error = None
    if run.asides and purpose == "turn":
        run.asides = {}
    run.replies += 1
    text = reply.text
    if text and not text.isspace():
        run.text = text
    run.model_used = reply.model or run.model_used or run.model_name
    message = AssistantMessage(text, reply.calls, reply.thinking, reply.details)
    run.messages.append(message)
    if again or usage.estimated:
        run.estimate += message_tokens(message)
    else:
        run.estimate = usage.input_tokens + usage.output_tokens
    scope, tree = run.scope, run.scope.tree
    seq, at = tree.stamp()
    tree.publish(
        ReplyReceived(
            seq=seq,
            at=at,
            run=scope.run_id,
            parent=scope.parent_id,
            root=tree.root,
            depth=scope.depth,
            path=scope.path,
            agent=scope.agent,
            v=VERSION,
            turn=turn,
            reply=reply,
            usage=usage,
            purpose=purpose,
            again=again,
        )
    )


def _delay(run: Run, error: ModelError, attempt: int) -> float | None:
    """Seconds until the next attempt; None when there is to be none."""
    last = run.model_at == len(run.models) - 1 or error.kind in NO_FALLBACK
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


def _tell_failed(
    run: Run, attempt: int, failed: _AttemptFailed, delay: float | None, *, kind: str = ""
) -> None:
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


def _nobody() -> None:
    """Replaced before anything can wake it."""
