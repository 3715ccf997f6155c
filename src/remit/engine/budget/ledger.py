"""The ledger: reserve before a call, settle after it, reject what does not fit. Pure: no I/O, no clock, no tasks.

Accounts form the same tree as runs. Before a model call is sent, it reserves its worst case in its own account and in
every ancestor's; afterwards it settles what it used. Only accounts with a cap have a book, and only books are updated,
so a tree without caps pays nothing.

For one capped resource of one book, with the words of docs/glossary.md::

    |<------------------------- cap ------------------------->|
    | spent | withheld for last words | reserved | spare | free |
                                      |<--------- room -------->|

- last word: one model call that a delegating run keeps for its own answer. It is withheld while the run has children.
- book: the sums of one account with a cap.
- spare: the last words that calls in flight hold in case their replies delegate.
- free: available now.
- room: available once the calls in flight have settled. An amount larger than `room` is over budget.

Tickets wait only for calls in flight, so waiting cannot deadlock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import ceil

from remit.engine.budget.account import (
    LEAST_OUTPUT,
    NOTHING,
    Account,
    Amount,
    Book,
    Over,
    Overrun,
    Reservation,
    Ticket,
    Verdict,
    Want,
    cost,
    in_the_way,
    least_free,
    overrun_of,
)
from remit.types.limits import NO_CAP, Left

ROOMY_OUTPUT = 256
"""A call that may delegate gives up output down to this, to leave room for its last word."""


def weigh(ticket: Ticket) -> Verdict | Ticket:
    """Decide on a ticket that does not simply fit: a verdict, or a place in the queue."""
    account, verdict = ticket.account, _judge(ticket)
    if isinstance(verdict, Book):
        verdict.line_up(ticket)
        return ticket
    if ticket.before != account.last_word:
        look_again(account)
    return verdict


def _judge(ticket: Ticket) -> Verdict | Book:
    """Grant the ticket, refuse it, or name the book whose calls in flight must settle first."""
    account, own, taken = ticket.account, ticket.account.last_word, False
    fitting = _fit(ticket, NOTHING) if account.has_word or not ticket.spare else _fit_beside_spare(ticket)
    short = not isinstance(fitting, int) or (fitting < ticket.want.output_tokens and not ticket.keep)
    if account.has_word and short:
        # The last word goes ahead of the queue, and is used before an answer is shortened for lack of room.
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
    """Like `_fit`, but shrink a call a little more if that leaves room for its spare last word."""
    want, spare = ticket.want, ticket.spare
    assert spare is not None
    beside = spare.input_tokens + spare.output_tokens
    roomy = _fit(ticket, NOTHING, Want(want.input_tokens + beside, want.output_tokens, want.price))
    if isinstance(roomy, int) and roomy >= min(ROOMY_OUTPUT, want.output_tokens):
        return roomy
    return _fit(ticket, NOTHING)


def _hold_spare(ticket: Ticket) -> Amount:
    """Hold the last word that a delegating reply would need, if there is room for it now."""
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
    """How many output tokens fit in every book, or the limit or book that blocks the call."""
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
    """The output that fits in this book for an account that withholds `own`; None: wait; Over: never fits."""
    least, caps = want.amount(want.least_output), b.caps
    requests = b.free_requests + own.requests
    # A request in flight is always spent, so do not wait for it; a spare one may be released.
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
    """Serve the queues of these books in order, until the first ticket must keep waiting."""
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
    """Withhold this amount instead of the previous one."""
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


ENDLESS = NO_CAP // 2
"""Free amounts with a cap are always smaller."""


def reserve(account: Account, want: Want, wake: Callable[[], None], spare: bool = False) -> Verdict | Ticket:
    """Reserve budget for one model call: a reservation, a refusal, or a ticket (then `wake` is called later).

    With `spare`, a last word is also held if it fits; it is never waited for: see `Reservation.spares`.
    """
    inputs, output, price = want.input_tokens, want.output_tokens, want.price
    # `cost`, inlined: this runs on every turn.
    tokens, micros = inputs + output, 0
    if price is not None:
        micros = ceil(inputs * price.input + output * price.output)
    spare_tokens = spare_micros = 0
    # At most one last word is withheld.
    if spare and account.capped and not account.has_word:
        spare_tokens, spare_micros = inputs + LEAST_OUTPUT, cost(price, inputs, LEAST_OUTPUT)
    both_tokens, both_micros = tokens + spare_tokens, micros + spare_micros
    requests = 2 if spare_tokens else 1
    for b in account.capped:
        if b.waiting or b.overran or b.free_requests < requests:
            return _ask(account, want, wake, spare)
        if b.free_tokens < both_tokens or b.free_micros < both_micros:
            return _ask(account, want, wake, spare)
    for b in account.capped:
        b.free_requests -= requests
        b.free_tokens -= both_tokens
        b.free_micros -= both_micros
        if spare_tokens:
            b.spare_requests += 1
            b.spare_tokens += spare_tokens
            b.spare_micros += spare_micros
    return Reservation(account, tokens, micros, output, spare_tokens > 0, spare_tokens, spare_micros)


def withhold(account: Account, want: Want, wake: Callable[[], None]) -> Verdict | Ticket:
    """Withhold one call for the run's last word. For all other calls it counts as spent.

    It stays withheld until `reserve` uses it or `release` frees it. Another call replaces the amount.
    """
    inputs, output = want.input_tokens, want.output_tokens
    tokens, micros = inputs + output, cost(want.price, inputs, output)
    for b in account.capped:
        if b.waiting or b.overran or b.free_requests < 1 or b.free_tokens < tokens or b.free_micros < micros:
            return weigh(Ticket(account, want, wake, keep=True, spare=None))
    if account.capped:
        set_last_word(account, True, tokens, micros)
    return Reservation(account, tokens, micros, output)


def settle(
    reservation: Reservation, used_tokens: int, used_micros: int, word: Want | None = None
) -> tuple[Overrun, ...]:
    """Replace the reserved amount by the used amount, then serve the queues.

    If the reply delegates, `word` is the last word that its run should have. The spare amount is withheld for it in the
    same step, before another call can take it, and more if that fits: see `Account.word_full`.
    """
    account, tokens, micros = reservation.account, reservation.tokens, reservation.micros
    waited = False
    for b in account.capped:
        b.spent_requests += 1
        b.spent_tokens += used_tokens
        b.spent_micros += used_micros
        b.free_tokens += tokens - used_tokens
        b.free_micros += micros - used_micros
        if b.waiting:
            waited = True
    over = used_tokens > tokens or used_micros > micros
    overruns = _overruns(reservation, used_tokens, used_micros) if over else ()
    if word is not None:
        _keep_word(reservation, word)
    elif reservation.spares:
        _free_spare(reservation)
    if waited:
        look_again(account)
    return overruns


def release(account: Account) -> None:
    """Free the amount withheld for the run's last word."""
    if not account.has_word:
        return
    set_last_word(account, False, 0, 0)
    for b in account.capped:
        if b.waiting:
            look_again(account)
            return


def withdraw(ticket: Ticket) -> None:
    """Leave the queue. A verdict that came meanwhile is undone."""
    # The ticket stays in the heap until it comes to the front, so that a thousand can leave cheaply.
    ticket.gone = True
    account, verdict = ticket.account, ticket.verdict
    if isinstance(verdict, Reservation):
        if not ticket.keep:
            for b in account.capped:
                b.give(verdict.amount)
            if verdict.spares:
                _free_spare(verdict)
        before = ticket.before
        set_last_word(account, before.requests > 0, before.tokens, before.micros)
    look_again(account)


def give_back(reservation: Reservation) -> None:
    """Undo a reservation whose call was never sent."""
    for b in reservation.account.capped:
        b.give(reservation.amount)
    if reservation.spares:
        _free_spare(reservation)
    look_again(reservation.account)


def charge(account: Account, calls: int = 0, delegations: int = 0) -> Over | None:
    """Count calls and delegations in one step: all of them, or none, with the limit that blocked them."""
    for b in account.capped:
        if calls > b.free_calls:
            return Over(b.owner, "calls", b.caps.calls, b.calls)
        if delegations > b.free_delegations:
            return Over(b.owner, "delegations", b.caps.delegations, b.delegations)
    for b in account.capped:
        b.free_calls -= calls
        if delegations:
            b.free_delegations -= delegations
    return None


def restore(account: Account, spent: Amount, *, calls: int, delegations: int, overran: str) -> None:
    """Set a resumed run's own account to the recorded amounts."""
    if account.book is not None:
        account.book.restore(spent, calls, delegations, overran)


def look(account: Account) -> Over | None:
    """The limit that blocks any new child of this account, if there is one. Reserves nothing."""
    for b in account.capped:
        if b.free_delegations < 1 or b.overran or b.is_empty:
            over = in_the_way(b)
            if over is not None:
                return over
    return None


def is_at_its_last_word(account: Account) -> bool:
    """Whether the run can only afford its withheld last word."""
    if account.has_word:
        # A plain loop, faster than a generator: this runs after every delegation.
        for b in account.capped:
            if b.free_requests < 1 or b.free_tokens < 1 or b.free_micros < 1:
                return True
    return False


def left(account: Account, less: Amount = NOTHING) -> Left:
    """The smallest remainder of each resource over the account and its ancestors, `less` what is taken off."""
    delegations, requests, tokens, micros, calls = remainders(account)
    requests, tokens, micros = requests - less.requests, tokens - less.tokens, micros - less.micros
    return Left(
        delegations=None if delegations > ENDLESS else max(0, delegations),
        requests=None if requests > ENDLESS else max(0, requests),
        tokens=None if tokens > ENDLESS else max(0, tokens),
        usd=None if micros > ENDLESS else max(0, micros) / 1_000_000,
        calls=None if calls > ENDLESS else max(0, calls),
    )


def limits_money(account: Account) -> bool:
    """Whether a money limit applies to the account."""
    return any(b.caps.micros < NO_CAP for b in account.capped)


def remainders(account: Account) -> tuple[int, int, int, int, int]:
    """`left` as plain numbers, for frequent use: money in micro-dollars, and a huge number where there is no cap.

    Negative if calls in flight used more than was reserved.
    """
    books = account.capped
    if not books:
        return NO_CAP, NO_CAP, NO_CAP, NO_CAP, NO_CAP
    b = books[0]
    if len(books) > 1 or b.overran:
        delegations, requests, tokens, micros, calls = least_free(books)
    else:
        delegations, requests, tokens = b.free_delegations, b.free_requests, b.free_tokens
        micros, calls = b.free_micros, b.free_calls
    if account.has_word:
        requests += 1
        tokens += account.word_tokens
        micros += account.word_micros
    return delegations, requests, tokens, micros, calls


def _free_spare(reservation: Reservation) -> None:
    tokens, micros = reservation.spare_tokens, reservation.spare_micros
    for b in reservation.account.capped:
        b.spare_requests -= 1
        b.spare_tokens -= tokens
        b.spare_micros -= micros
        b.free_requests += 1
        b.free_tokens += tokens
        b.free_micros += micros


def _keep_word(reservation: Reservation, word: Want) -> None:
    """Turn the spare amount into the run's last word, at full size if that fits without waiting."""
    account, books = reservation.account, reservation.account.capped
    # If a last word was already withheld, none was spare.
    account.word_full = not books
    if not reservation.spares:
        return
    tokens, micros = reservation.spare_tokens, reservation.spare_micros
    inputs, output = word.input_tokens, word.output_tokens
    more_tokens, more_micros = inputs + output - tokens, cost(word.price, inputs, output) - micros
    account.word_full = True
    for b in books:
        if b.waiting or b.overran or b.free_tokens < more_tokens or b.free_micros < more_micros:
            account.word_full, more_tokens, more_micros = False, 0, 0
            break
    account.has_word = True
    account.word_tokens = word_tokens = tokens + more_tokens
    account.word_micros = word_micros = micros + more_micros
    for b in books:
        b.spare_requests -= 1
        b.spare_tokens -= tokens
        b.spare_micros -= micros
        b.withheld_requests += 1
        b.withheld_tokens += word_tokens
        b.withheld_micros += word_micros
        b.free_tokens -= more_tokens
        b.free_micros -= more_micros


def _overruns(reservation: Reservation, tokens: int, micros: int) -> tuple[Overrun, ...]:
    """Close the accounts that cap a resource of which more was used than reserved."""
    overruns: dict[str, Overrun] = {}
    for b in reservation.account.capped:
        if tokens > reservation.tokens and b.caps.tokens < NO_CAP:
            b.overran = "tokens"
            overruns["tokens"] = Overrun("tokens", reservation.tokens, tokens)
        if micros > reservation.micros and b.caps.micros < NO_CAP:
            b.overran = "usd"
            overruns["usd"] = Overrun("usd", reservation.micros, micros)
    return tuple(overruns.values())


def _ask(account: Account, want: Want, wake: Callable[[], None], spare: bool) -> Verdict | Ticket:
    word = Want(want.input_tokens, LEAST_OUTPUT, want.price) if spare else None
    return weigh(Ticket(account, want, wake, keep=False, spare=word))
