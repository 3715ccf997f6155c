"""`Total`: the cap over all trees of a batch, as one book of the ledger.

A tree reserves its own limits before it starts, and settles what it used when it ends. So the trees that run never use more
than the cap, whatever happens to them.
"""

from __future__ import annotations

import anyio

from remit.engine.budget.account import NOTHING, Amount, Book, in_the_way, overrun_of
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

    async def reserve(self, tree: str, wanted: Limits) -> Limits | Rejection:
        """Reserve the limits of a tree; waits while other trees hold the rest.

        If no tree holds anything, the limits are narrowed to what is left. Returns the limits to use, or the rejection.
        """
        book = self.book
        if book is None or tree in self._held:
            return wanted
        async with self._changed:
            while not book.overran and not book.has_room(amount_of(wanted)) and self._held:
                await self._changed.wait()
            limits = wanted if book.has_room(amount_of(wanted)) else _narrowed(book, wanted)
            if book.overran or limits is None:
                over = overrun_of(book) if book.overran else in_the_way(book)
                return Rejection("budget", over.words if over else "the total of the batch is used up")
            self.enter(tree, amount_of(limits))
            return limits

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


def _narrowed(book: Book, wanted: Limits) -> Limits | None:
    """The limits narrowed to what the book has left; None if that is nothing."""
    if book.is_empty:
        return None
    caps = book.caps
    return wanted.tighter(
        Limits(
            **({} if caps.requests >= NO_CAP else {"requests": book.free_requests}),
            **({} if caps.tokens >= NO_CAP else {"tokens": book.free_tokens}),
            **({} if caps.micros >= NO_CAP else {"usd": book.free_micros / 1_000_000}),
        )
    )
