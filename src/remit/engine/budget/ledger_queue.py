"""What becomes of a model call that does not simply fit: granted, never, or later; and who is served when something is free."""

from __future__ import annotations

import heapq

from remit.engine.budget.account import Account, Reservation, Ticket, Verdict
from remit.engine.budget.account_amounts import NOTHING, Amount, Want
from remit.engine.budget.account_book import Book, Over, overrun_of

ROOMY_OUTPUT = 256
"""A call that may delegate gives up output down to this, so that its last word is safe."""


def weigh(ticket: Ticket) -> Verdict | Ticket:
    """The verdict on what does not simply fit, or a place in the queue."""
    account, verdict = ticket.account, _judge(ticket)
    if isinstance(verdict, Book):
        verdict.line_up(ticket)
        return ticket
    if ticket.before != account.last_word:
        look_again(account)
    return verdict


def _judge(ticket: Ticket) -> Verdict | Book:
    """Grant it, refuse it, or name the book whose calls in flight must settle first."""
    account, own, taken = ticket.account, ticket.account.last_word, False
    fitting = _fit_beside_spare(ticket) if own is NOTHING and ticket.spare else _fit(ticket, NOTHING)
    short = not isinstance(fitting, int) or (fitting < ticket.want.output_tokens and not ticket.keep)
    if own is not NOTHING and short:
        # The last word goes ahead of the queue, and is used before an answer is cut short for lack of room.
        ahead = _fit(ticket, own, ahead=True)
        if isinstance(ahead, int) and not (isinstance(fitting, int) and ahead <= fitting):
            taken = True
            fitting = ahead
        elif isinstance(fitting, Over):
            fitting = ahead
    if not isinstance(fitting, int):
        return fitting
    amount = ticket.want.amount(fitting)
    ticket.before = own
    if ticket.keep:
        set_last_word(account, True, amount.tokens, amount.micros)
    else:
        if taken:
            set_last_word(account, False, 0, 0)
        for b in account.capped:
            b.take(amount)
    requests, spare_tokens, spare_micros = _hold_spare(ticket)
    return Reservation(account, amount[1], amount[2], fitting, requests > 0, spare_tokens, spare_micros)


def _fit_beside_spare(ticket: Ticket) -> int | Over | Book:
    """As `_fit`, but a call that has to be shrunk is shrunk a little more where that leaves room for its spare."""
    want, spare = ticket.want, ticket.spare
    assert spare is not None
    beside = spare.input_tokens + spare.output_tokens
    roomy = _fit(ticket, NOTHING, Want(want.input_tokens + beside, want.output_tokens, want.price))
    if isinstance(roomy, int) and roomy >= min(ROOMY_OUTPUT, want.output_tokens):
        return roomy
    return _fit(ticket, NOTHING)


def _hold_spare(ticket: Ticket) -> Amount:
    """Hold the last word that a delegating reply would need, if there is room for it right now."""
    account = ticket.account
    if ticket.spare is None or ticket.keep or account.has_word:
        return NOTHING
    extra = ticket.spare.amount(ticket.spare.output_tokens)
    if any(b.overran or not b.has_room(extra) for b in account.capped):
        return NOTHING
    for b in account.capped:
        b.hold(extra)
    return extra


def _fit(ticket: Ticket, own: Amount, want: Want | None = None, *, ahead: bool = False) -> int | Over | Book:
    """How many tokens of output fit in every book, or what stands in the way."""
    want = want or ticket.want
    output = want.output_tokens
    blocked: Book | None = None
    for b in ticket.account.capped:
        if b.overran and (ticket.keep or not ahead):
            return overrun_of(b)
        if not ahead and (first := b.first()) and first.order < ticket.order:
            blocked = blocked or b
        fits = _fit_one(b, want, output, own, ahead=ahead)
        if isinstance(fits, Over):
            return fits
        if fits is None:
            blocked = blocked or b
        else:
            output = fits
    return blocked or output


def _fit_one(b: Book, want: Want, output: int, own: Amount, *, ahead: bool) -> int | Over | None:
    """The output that fits in this book now, for somebody whose own withheld part is `own`; None: later; Over: never."""
    least, caps = want.amount(want.least_output), b.caps
    requests = b.free_requests + own.requests
    # A request in flight will be spent whatever happens, so it is not waited for; what is spare may come free.
    if requests + b.spare_requests < 1:
        return Over(b.owner, "requests", caps.requests, caps.requests - requests - b.spare_requests)
    if requests < 1:
        return None
    for index, resource in ((1, "tokens"), (2, "usd")):
        cap, need, held = caps[index], least[index], b.reserved[index] + b.spare[index]
        taken = b.spent[index] + b.withheld[index] - own[index]
        if taken + need > cap:
            return Over(b.owner, resource, cap, taken, need=need)
        if taken + held + want.amount(output)[index] <= cap:
            continue
        if (held and not ahead) or taken + held + need > cap:
            return None
        output = min(output, want.affordable(cap - taken - held, tokens=index == 1))
    return output


def look_again(account: Account) -> None:
    """Serve the queues of these books in order, until one's first waiter must go on waiting."""
    for b in account.capped:
        if not b.waiting:
            continue
        while ticket := b.first():
            verdict = _judge(ticket)
            if verdict is b:
                break
            heapq.heappop(b.waiting)
            if isinstance(verdict, Book):
                verdict.line_up(ticket)
            else:
                ticket.verdict = verdict
                ticket.wake()


def set_last_word(account: Account, has: bool, tokens: int, micros: int) -> None:
    """Withhold this in the place of what was withheld."""
    requests = has - account.has_word
    more_tokens, more_micros = tokens - account.word_tokens, micros - account.word_micros
    account.has_word, account.word_tokens, account.word_micros = has, tokens, micros
    for b in account.capped:
        if requests:
            b.withheld_requests += requests
            b.free_requests -= requests
        b.withheld_tokens += more_tokens
        b.free_tokens -= more_tokens
        b.withheld_micros += more_micros
        b.free_micros -= more_micros
