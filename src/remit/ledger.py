"""Accounts: reserve before, settle after, reject what does not fit. Pure: no I/O, no clock, no tasks.

Accounts form the same tree as runs. A model call reserves its worst case in its own account and in
every ancestor's before it is sent, and settles what it really used afterwards. Only accounts with a
cap are ever touched, so a tree without caps pays nothing.

For one capped resource of one account::

    |<------------------------- cap ------------------------->|
    | spent | withheld for last words | reserved | spare | free |
                                      |<--------- room -------->|

`free` can be had now; `room` can be had once the calls in flight have settled. `spare` belongs to them
too: the last word of a run whose call in flight may come back with delegations. What fits neither is
over budget. Nothing but calls in flight is ever waited for, so waiting cannot deadlock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from remit.amounts import NOTHING, Amount, Want, cost, minus, plus
from remit.limits import Limits, cap_micros

ROOMY_OUTPUT = 256
"""A call that may delegate gives up output down to this, so that its last word is safe."""

_orders = count()
_NO_CAPS = (None, None, None, None, None)


class Over(NamedTuple):
    """What stands in the way: the owner of the account, the resource, its cap and what is used up."""

    owner: str
    resource: str
    cap: int
    used: int
    overran: bool = False
    need: int = 0
    """What was asked for, where it is more than one."""

    @property
    def words(self) -> str:
        if self.overran:
            return f"a provider used more {self.resource} than was reserved, so nothing more is sent (limit of {self.owner})"
        cap, used = (
            (_usd(self.cap), _usd(self.used))
            if self.resource == "usd"
            else (f"{self.cap:,}", f"{self.used:,}")
        )
        gone = "used" if self.resource in ("calls", "delegations") else "used or kept back"
        needs = _usd(self.need) if self.resource == "usd" else f"{self.need:,}"
        more = f", {needs} needed" if self.need else ""
        return f"{used} of {cap} {self.resource} {gone}{more} (limit of {self.owner})"


class Overrun(NamedTuple):
    """A call that used more than it had reserved."""

    resource: str
    reserved: int
    used: int


class Reservation(NamedTuple):
    """Head-room held for one call in flight. `output_tokens` is what the call may say."""

    account: Account
    amount: Amount
    output_tokens: int
    spare: Amount = NOTHING
    """Held besides, as long as the call is in flight: it becomes the last word if the reply delegates."""


class Ticket:
    """A place in the queue for head-room. `verdict` is set, and `wake` called, once it is known."""

    __slots__ = ("account", "before", "gone", "keep", "order", "spare", "verdict", "wake", "want")

    def __init__(
        self, account: Account, want: Want, wake: Callable[[], None], *, keep: bool, spare: Want | None
    ) -> None:
        self.account = account
        self.want = want
        self.spare = spare
        self.keep = keep
        self.wake = wake
        self.order = next(_orders)
        self.before = NOTHING
        """The last word as it was before this was granted, so that it can be undone."""
        self.gone = False
        self.verdict: Reservation | Over | None = None

    def __lt__(self, other: Ticket) -> bool:
        return self.order < other.order


Verdict = Reservation | Over


class Account:
    """One run's caps, and what it and everything below it has spent, reserved and withheld."""

    __slots__ = (
        "calls",
        "calls_cap",
        "capped",
        "delegations",
        "delegations_cap",
        "last_word",
        "micros_cap",
        "overran",
        "owner",
        "requests_cap",
        "reserved",
        "spare",
        "spent",
        "tokens_cap",
        "waiting",
        "withheld",
    )

    def __init__(self, owner: str, limits: Limits, parent: Account | None = None) -> None:
        self.owner = owner
        self.requests_cap = _whole(limits.requests)
        self.tokens_cap = _whole(limits.tokens)
        self.micros_cap = cap_micros(limits.usd) if isinstance(limits.usd, (int, float)) else None
        self.calls_cap = _whole(limits.calls)
        self.delegations_cap = _whole(limits.delegations)
        self.spent = self.reserved = self.spare = self.withheld = NOTHING
        self.calls = self.delegations = 0
        self.last_word = NOTHING
        """What this run has withheld for itself, here and in every capped ancestor."""
        self.overran = ""
        self.waiting: list[Ticket] = []
        above = parent.capped if parent else ()
        caps = (self.requests_cap, self.tokens_cap, self.micros_cap, self.calls_cap, self.delegations_cap)
        self.capped: tuple[Account, ...] = above if caps == _NO_CAPS else (self, *above)
        """The accounts that can say no: this one and its ancestors, as far as they have a cap."""


def reserve(
    account: Account, want: Want, wake: Callable[[], None], *, spare: Want | None = None
) -> Verdict | Ticket:
    """Head-room for one model call: now, never, or later (then `wake` is called).

    `spare` is held besides where it fits, and never waited for: see `Reservation.spare`.
    """
    return _ask(account, want, wake, keep=False, spare=spare)


def withhold(account: Account, want: Want, wake: Callable[[], None]) -> Verdict | Ticket:
    """Keep one call for the run's last word. For everyone else it counts as spent.

    It stays withheld until `reserve` takes it, or `release`. Asking again replaces the amount.
    """
    return _ask(account, want, wake, keep=True, spare=None)


def settle(reservation: Reservation, used: Amount, *, delegates: bool = False) -> list[Overrun]:
    """Put what was really used in the place of what was reserved, and look again at who waits.

    When the reply `delegates`, what was spare is withheld in the same step, before anybody can take it.
    """
    account, amount, spare = reservation.account, reservation.amount, reservation.spare
    overruns: dict[str, Overrun] = {}
    for a in account.capped:
        a.reserved = minus(a.reserved, amount)
        if spare is not NOTHING:
            a.spare = minus(a.spare, spare)
        a.spent = plus(a.spent, used)
        if used[1] > amount[1] and a.tokens_cap is not None:
            a.overran = "tokens"
            overruns["tokens"] = Overrun("tokens", amount.tokens, used.tokens)
        if used[2] > amount[2] and a.micros_cap is not None:
            a.overran = "usd"
            overruns["usd"] = Overrun("usd", amount.micros, used.micros)
    if delegates and spare is not NOTHING and account.last_word is NOTHING:
        _set_last_word(account, spare)
    _look_again(account)
    return list(overruns.values())


def release(account: Account) -> None:
    """Give back what was withheld for the run's last word."""
    if account.last_word is NOTHING:
        return
    _set_last_word(account, NOTHING)
    _look_again(account)


def withdraw(ticket: Ticket) -> None:
    """Leave the queue. A verdict that came in the meantime is undone."""
    # It stays in the heap until it comes to the front: a thousand leaving at once stay cheap.
    ticket.gone = True
    if isinstance(ticket.verdict, Reservation):
        if not ticket.keep:
            for a in ticket.account.capped:
                a.reserved = minus(a.reserved, ticket.verdict.amount)
                a.spare = minus(a.spare, ticket.verdict.spare)
        _set_last_word(ticket.account, ticket.before)
    _look_again(ticket.account)


def charge(account: Account, *, calls: int = 0, delegations: int = 0) -> Over | None:
    """Count calls and delegations in one step: all of them, or none and what stood in the way."""
    for a in account.capped:
        if a.calls_cap is not None and a.calls + calls > a.calls_cap:
            return Over(a.owner, "calls", a.calls_cap, a.calls)
        if a.delegations_cap is not None and a.delegations + delegations > a.delegations_cap:
            return Over(a.owner, "delegations", a.delegations_cap, a.delegations)
    for a in account.capped:
        a.calls += calls
        a.delegations += delegations
    return None


def restore(account: Account, spent: Amount, *, calls: int, delegations: int, overran: str) -> None:
    """Put a resumed run's account, and no other, where the journal left it."""
    account.spent, account.calls, account.delegations, account.overran = spent, calls, delegations, overran


def look(account: Account) -> Over | None:
    """Whether a new child of this account could do anything at all. Takes nothing."""
    for a in account.capped:
        if a.delegations_cap is not None and a.delegations >= a.delegations_cap:
            return Over(a.owner, "delegations", a.delegations_cap, a.delegations)
        if a.overran:
            return _overran(a)
        spent, withheld = a.spent, a.withheld
        requests = spent[0] + withheld[0] + a.reserved[0]
        if a.requests_cap is not None and requests >= a.requests_cap:
            return Over(a.owner, "requests", a.requests_cap, requests)
        if a.tokens_cap is not None and spent[1] + withheld[1] >= a.tokens_cap:
            return Over(a.owner, "tokens", a.tokens_cap, spent[1] + withheld[1])
        if a.micros_cap is not None and spent[2] + withheld[2] >= a.micros_cap:
            return Over(a.owner, "usd", a.micros_cap, spent[2] + withheld[2])
    return None


class Left(NamedTuple):
    """What an account can still spend; None where nothing caps it."""

    delegations: int | None = None
    requests: int | None = None
    tokens: int | None = None
    usd: float | None = None
    calls: int | None = None


def left(account: Account) -> Left:
    """The smallest remainder of each resource over the account and its ancestors."""
    delegations = requests = tokens = micros = calls = None
    for a in account.capped:
        if a.delegations_cap is not None:
            delegations = _least(delegations, a.delegations_cap - a.delegations)
        if a.calls_cap is not None:
            calls = _least(calls, a.calls_cap - a.calls)
        if a.requests_cap is not None:
            requests = _least(requests, _free(a, account.last_word, 0, a.requests_cap))
        if a.tokens_cap is not None:
            tokens = _least(tokens, _free(a, account.last_word, 1, a.tokens_cap))
        if a.micros_cap is not None:
            micros = _least(micros, _free(a, account.last_word, 2, a.micros_cap))
    return Left(delegations, requests, tokens, None if micros is None else micros / 1_000_000, calls)


def _least(known: int | None, value: int) -> int:
    value = max(value, 0)
    return value if known is None or value < known else known


def _free(a: Account, own: Amount, index: int, cap: int) -> int:
    """What is left of one resource for somebody whose own withheld part is `own`; after an overrun, that alone."""
    taken = a.spent[index] + a.withheld[index] - own[index]
    free = cap - taken - a.reserved[index] - a.spare[index]
    return min(free, own[index]) if a.overran else free


def _ask(
    account: Account, want: Want, wake: Callable[[], None], *, keep: bool, spare: Want | None
) -> Verdict | Ticket:
    if not account.capped:
        return Reservation(account, want.amount(want.output_tokens), want.output_tokens)
    granted = _at_once(account, want, spare, keep=keep)
    if granted is not None:
        return granted
    ticket = Ticket(account, want, wake, keep=keep, spare=spare)
    verdict = _judge(ticket)
    if isinstance(verdict, Account):
        heapq.heappush(verdict.waiting, ticket)
        return ticket
    if ticket.before is not account.last_word:
        _look_again(account)
    return verdict


def _at_once(account: Account, want: Want, spare: Want | None, *, keep: bool) -> Reservation | None:
    """The usual case, which needs no weighing: all of it fits everywhere, and nobody waits."""
    amount = want.amount(want.output_tokens)
    # With a last word withheld already, no other is held for it.
    held = None if account.last_word is not NOTHING else spare
    extra = NOTHING if held is None else held.amount(held.output_tokens)
    if not _fits_easily(account, amount if held is None else plus(amount, extra)):
        return None
    if keep:
        _set_last_word(account, amount)
        return Reservation(account, amount, want.output_tokens)
    for a in account.capped:
        a.reserved = plus(a.reserved, amount)
        if extra is not NOTHING:
            a.spare = plus(a.spare, extra)
    return Reservation(account, amount, want.output_tokens, extra)


def _fits_easily(account: Account, amount: Amount) -> bool:
    """Whether it fits in every capped account beside all that is held there, and nobody waits for any of it."""
    for a in account.capped:  # noqa: SIM110 - a generator takes longer than what it goes through
        if a.waiting or a.overran or not _has_room(a, amount):
            return False
    return True


def _has_room(a: Account, amount: Amount) -> bool:
    spent, withheld, reserved, spare = a.spent, a.withheld, a.reserved, a.spare
    for index, cap in enumerate((a.requests_cap, a.tokens_cap, a.micros_cap)):
        taken = spent[index] + withheld[index] + reserved[index] + spare[index]
        if cap is not None and taken + amount[index] > cap:
            return False
    return True


def _judge(ticket: Ticket) -> Verdict | Account:
    """Grant it, refuse it, or name the account whose calls in flight must settle first."""
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
        _set_last_word(account, amount)
    else:
        if taken:
            _set_last_word(account, NOTHING)
        for a in account.capped:
            a.reserved = plus(a.reserved, amount)
    return Reservation(account, amount, fitting, _hold_spare(ticket))


def _fit_beside_spare(ticket: Ticket) -> int | Over | Account:
    """As `_fit`, but a call that has to be shrunk is shrunk a little more where that leaves room for its spare."""
    want, spare = ticket.want, ticket.spare
    assert spare is not None
    beside = spare.input_tokens + spare.output_tokens
    roomy = _fit(ticket, NOTHING, want._replace(input_tokens=want.input_tokens + beside))
    if isinstance(roomy, int) and roomy >= min(ROOMY_OUTPUT, want.output_tokens):
        return roomy
    return _fit(ticket, NOTHING)


def _hold_spare(ticket: Ticket) -> Amount:
    """Hold the last word that a delegating reply would need, if there is room for it right now."""
    account = ticket.account
    if ticket.spare is None or ticket.keep or account.last_word is not NOTHING:
        return NOTHING
    extra = ticket.spare.amount(ticket.spare.output_tokens)
    if any(a.overran or not _has_room(a, extra) for a in account.capped):
        return NOTHING
    for a in account.capped:
        a.spare = plus(a.spare, extra)
    return extra


def _fit(
    ticket: Ticket, own: Amount, want: Want | None = None, *, ahead: bool = False
) -> int | Over | Account:
    """How many tokens of output fit in every capped account, or what stands in the way."""
    want = want or ticket.want
    output = want.output_tokens
    blocked: Account | None = None
    for a in ticket.account.capped:
        if a.overran and (ticket.keep or not ahead):
            return _overran(a)
        if not ahead and (first := _first(a)) and first.order < ticket.order:
            blocked = blocked or a
        fits = _fit_one(a, want, output, own, ahead=ahead)
        if isinstance(fits, Over):
            return fits
        if fits is None:
            blocked = blocked or a
        else:
            output = fits
    return blocked or output


def _fit_one(a: Account, want: Want, output: int, own: Amount, *, ahead: bool) -> int | Over | None:
    """The output that fits in this account now; None: later; Over: never."""
    least = want.amount(want.least_output)
    for resource, cap, taken in _taken(a, own):
        if resource == "requests":
            # A request in flight will be spent whatever happens, so it is not waited for; what is spare may come free.
            if taken + a.reserved.requests + 1 > cap:
                return Over(a.owner, resource, cap, taken + a.reserved.requests)
            if taken + a.reserved.requests + a.spare.requests + 1 > cap:
                return None
            continue
        tokens = resource == "tokens"
        need = least.tokens if tokens else least.micros
        held = a.reserved.tokens + a.spare.tokens if tokens else a.reserved.micros + a.spare.micros
        if taken + need > cap:
            return Over(a.owner, resource, cap, taken, need=need)
        full = want.amount(output)
        if taken + held + (full.tokens if tokens else full.micros) <= cap:
            continue
        if (held and not ahead) or taken + held + need > cap:
            return None
        output = min(output, _affordable(want, cap - taken - held, tokens=tokens))
    return output


def _affordable(want: Want, room: int, *, tokens: bool) -> int:
    """The most output tokens that `room` pays for, after the input."""
    if tokens or want.price is None or want.price.output <= 0:
        return room - want.input_tokens
    output = int((room - want.input_tokens * want.price.input) / want.price.output) + 1
    while output and cost(want.price, want.input_tokens, output) > room:
        output -= 1
    return output


def _taken(a: Account, own: Amount) -> list[tuple[str, int, int]]:
    """For each capped resource: its cap, and what is gone for somebody whose own withheld part is `own`."""
    rows: list[tuple[str, int, int]] = []
    if a.requests_cap is not None:
        rows.append(("requests", a.requests_cap, a.spent.requests + a.withheld.requests - own.requests))
    if a.tokens_cap is not None:
        rows.append(("tokens", a.tokens_cap, a.spent.tokens + a.withheld.tokens - own.tokens))
    if a.micros_cap is not None:
        rows.append(("usd", a.micros_cap, a.spent.micros + a.withheld.micros - own.micros))
    return rows


def _set_last_word(account: Account, amount: Amount) -> None:
    before = account.last_word
    if before is not NOTHING or amount is not NOTHING:
        for a in account.capped:
            a.withheld = plus(minus(a.withheld, before), amount)
    account.last_word = amount


def _first(a: Account) -> Ticket | None:
    """The first that still waits at this account."""
    while a.waiting and a.waiting[0].gone:
        heapq.heappop(a.waiting)
    return a.waiting[0] if a.waiting else None


def _look_again(account: Account) -> None:
    """Serve the queues of these accounts in order, until one's first waiter must go on waiting."""
    for a in account.capped:
        if not a.waiting:
            continue
        while ticket := _first(a):
            verdict = _judge(ticket)
            if verdict is a:
                break
            heapq.heappop(a.waiting)
            if isinstance(verdict, Account):
                heapq.heappush(verdict.waiting, ticket)
            else:
                ticket.verdict = verdict
                ticket.wake()


def _overran(a: Account) -> Over:
    cap = a.tokens_cap if a.overran == "tokens" else a.micros_cap
    used = a.spent.tokens if a.overran == "tokens" else a.spent.micros
    return Over(a.owner, a.overran, cap or 0, used, overran=True)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _usd(micros: int) -> str:
    return f"${micros / 1_000_000:.4f}".rstrip("0").rstrip(".")
