"""One model call, paid for: reserve, send, settle; and again when the provider fails in passing.

Retries have this one owner. Each attempt has its own reservation and its own events; none is held
while backing off.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, cast

import msgspec

import remit.foreign as foreign
import remit.ledger as ledger
from remit.errors import SENT_KINDS, ModelError
from remit.events import DeltaReceived, ModelCallFailed, ReplyReceived, TurnStarted
from remit.execution import Run, message_tokens
from remit.ledger import LEAST_OUTPUT, Over, Reservation, Ticket, Want
from remit.limits import HIGHEST, Usage
from remit.messages import AssistantMessage, Call, Delta, JsonObject, Reply, Request
from remit.phase import Stopped, on_loop, wake
from remit.text import clean, safe_str, text_of, to_json

RETRIES = 5
FIRST_BACK_OFF_S = 1.0
MOST_BACK_OFF_S = 60.0

Purpose = Literal["turn", "wrap_up", "summary"]


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
    attempt, last = 0, None
    while True:
        attempt += 1
        try:
            reservation = await reserve(run, run.want(), spare=purpose == "turn" and run.kit.delegates)
        except OverBudget as over:
            raise OverBudget(over.over, last) from None
        try:
            reply = await _send(run, reservation, purpose, attempt)
        except _AttemptFailed as failed:
            delay = _delay(run, failed.error, attempt)
            _tell_failed(run, attempt, failed, delay)
            if delay is None:
                raise ModelFailed(failed.error, attempt) from None
            last = failed.error
            await _back_off(run, delay)
        else:
            return reply


async def reserve(run: Run, want: Want, *, keep: bool = False, spare: bool = False) -> Reservation:
    """Head-room for one call, waiting only for calls in flight. Raises OverBudget or Stopped.

    `keep` withholds it for the run's last word; `spare` holds a last word besides, should the reply delegate.
    """
    account, phase = run.scope.account, run.scope.phase
    if keep:
        verdict = ledger.withhold(account, want, _nobody)
    else:
        extra = Want(run.estimate, LEAST_OUTPUT, run.price) if spare and account.capped else None
        verdict = ledger.reserve(account, want, _nobody, spare=extra)
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
        raise OverBudget(verdict)
    return verdict


async def _send(run: Run, reservation: Reservation, purpose: Purpose, attempt: int) -> Reply:
    scope = run.scope
    turn = run.replies + 1
    scope.emit(TurnStarted, turn=turn, attempt=attempt, purpose=purpose, reserved=reservation.amount.tokens)
    request = Request(
        agent=run.agent.name,
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
    ear = _Ear(run, turn)
    try:
        ended = await foreign.run(
            _ask(run, request, ear),
            scope.phase,
            name=f"model {run.model.name}",
            expires=ear.expires,
            poked=ear.listen,
            on_abandoned=scope.left_behind,
        )
    except Stopped:
        usage = _estimated(run, ear.chars)
        scope.spend(usage, reservation, run.price)
        scope.emit(
            ModelCallFailed, turn=turn, attempt=attempt, error="stopped", error_kind="stopped", usage=usage
        )
        raise
    finally:
        ear.deaf = True
    reply = _tidy(ended.value) if isinstance(ended.value, Reply) else None
    if reply is not None:
        return _take(run, reservation, reply, turn)
    error = _as_model_error(run, ended)
    usage = _usage_of_failure(run, error, ear.chars)
    scope.spend(usage, reservation, run.price)
    raise _AttemptFailed(error, usage)


async def _ask(run: Run, request: Request, ear: _Ear) -> object:
    return await run.model.reply(request, ear.hear)


class _Ear:
    """Takes the deltas of one call, and knows when it last heard one."""

    def __init__(self, run: Run, turn: int) -> None:
        self._run = run
        self._turn = turn
        self._loop = run.scope.tree.loop
        self._heard_at = self._loop.time() if getattr(run.model, "streams", False) else None
        stall = run.scope.limits.stall_seconds
        self._stall_s = stall if isinstance(stall, (int, float)) else None
        self.chars = 0
        self.deaf = False
        self.poke: Callable[[], None] = _nobody
        """Has whoever waits for the call look again at when it expires."""

    def hear(self, delta: str | Delta) -> None:
        """Never raises, from whatever thread and with whatever it is called: a delta is only for the eye."""
        piece = delta if isinstance(delta, Delta) else Delta(text=safe_str(delta))
        if on_loop(self._loop):
            self._hear(piece)
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hear, piece)

    def _hear(self, piece: Delta) -> None:
        if self.deaf:
            return
        begins, self._heard_at = self._heard_at is None, self._loop.time()
        if begins:
            self.poke()
        self.chars += len(safe_str(piece.text)) + len(safe_str(piece.thinking))
        if self._run.scope.tree.stream.watched:
            text, thinking = clean(safe_str(piece.text)), clean(safe_str(piece.thinking))
            self._run.scope.emit(DeltaReceived, turn=self._turn, text=text, thinking=thinking)
        else:
            # Its number is taken all the same: what is journalled must not depend on who looks.
            self._run.scope.tree.stamp()

    def listen(self, poke: Callable[[], None]) -> None:
        self.poke = poke

    def expires(self) -> float | None:
        """Silence has a limit once the model has begun to speak, or from the start if it says it streams."""
        if self._stall_s is None or self._heard_at is None:
            return None
        return self._heard_at + self._stall_s


def _take(run: Run, reservation: Reservation, reply: Reply, turn: int) -> Reply:
    """Settle and record a reply, and put it in the conversation."""
    usage = _said_usage(run, reply)
    delegates = any((tool := run.kit.tools.get(c.name)) and tool.delegates for c in reply.calls)
    run.scope.spend(usage, reservation, run.price, delegates=delegates)
    run.replies += 1
    run.text = reply.text if reply.text.strip() else run.text
    run.model_used = reply.model or run.model_used or run.model.name
    message = AssistantMessage(reply.text, reply.calls, reply.thinking)
    run.messages.append(message)
    if usage.estimated:
        run.estimate += message_tokens(message)
    else:
        run.estimate = usage.input_tokens + usage.output_tokens
    run.scope.emit(ReplyReceived, turn=turn, reply=reply, usage=usage)
    return reply


def _tidy(reply: Reply) -> Reply | None:
    """A model's output is untrusted: valid Unicode, tuples, string ids that differ. None: it cannot be read."""
    try:
        text = clean(reply.text)
        calls = _tidy_calls(reply.calls) if reply.calls else ()
        if text is reply.text and calls == reply.calls and type(reply.thinking) is tuple:
            return reply
        return msgspec.structs.replace(reply, text=text, calls=calls, thinking=tuple(reply.thinking))
    except (TypeError, AttributeError, ValueError):
        return None


def _tidy_calls(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    seen: set[str] = set()
    tidy: list[Call] = []
    for number, call in enumerate(calls, 1):
        call_id = clean(str(call.id or f"call{number}"))
        while call_id in seen:
            call_id = f"{call_id}_{number}"
        seen.add(call_id)
        tidy.append(call if call_id == call.id and _is_sound(call) else _remade(call, call_id))
    return tuple(tidy)


def _is_sound(call: Call) -> bool:
    """Whether it can be written down as it is."""
    try:
        msgspec.json.encode((call.name, call.args), order="deterministic")
    except (TypeError, ValueError, RecursionError):
        return False
    return type(call) is Call and type(call.name) is str and type(call.args) in (dict, str)


def _remade(call: Call, call_id: str) -> Call:
    args = to_json(call.args)
    kept = cast(JsonObject, args) if isinstance(args, dict) else text_of(args)
    return Call(call_id, clean(str(call.name)), kept)


def _said_usage(run: Run, reply: Reply) -> Usage:
    chars = len(reply.text) + sum(len(str(c.args)) for c in reply.calls)
    return _estimated(run, chars) if reply.usage is None else _believable(run, reply.usage, chars)


def _believable(run: Run, said: Usage, chars: int) -> Usage:
    """What a provider said it used, as far as it can be counted; the rest is estimated and marked so."""
    counts = (said.input_tokens, said.output_tokens, said.cache_read_tokens, said.cache_write_tokens)
    if not all(type(n) is int and 0 <= n <= HIGHEST for n in counts):
        return _estimated(run, chars)
    usd, guessed = said.usd, said.estimated
    if usd is not None and not (type(usd) in (int, float) and 0 <= usd <= HIGHEST):
        usd, guessed = None, True
    if usd is None and run.price is not None:
        usd = ledger.cost(run.price, said.input_tokens, said.output_tokens) / 1_000_000
    if said.requests == 1 and usd == said.usd:
        return said
    return msgspec.structs.replace(said, requests=1, usd=usd, estimated=guessed)


def _estimated(run: Run, output_chars: int) -> Usage:
    output = (output_chars + 2) // 3
    usd = None if run.price is None else ledger.cost(run.price, run.estimate, output) / 1_000_000
    return Usage(1, run.estimate, output, usd=usd, estimated=True)


def _usage_of_failure(run: Run, error: ModelError, chars: int) -> Usage:
    if error.usage is not None:
        return _believable(run, error.usage, chars)
    if error.kind in SENT_KINDS or chars:
        return _estimated(run, chars)
    return Usage(1, usd=None if run.price is None else 0.0)


def _as_model_error(run: Run, ended: foreign.Ended) -> ModelError:
    name = run.model.name
    if ended.how == "timed_out":
        silence = run.scope.limits.stall_seconds
        return ModelError(f"the model {name} said nothing for {silence:g} s", kind="stalled")
    if isinstance(ended.error, ModelError):
        return ended.error
    if ended.error is not None:
        what = f"{type(ended.error).__name__}: {ended.error}"
        return ModelError(clean(f"the model {name} panicked: {what}"), kind="bug", retryable=False)
    what = (
        "a Reply with fields of the wrong type"
        if isinstance(ended.value, Reply)
        else type(ended.value).__name__
    )
    return ModelError(f"the model {name} returned {what}, not a remit.Reply", kind="bug", retryable=False)


def _delay(run: Run, error: ModelError, attempt: int) -> float | None:
    """Seconds until the next attempt; None when there is to be none."""
    if not error.retryable or attempt > RETRIES:
        return None
    # Seeded by the run, so that siblings spread out and a test sees the same every time.
    jitter = random.Random(f"{run.scope.run_id}/{run.replies}/{attempt}").uniform(0.5, 1.0)  # noqa: S311
    delay = min(MOST_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** (attempt - 1)) * jitter
    if error.retry_after is not None:
        delay = max(0.0, error.retry_after)
    return delay if delay < run.scope.deadline.left() else None


def _tell_failed(run: Run, attempt: int, failed: _AttemptFailed, delay: float | None) -> None:
    run.scope.emit(
        ModelCallFailed,
        turn=run.replies + 1,
        attempt=attempt,
        error=clean(str(failed.error)),
        error_kind=failed.error.kind,
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
