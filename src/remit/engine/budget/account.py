"""The accounts of runs, the reservations of their calls in flight, and the queue for more."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from math import ceil
from typing import NamedTuple

from msgspec import Struct

from remit.types.limits import NO_CAP, Caps, Limits, caps_of
from remit.types.ports import Price

LEAST_OUTPUT = 64
"""A call needs at least this many output tokens, or its own maximum if that is less."""

LAST_WORD_TOKENS = 1024
RESULT_TOKENS = 100
"""Tokens withheld for a run's last word; each result that the last word has to read adds `RESULT_TOKENS`."""


class Amount(NamedTuple):
    """What model calls use, as a vector."""

    requests: int = 0
    tokens: int = 0
    micros: int = 0


NOTHING = Amount()


# Hidden from the garbage collector: one is made per call, and it cannot be part of a reference cycle.
class Want(Struct, frozen=True, gc=False):
    """What one model call needs: its estimated input and its maximum output."""

    input_tokens: int
    output_tokens: int
    price: Price | None = None

    @property
    def least_output(self) -> int:
        return min(LEAST_OUTPUT, self.output_tokens)

    def amount(self, output_tokens: int) -> Amount:
        tokens = self.input_tokens
        return Amount(1, tokens + output_tokens, cost(self.price, tokens, output_tokens))

    def affordable(self, room: int, *, tokens: bool) -> int:
        """The most output tokens that `room`, in tokens or in micro-dollars, pays for after the input."""
        if tokens or self.price is None or self.price.output <= 0:
            return room - self.input_tokens
        output = int((room - self.input_tokens * self.price.input) / self.price.output) + 1
        while output and cost(self.price, self.input_tokens, output) > room:
            output -= 1
        return output


def cost(price: Price | None, input_tokens: int, output_tokens: int) -> int:
    """Micro-dollars, rounded up."""
    if price is None:
        return 0
    return ceil(input_tokens * price.input + output_tokens * price.output)


class Over(Struct, frozen=True):
    """The limit that blocks a call: the owner of the account, the resource, its cap and what is used up."""

    owner: str
    resource: str
    cap: int
    used: int
    overran: bool = False
    need: int = 0
    """The amount needed, if it is more than one."""

    @property
    def words(self) -> str:
        if self.overran:
            return f"a model call used more {self.resource} than was reserved, so no more are sent (limit set on {self.owner})"
        cap, used = (
            (_usd(self.cap), _usd(self.used))
            if self.resource == "usd"
            else (f"{self.cap:,}", f"{self.used:,}")
        )
        gone = "used" if self.resource in ("calls", "delegations") else "used or reserved"
        needs = _usd(self.need) if self.resource == "usd" else f"{self.need:,}"
        more = f", {needs} needed" if self.need else ""
        kind = "usd" if self.resource == "usd" else self.resource.removesuffix("s")
        return f"{kind} limit reached: {used} of {cap} {gone}{more} (set on {self.owner})"


class Overrun(Struct, frozen=True, order=True):
    """A call that used more than it had reserved."""

    resource: str
    reserved: int
    used: int

    @property
    def words(self) -> str:
        unit, kind = (
            ("", "usd") if self.resource == "usd" else (f" {self.resource}", self.resource.removesuffix("s"))
        )
        used, reserved = (
            _usd(amount) if self.resource == "usd" else f"{amount:,}" for amount in (self.used, self.reserved)
        )
        return (
            f"A model call used {used}{unit}, more than the {reserved} reserved for it. Runs with a {kind} limit now make no"
            " more calls, except one last reply if it fits."
        )


class Book:
    """What an account with a cap, and everything below it, may still use, and where the rest went.

    Plain numbers, because every model call reads and writes them. Without a cap, the free amount is too large to be used
    up.
    """

    __slots__ = (
        "caps",
        "free_calls",
        "free_delegations",
        "free_micros",
        "free_requests",
        "free_tokens",
        "overran",
        "owner",
        "spare_micros",
        "spare_requests",
        "spare_tokens",
        "spent_micros",
        "spent_requests",
        "spent_tokens",
        "waiting",
        "withheld_micros",
        "withheld_requests",
        "withheld_tokens",
    )

    def __init__(self, owner: str, caps: Caps) -> None:
        self.owner = owner
        self.caps = caps
        self.free_requests, self.free_tokens, self.free_micros, self.free_calls, self.free_delegations = caps
        self.spent_requests = self.spent_tokens = self.spent_micros = 0
        self.withheld_requests = self.withheld_tokens = self.withheld_micros = 0
        self.spare_requests = self.spare_tokens = self.spare_micros = 0
        self.overran = ""
        self.waiting: list[Ticket] = []
        """A heap, by order of arrival."""

    @property
    def spent(self) -> Amount:
        return Amount(self.spent_requests, self.spent_tokens, self.spent_micros)

    @property
    def withheld(self) -> Amount:
        return Amount(self.withheld_requests, self.withheld_tokens, self.withheld_micros)

    @property
    def spare(self) -> Amount:
        return Amount(self.spare_requests, self.spare_tokens, self.spare_micros)

    @property
    def reserved(self) -> Amount:
        """Reserved by calls in flight: what is neither free, spent, withheld nor spare."""
        caps = self.caps
        return Amount(
            caps.requests
            - self.free_requests
            - self.spent_requests
            - self.withheld_requests
            - self.spare_requests,
            caps.tokens - self.free_tokens - self.spent_tokens - self.withheld_tokens - self.spare_tokens,
            caps.micros - self.free_micros - self.spent_micros - self.withheld_micros - self.spare_micros,
        )

    @property
    def is_empty(self) -> bool:
        """Whether some resource that every model call needs is used up."""
        return self.free_requests < 1 or self.free_tokens < 1 or self.free_micros < 1

    def has_room(self, amount: Amount) -> bool:
        return (
            self.free_requests >= amount.requests
            and self.free_tokens >= amount.tokens
            and self.free_micros >= amount.micros
        )

    def take(self, amount: Amount) -> None:
        self.free_requests -= amount.requests
        self.free_tokens -= amount.tokens
        self.free_micros -= amount.micros

    def give(self, amount: Amount) -> None:
        self.free_requests += amount.requests
        self.free_tokens += amount.tokens
        self.free_micros += amount.micros

    def hold(self, spare: Amount) -> None:
        """Reserve an amount as spare."""
        self.take(spare)
        self.spare_requests += spare.requests
        self.spare_tokens += spare.tokens
        self.spare_micros += spare.micros

    def restore(self, spent: Amount, calls: int, delegations: int, overran: str) -> None:
        self.give(self.spent)
        self.take(spent)
        self.spent_requests, self.spent_tokens, self.spent_micros = spent
        self.free_calls = self.caps.calls - calls
        self.free_delegations = self.caps.delegations - delegations
        self.overran = overran

    def line_up(self, ticket: Ticket) -> None:
        heapq.heappush(self.waiting, ticket)

    def first(self) -> Ticket | None:
        """The first ticket that still waits here."""
        while self.waiting and self.waiting[0].gone:
            heapq.heappop(self.waiting)
        return self.waiting[0] if self.waiting else None

    @property
    def calls(self) -> int:
        return self.caps.calls - self.free_calls

    @property
    def delegations(self) -> int:
        return self.caps.delegations - self.free_delegations


def in_the_way(b: Book) -> Over | None:
    """The limit that keeps a child from starting. Calls in flight may free tokens and money, but not requests."""
    caps, spent, withheld = b.caps, b.spent, b.withheld
    if b.free_delegations < 1:
        return Over(b.owner, "delegations", caps.delegations, b.delegations)
    if b.overran:
        return overrun_of(b)
    if b.free_requests + b.spare_requests < 1:
        return Over(b.owner, "requests", caps.requests, caps.requests - b.free_requests - b.spare_requests)
    if spent.tokens + withheld.tokens >= caps.tokens:
        return Over(b.owner, "tokens", caps.tokens, spent.tokens + withheld.tokens)
    if spent.micros + withheld.micros >= caps.micros:
        return Over(b.owner, "usd", caps.micros, spent.micros + withheld.micros)
    return None


def overrun_of(b: Book) -> Over:
    cap, used = (b.caps.tokens, b.spent_tokens) if b.overran == "tokens" else (b.caps.micros, b.spent_micros)
    return Over(b.owner, b.overran, cap if cap < NO_CAP else 0, used, overran=True)


def least_free(books: tuple[Book, ...]) -> tuple[int, int, int, int, int]:
    """The smallest free amount of each resource; 0 after an overrun for what model calls reserve."""
    delegations = requests = tokens = micros = calls = NO_CAP
    for b in books:
        shut, caps = bool(b.overran), b.caps
        delegations = min(delegations, b.free_delegations)
        calls = min(calls, b.free_calls)
        requests = min(requests, b.free_requests, 0 if shut and caps.requests < NO_CAP else requests)
        tokens = min(tokens, b.free_tokens, 0 if shut and caps.tokens < NO_CAP else tokens)
        micros = min(micros, b.free_micros, 0 if shut and caps.micros < NO_CAP else micros)
    return delegations, requests, tokens, micros, calls


def _usd(micros: int) -> str:
    return f"${micros / 1_000_000:.6f}".rstrip("0").rstrip(".")


_orders = count()


# Hidden from the garbage collector: one is made per call, and no account refers to it.
class Reservation(Struct, frozen=True, gc=False):
    """Budget held for one call in flight: one request, tokens and money. `output_tokens` is its maximum output."""

    account: Account
    tokens: int
    micros: int
    output_tokens: int
    spares: bool = False
    """Whether a last word is held too while the call is in flight; it is kept if the reply delegates."""
    spare_tokens: int = 0
    spare_micros: int = 0

    @property
    def amount(self) -> Amount:
        return Amount(1, self.tokens, self.micros)

    @property
    def spare(self) -> Amount:
        return Amount(1, self.spare_tokens, self.spare_micros) if self.spares else NOTHING


class Ticket:
    """A place in the queue for budget. Once there is a decision, `verdict` is set and `wake` is called."""

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
        """The last word before this ticket was granted, to restore on withdrawal."""
        self.gone = False
        self.verdict: Reservation | Over | None = None

    def __lt__(self, other: Ticket) -> bool:
        return self.order < other.order


Verdict = Reservation | Over


class Account:
    """One run's place in the ledger."""

    __slots__ = ("book", "capped", "has_word", "owner", "word_full", "word_micros", "word_tokens")

    def __init__(self, owner: str, limits: Limits, parent: Account | None = None) -> None:
        self.owner = owner
        self.has_word = False
        """Whether this run has withheld a last word for itself, in every book of `capped`."""
        self.word_full = False
        """Whether the last word had its full size when the last delegating reply was settled."""
        self.word_tokens = self.word_micros = 0
        self.capped: tuple[Book, ...] = () if parent is None else parent.capped
        """The books that can refuse: its own, if it has a cap, and its ancestors'."""
        self.book: Book | None = None
        caps = caps_of(limits)
        if caps is not None:
            self.book = Book(owner, caps)
            self.capped = (self.book, *self.capped)

    # For inspection. Without a book nothing is counted.

    @property
    def last_word(self) -> Amount:
        return Amount(1, self.word_tokens, self.word_micros) if self.has_word else NOTHING

    @property
    def spent(self) -> Amount:
        return self.book.spent if self.book else NOTHING

    @property
    def withheld(self) -> Amount:
        return self.book.withheld if self.book else NOTHING

    @property
    def reserved(self) -> Amount:
        return self.book.reserved if self.book else NOTHING

    @property
    def spare(self) -> Amount:
        return self.book.spare if self.book else NOTHING

    @property
    def calls(self) -> int:
        return self.book.calls if self.book else 0

    @property
    def delegations(self) -> int:
        return self.book.delegations if self.book else 0
