"""The accounts of runs, what is held for their calls in flight, and places in the queue for more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from msgspec import Struct

from remit.engine.budget.account_amounts import NOTHING, Amount, Want
from remit.engine.budget.account_book import Book, Over
from remit.types.limits import Limits, caps_of

_orders = count()


# Not looked at by the garbage collector, since one is made for each call and no account leads to it.
class Reservation(Struct, frozen=True, gc=False):
    """Head-room held for one call in flight: a request, and so much besides. `output_tokens` is what it may say."""

    account: Account
    tokens: int
    micros: int
    output_tokens: int
    spares: bool = False
    """Whether a last word is held besides, as long as the call is in flight: it is kept if the reply delegates."""
    spare_tokens: int = 0
    spare_micros: int = 0

    @property
    def amount(self) -> Amount:
        return Amount(1, self.tokens, self.micros)

    @property
    def spare(self) -> Amount:
        return Amount(1, self.spare_tokens, self.spare_micros) if self.spares else NOTHING


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
    """One run's place in the ledger."""

    __slots__ = ("book", "capped", "has_word", "owner", "word_full", "word_micros", "word_tokens")

    def __init__(self, owner: str, limits: Limits, parent: Account | None = None) -> None:
        self.owner = owner
        self.has_word = False
        """Whether this run has withheld a last word for itself, in every book of `capped`."""
        self.word_full = False
        """Whether it was as large as it should be when the last reply that delegates was settled."""
        self.word_tokens = self.word_micros = 0
        self.capped: tuple[Book, ...] = () if parent is None else parent.capped
        """The books that can say no: its own, if it has one, and its ancestors'."""
        self.book: Book | None = None
        caps = caps_of(limits)
        if caps is not None:
            self.book = Book(owner, caps)
            self.capped = (self.book, *self.capped)

    # To look at. Without a book nothing is counted.

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
