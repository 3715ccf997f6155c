"""`Total`: the cap over all trees of a batch, as one book of the ledger.

A tree reserves its own limits before it starts, and settles what it used when it ends. So the trees that run never use more
than the cap, whatever happens to them.
"""

from __future__ import annotations

import anyio

from remit.engine.budget.account import NOTHING, Amount, Book, Over, overrun_of
from remit.errors import UsageError
from remit.types.limits import NO_CAP, Limits, Usage, cap_micros, caps_of, to_micros
from remit.types.outcome import Rejection

CAPPED = ("requests", "tokens", "usd")
"""The fields that `total` can cap."""


def check_total(total: Limits, limits: Limits | None) -> None:
    """Raises UsageError for a field of `total` that cannot be capped, or that `limits` does not cap for each tree."""
    for name in Limits.__struct_fields__:
        if not isinstance(getattr(total, name), (int, float, str)):
            continue
        if name not in CAPPED:
            raise UsageError(
                f"total cannot cap {name!r}, only {', '.join(CAPPED)}. Set it for each tree: limits=..."
            )
        if not isinstance(getattr(limits, name, None), (int, float)):
            raise UsageError(
                f"total caps {name!r}, so limits must cap it for each tree: limits=Limits({name}=...)."
            )


def amount_of(limits: Limits) -> Amount:
    """What a tree with these limits may use. A field without a limit is not counted: see `check_total`."""
    requests, tokens, usd = limits.requests, limits.tokens, limits.usd
    return Amount(
        requests if isinstance(requests, int) else 0,
        tokens if isinstance(tokens, int) else 0,
        cap_micros(usd) if isinstance(usd, (int, float)) else 0,
    )


def used_by(usage: Usage) -> Amount:
    return Amount(usage.requests, usage.tokens, to_micros(usage.usd) if usage.usd else 0)


class Total:
    """What all trees of a batch may use together, and what they reserved and used."""

    def __init__(self, total: Limits) -> None:
        caps = caps_of(total)
        self.book = None if caps is None else Book("the batch", caps)
        self._held: dict[str, Amount] = {}
        self._changed = anyio.Condition()

    def enter(self, tree: str, held: Amount) -> None:
        """Reserve for a tree of an earlier process, which reserved the same."""
        if self.book is not None:
            self.book.take(held)
            self._held[tree] = held

    def spend(self, used: Amount) -> None:
        """Count what a tree used that has ended."""
        book = self.book
        if book is not None:
            book.take(used)
            book.spent_requests += used.requests
            book.spent_tokens += used.tokens
            book.spent_micros += used.micros

    def add(self, tree: str, more: Amount) -> bool:
        """Reserve more for a tree that has a reservation, if there is room now."""
        book = self.book
        if book is not None:
            if book.overran or not book.has_room(more):
                return False
            held = self._held[tree]
            book.take(more)
            self._held[tree] = Amount(*(a + b for a, b in zip(held, more, strict=True)))
        return True

    async def reserve(self, tree: str, wanted: Amount) -> Rejection | None:
        """Reserve for a tree; waits while other trees hold what it needs. Returns the rejection if it does not fit.

        A tree is not narrowed to what is left: it would end over budget, and a larger total could not undo that.
        """
        book = self.book
        if book is None or tree in self._held:
            return None
        async with self._changed:
            while not book.overran and not book.has_room(wanted) and self._held:
                await self._changed.wait()
            if book.overran or not book.has_room(wanted):
                return Rejection("budget", _over(book, wanted).words)
            self.enter(tree, wanted)
            return None

    async def settle(self, tree: str, used: Amount) -> None:
        """Replace the reservation of a tree by what it used."""
        book = self.book
        if book is None:
            return
        async with self._changed:
            held = self._held.pop(tree, NOTHING)
            book.give(held)
            self.spend(used)
            for name, cap, more in (
                ("tokens", book.caps.tokens, used.tokens > held.tokens),
                ("usd", book.caps.micros, used.micros > held.micros),
            ):
                if more and cap < NO_CAP:
                    book.overran = name
            self._changed.notify_all()


def _over(book: Book, wanted: Amount) -> Over:
    """The limit that a tree does not fit into."""
    if book.overran:
        return overrun_of(book)
    for resource, cap, free, need in (
        ("requests", book.caps.requests, book.free_requests, wanted.requests),
        ("tokens", book.caps.tokens, book.free_tokens, wanted.tokens),
    ):
        if free < need:
            return Over(book.owner, resource, cap, cap - free, need=need)
    return Over(book.owner, "usd", book.caps.micros, book.caps.micros - book.free_micros, need=wanted.micros)
