"""Shortens conversations that do not fit the remaining budget or the model's context window.

Old results are shortened first, with their whole text stored as artifacts. If that is not enough, the old part of the
conversation is replaced by a summary. A call is never separated from its result.
"""

from __future__ import annotations

import msgspec

import remit.engine.budget.ledger as ledger
from remit.engine.budget.account import LEAST_OUTPUT, RESULT_TOKENS
from remit.engine.budget.model_choice import window_of
from remit.engine.run.artifacts import keep
from remit.engine.run.model_call import ModelFailed, OverBudget, exchange
from remit.engine.run.state import Run
from remit.engine.run.tokens import message_tokens
from remit.engine.run.tool_calls import refuse_calls
from remit.types.events import Compacted, ResultCut
from remit.types.messages import AssistantMessage, Message, ToolMessage, UserMessage, user
from remit.types.text import cut_chars

LEAST_RESULT_TOKENS = 10
"""A result is cut to this for a last word if `RESULT_TOKENS` do not fit."""

CUT = "[cut]"
SHORTENED = "[remit] Shortened"
"""Start of the note on a shortened result; only remit writes notes."""

LONG_RESULT = 1200
SHORT_RESULT = 400
"""An old result longer than the first number of characters is shortened to the second."""

NOTE_TOKENS = 60
"""Tokens for the note on a shortened result."""

LEAST_WINDOW = 500
"""A conversation is not shortened for a smaller window than this."""

FRESH_TURNS = 2
"""The results of this many last turns stay whole."""

ROOMY = 0.6
"""The part of the window to fill after making room."""

SUMMARISE_ALL = (
    "[remit] This conversation is about to exceed your context window. Everything before your last turn will be replaced by"
    " what you write now, and you will continue from it. Write down all you need: the task and its terms, what was done"
    " and found (with names, numbers and paths), what was decided and why, and what is still to do."
)
SUMMARY = "[remit] The earlier part of this conversation was replaced by your own summary of it:\n\n"


async def fit(run: Run) -> bool:
    """Make room before a turn that would exceed the model's window; returns whether any was made. Raises Stopped."""
    window, before = run.asking.window, run.talk.tokens
    if window is None or before <= (most := _most(run, window)):
        return False
    await _shorten_old(run, int(window * ROOMY))
    if run.talk.tokens > most:
        await _shorten_fresh(run, int(window * ROOMY))
    if run.talk.tokens > most and run.talk.tokens > run.talk.unsummarised * 6 // 5:
        await _summarise(run, most)
    return run.talk.tokens < before


async def squeeze(run: Run) -> None:
    """Make room for a last word or a summary, without asking the model. Raises Stopped."""
    window = run.asking.window
    if window is not None and run.talk.tokens > _most(run, window):
        await _shorten_old(run, int(window * ROOMY))
        if run.talk.tokens > _most(run, window):
            await _shorten_fresh(run, int(window * ROOMY))


def learn_window(run: Run) -> bool:
    """The provider refused the conversation as too long: assume a smaller window. Returns whether shortening can help."""
    if run.node.bounds.limits.context_tokens is None:
        return False
    run.asking.learnt = run.talk.tokens // 2
    run.asking.window = window_of(run.asking.model, run.node.bounds.limits, run.asking.learnt)
    return run.asking.learnt > LEAST_WINDOW


def _most(run: Run, window: int) -> int:
    """The largest conversation that leaves room for an answer."""
    return window - max(min(run.asking.output_tokens, window // 4), window // 10)


async def _shorten_old(run: Run, enough: int) -> None:
    """Shorten results from before the last turns, oldest first, until the conversation is small enough."""
    fresh = _turn_before(run.talk.messages, FRESH_TURNS)
    for place in range(fresh):
        message = run.talk.messages[place]
        if run.talk.tokens <= enough:
            return
        if isinstance(message, ToolMessage) and (len(message.content) > LONG_RESULT or message.parts):
            await _shorten(run, place, message)


async def _shorten_fresh(run: Run, most: int) -> None:
    """Shorten the last turns' results too, longest first, each to its share of the room."""
    fresh = [
        (message_tokens(m), place)
        for place, m in enumerate(run.talk.messages)
        if isinstance(m, ToolMessage) and len(m.content) > LONG_RESULT
    ]
    room = most - (run.talk.tokens - sum(tokens for tokens, _ in fresh))
    share = max(SHORT_RESULT, 3 * (room // max(1, len(fresh)) - NOTE_TOKENS))
    for _, place in sorted(fresh, reverse=True):
        message = run.talk.messages[place]
        if run.talk.tokens <= most:
            return
        if isinstance(message, ToolMessage) and len(message.content) > share:
            await _shorten(run, place, message, share)


async def _shorten(run: Run, place: int, message: ToolMessage, chars: int = SHORT_RESULT) -> None:
    content = f"{cut_chars(message.content, chars)}{CUT}"
    if message.note.startswith(SHORTENED):
        # The whole text is already stored, and the note says where.
        _put(run, place, message, content, message.note)
        return
    kept = await keep(run, f"result_{len(run.artifacts) + 1}", message.content)
    note = f"{SHORTENED} from {len(message.content):,} characters to make room."
    if kept is not None and any(spec.name == "read_artifact" for spec in run.kit.specs):
        note = f'{note} Read it with read_artifact(artifact="{kept.id}").'
    _put(run, place, message, content, note)


def _put(run: Run, place: int, message: ToolMessage, content: str, note: str) -> None:
    shorter = msgspec.structs.replace(message, content=content, note=note, parts=())
    run.talk.messages[place] = shorter
    run.talk.tokens = max(0, run.talk.tokens + message_tokens(shorter) - message_tokens(message))
    node = run.node
    node.emit(ResultCut(*node.stamp(), call=message.call_id, content=content, note=note, place=place))


async def _summarise(run: Run, most: int) -> None:
    """Let the model write a summary, and replace the old part of the conversation with it."""
    kept_from, began = _turn_before(run.talk.messages, 1), len(run.talk.messages)
    left = run.talk.base + sum(
        map(message_tokens, [run.talk.messages[run.talk.task_at], *run.talk.messages[kept_from:]])
    )
    requests = ledger.left(run.node.means.account).requests
    # A summary would be wasted if there is no old part, if even the rest is too long, or if no request would be left for
    # the turn itself.
    if kept_from <= run.talk.task_at + 1 or left > most or (requests is not None and requests < 2):
        return
    before = run.talk.unsummarised = run.talk.tokens
    run.tell(SUMMARISE_ALL, "compact")
    try:
        reply = await exchange(run, "compact")
    except (OverBudget, ModelFailed):
        _forget(run, began)
        return
    refuse_calls(run, reply.calls, "Not run: only a summary was asked for.")
    task, last = run.talk.messages[run.talk.task_at], run.talk.messages[kept_from:began]
    shorter: list[Message] = [task, user(SUMMARY + reply.text), *last]
    after = run.talk.base + sum(map(message_tokens, shorter))
    if not reply.text.strip() or reply.stop not in ("end", "calls") or after > before * 9 // 10:
        _forget(run, began)
        return
    run.talk.messages, run.talk.tokens, run.talk.unsummarised = shorter, after, 0
    node = run.node
    node.emit(
        Compacted(
            *node.stamp(),
            summary=SUMMARY + reply.text,
            task_at=run.talk.task_at,
            kept_from=kept_from,
            kept_to=began,
            before=before,
            after=run.talk.tokens,
        )
    )
    run.talk.task_at = 0


def _forget(run: Run, began: int) -> None:
    """Remove a failed summary from the conversation."""
    gone = run.talk.messages[began:]
    run.tally.replies -= sum(isinstance(m, AssistantMessage) for m in gone)
    run.talk.tokens = max(0, run.talk.tokens - sum(map(message_tokens, gone)))
    del run.talk.messages[began:]


def _turn_before(messages: list[Message], turns: int) -> int:
    """Where the last `turns` turns begin."""
    for place in reversed(range(len(messages))):
        if isinstance(messages[place], AssistantMessage):
            turns -= 1
            if turns == 0:
                return place
    return 0


def _last_results(run: Run) -> list[int]:
    """The positions of the last turn's results; messages sent to the run since then come after them."""
    index = len(run.talk.messages) - 1
    while index >= 0 and isinstance(run.talk.messages[index], UserMessage):
        index -= 1
    found: list[int] = []
    while index >= 0 and isinstance(run.talk.messages[index], ToolMessage):
        found.append(index)
        index -= 1
    return found


async def shorten_last(run: Run) -> None:
    """Cut the last turn's results so that the request fits the withheld budget; the whole texts become artifacts."""
    results = _last_results(run)
    base = run.talk.tokens - sum(message_tokens(run.talk.messages[i]) for i in results)
    tokens = ledger.left(run.node.means.account).tokens
    each = RESULT_TOKENS if tokens is None else (tokens - base - LEAST_OUTPUT) // max(1, len(results)) - 15
    chars = 3 * max(LEAST_RESULT_TOKENS, min(RESULT_TOKENS, each))
    run.talk.tokens = base
    for i in results:
        message = run.talk.messages[i]
        assert isinstance(message, ToolMessage)
        content = message.content
        if len(content) > chars:
            await keep(run, f"result_{i}", content)
            content = f"{cut_chars(content, chars)}[cut]"
        run.talk.messages[i] = msgspec.structs.replace(message, content=content, note="")
        run.talk.tokens += message_tokens(run.talk.messages[i])
        run.node.emit(ResultCut(*run.node.stamp(), call=message.call_id, content=content))
