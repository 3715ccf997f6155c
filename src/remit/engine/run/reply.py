"""Reads model replies, which are untrusted: a reply that cannot be recorded is the model's failure.

Nothing here raises, so that every reservation is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast, get_args

import msgspec

from remit.engine.budget.account import cost
from remit.engine.run.state import Run
from remit.errors import KINDS, RETRYABLE_KINDS, SENT_KINDS, ModelError, ModelErrorKind, unknown_kind
from remit.tasks.guest import Ended
from remit.types.limits import HIGHEST, Usage
from remit.types.messages import LEFT_OUT, Call, JsonObject, Reply, Stop, Thinking
from remit.types.sizes import MOST_ARGS, MOST_CALLS, MOST_TEXT, weigh
from remit.types.text import clean, describe_error, safe_str, text_of, to_json

log = logging.getLogger("remit")

MOST_NAME = 200
"""The longest tool name or call id; more is invalid."""

TOO_LONG = (
    f"{LEFT_OUT}the arguments are too long. All calls of one reply may have {MOST_ARGS:,} characters of arguments in total."
    " Repeat the call with less, for example with a part of the text."
)
TOO_MANY = (
    f"{LEFT_OUT}the reply has {{count:,}} calls; the maximum is {MOST_CALLS:,}. This call and those after it were dropped."
    " Make them in later replies if they are still needed."
)

_encoder = msgspec.json.Encoder(order="deterministic")
_STOPS = get_args(Stop)

COUNTS = ("requests", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
"""The fields of `Usage` that count something."""


def read(run: Run, ended: Ended | None) -> Reply | ModelError:
    """The reply, ready to be recorded, or the error."""
    if ended is None:
        return ModelError("stopped", kind="connection", retryable=False)
    if ended.how == "timed_out" and not isinstance(ended.value, Reply):
        silence = run.node.bounds.limits.stall_seconds
        said = _tidy_usage(getattr(ended.error, "usage", None))
        return ModelError(
            f"the model {run.asking.model.name} said nothing for {silence:g} s", kind="stalled", usage=said
        )
    if ended.error is not None:
        return _failure(run, ended.error)
    if not isinstance(ended.value, Reply):
        what = type(ended.value).__name__
        return _bug(f"the model {run.asking.model.name} returned {what}, not a Reply")
    reply = _tidy(ended.value)
    if isinstance(reply, Reply):
        if reply.usage is None and ended.value.usage is not None:
            _warn_uncounted(run, ended.value.usage)
        return reply
    return _bug(f"the model {run.asking.model.name} returned an invalid Reply: {reply}")


def _warn_uncounted(run: Run, said: object) -> None:
    """Warn once per run, so that the model's author learns that limits use estimates instead."""
    counts = isinstance(said, Usage)
    why = (
        "its counts must be whole numbers, 0 or more"
        if counts
        else f"{type(said).__name__}, not a remit.Usage"
    )
    text = f"The usage from the model {run.asking.model.name} is invalid, so it is estimated: {why}."
    if text not in run.node.warnings:
        run.node.warn(text)


def usage_of(run: Run, heard: Reply | ModelError, chars: int) -> Usage:
    """The usage of the call: the provider's numbers if they are valid, otherwise an estimate."""
    said = heard.usage
    if said is not None:
        return said if said.requests == 1 and said.usd is not None else _priced(run, said)
    if isinstance(heard, Reply):
        chars = len(heard.text) + sum(len(str(c.args)) for c in heard.calls)
    elif heard.kind not in SENT_KINDS and not chars:
        return Usage(1, usd=None if run.asking.model.price is None else 0.0)
    return estimated(run, chars)


def estimated(run: Run, output_chars: int) -> Usage:
    """The probable usage of a call, marked as an estimate."""
    output = (output_chars + 2) // 3
    usd = (
        None
        if run.asking.model.price is None
        else cost(run.asking.model.price, run.talk.tokens, output) / 1_000_000
    )
    return Usage(1, run.talk.tokens, output, usd=usd, estimated=True)


def _failure(run: Run, error: BaseException) -> ModelError:
    if not isinstance(error, ModelError):
        # Not a warning: the outcome names the failure, as for a tool.
        log.info(
            "model %s raised %s, not a ModelError",
            run.asking.model.name,
            type(error).__name__,
            exc_info=error,
        )
        return _bug(f"the model {run.asking.model.name} panicked: {describe_error(error)}")
    # A copy: the model's exception may be raised again by another run, and may lack attributes.
    words, said = safe_str(error), getattr(error, "kind", None)
    known = isinstance(said, str) and said in KINDS
    kind = cast(ModelErrorKind, said) if known else "server"
    if not known and said is not None:
        # `kind` was set after construction, unchecked. Treat the error as retryable, and say why.
        words = f"{words} (treated as 'server': {unknown_kind(safe_str(said))})"
    after: object = getattr(error, "retry_after", None)
    again: object = getattr(error, "retryable", None)
    return ModelError(
        clean(words),
        kind=kind,
        retryable=again if isinstance(again, bool) else kind in RETRYABLE_KINDS,
        retry_after=float(after) if isinstance(after, (int, float)) and 0 <= after <= HIGHEST else None,
        usage=_tidy_usage(getattr(error, "usage", None)),
    )


def _bug(message: str) -> ModelError:
    return ModelError(message, kind="bug", retryable=False)


def _tidy(reply: Reply) -> Reply | str:
    """A copy of the reply that can be recorded, or what is wrong with it.

    Always a copy: a reply of the model's own class may hold data that cannot be read or redacted.
    """
    if not isinstance(cast(object, reply.text), str) or not isinstance(cast(object, reply.model), str):
        return "text and model must be strings"
    if reply.stop not in _STOPS:
        return f"stop must be one of {', '.join(_STOPS)}, not {safe_str(reply.stop)[:60]!r}"
    try:
        return Reply(
            text=clean(reply.text[:MOST_TEXT]),
            calls=_tidy_calls(reply.calls) if reply.calls else (),
            thinking=_tidy_thinking(reply.thinking) if reply.thinking else (),
            # A truncated text is not a complete answer.
            stop="length" if len(reply.text) > MOST_TEXT and reply.stop != "refusal" else reply.stop,
            usage=_tidy_usage(reply.usage),
            model=clean(reply.model),
            details=None if reply.details is None else _tidy_details(reply.details),
        )
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        return safe_str(error)[:200]


def _tidy_details(details: object) -> JsonObject | None:
    """The adapter's details, if they can be recorded."""
    if not isinstance(details, dict) or weigh(cast(object, details), MOST_TEXT) > MOST_TEXT:
        return None
    try:
        msgspec.json.encode(cast(JsonObject, details))
    except (TypeError, ValueError, RecursionError):
        return None
    return cast(JsonObject, details)


def _tidy_calls(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    _check_calls(calls)
    seen: set[str] = set()
    tidy: list[Call] = []
    room = MOST_ARGS
    for number, call in enumerate(calls[:MOST_CALLS], 1):
        size = weigh(call.args, room)
        if size <= room:
            room -= size
            tidy.append(_tidy_call(call, number, seen, _tidy_args(call.args)))
        else:
            tidy.append(_tidy_call(call, number, seen, TOO_LONG))
    if len(calls) > MOST_CALLS:
        # Keep the first dropped call, so that its result tells the model.
        args = TOO_MANY.format(count=len(calls))
        tidy.append(_tidy_call(calls[MOST_CALLS], MOST_CALLS + 1, seen, args))
    return tuple(tidy)


def _tidy_call(call: Call, number: int, seen: set[str], args: JsonObject | str) -> Call:
    call_id = clean(safe_str(call.id or f"call{number}")[:MOST_NAME])
    while call_id in seen:
        call_id = f"{call_id}_{number}"
    seen.add(call_id)
    return Call(call_id, clean(safe_str(call.name)[:MOST_NAME]), args)


def _check_calls(calls: object) -> None:
    several = isinstance(calls, (tuple, list))
    wrong = [c for c in cast("Sequence[object]", calls) if not isinstance(c, Call)] if several else [calls]
    if wrong:
        which, what = "one" if several else "it", type(wrong[0]).__name__
        raise TypeError(f"calls must be a tuple of Call(id, name, args) objects; {which} is of type {what}")


def _tidy_args(given: object) -> JsonObject | str:
    """The arguments as an object, parsed if a provider sent them as JSON text; otherwise as text."""
    args = to_json(given)
    if isinstance(args, dict):
        return cast(JsonObject, args)
    text = text_of(args)
    if not text.lstrip().startswith("{"):
        return text
    try:
        read: object = msgspec.json.decode(text)
        # Not everything that can be parsed can be encoded again.
        _encoder.encode(read)
    except (TypeError, ValueError, RecursionError):
        return text
    return cast(JsonObject, read) if isinstance(read, dict) else text


def _tidy_thinking(blocks: tuple[Thinking, ...]) -> tuple[Thinking, ...]:
    if weigh([block.text for block in blocks], MOST_TEXT) > MOST_TEXT:
        # The provider that signed the thinking would refuse a truncated text.
        return ()
    parts = [(b.text, b.signature, b.provider) for b in blocks]
    return tuple(Thinking(*(clean(safe_str(p)) for p in part)) for part in parts)


def _tidy_usage(said: object) -> Usage | None:
    """A provider's usage, if its numbers are valid; None otherwise."""
    if not isinstance(said, Usage):
        return None
    counts = [_whole(getattr(said, name)) for name in COUNTS]
    if None in counts:
        return None
    usd, estimated = said.usd, said.estimated is not False
    if usd is not None and not _is_amount(usd):
        usd, estimated = None, True
    return Usage(*cast("list[int]", counts), usd=usd, estimated=estimated)


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= HIGHEST


def _whole(value: object) -> int | None:
    """A whole number of at least 0 as a plain int; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    number = int.__add__(value, 0)
    return number if 0 <= number <= HIGHEST else None


def _priced(run: Run, said: Usage) -> Usage:
    """The usage as one request, with a cost from the price if the provider gave none."""
    usd = said.usd
    if usd is None and run.asking.model.price is not None:
        usd = cost(run.asking.model.price, said.input_tokens, said.output_tokens) / 1_000_000
    if said.requests == 1 and usd == said.usd:
        return said
    return msgspec.structs.replace(said, requests=1, usd=usd)
