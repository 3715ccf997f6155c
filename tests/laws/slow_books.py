"""The ledger's accounts kept the slow way: every number is a sum over what is live, made anew each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from remit.engine.budget.account import NOTHING, Amount, Want
from remit.engine.budget.ledger import Account, Reservation, Ticket
from remit.types.limits import Limits
from remit.types.ports import Price


@dataclass(frozen=True)
class Caps:
    requests: int | None = None
    tokens: int | None = None
    micros: int | None = None
    calls: int | None = None
    delegations: int | None = None

    @property
    def amounts(self) -> tuple[int | None, int | None, int | None]:
        return self.requests, self.tokens, self.micros

    @property
    def limits(self) -> Limits:
        usd = None if self.micros is None else self.micros / 1_000_000
        return Limits(
            requests=self.requests,
            tokens=self.tokens,
            usd=usd,
            calls=self.calls,
            delegations=self.delegations,
        )


@dataclass(eq=False)
class Run:
    """One account and what the books know of it."""

    account: Account
    caps: Caps
    parent: Run | None
    price: Price
    spent: Amount = NOTHING
    extra: Amount = NOTHING
    """By how much calls below used more than was reserved."""
    overran: bool = False
    calls: int = 0
    delegations: int = 0
    flight: Reservation | None = None
    word: Amount = NOTHING
    word_input: int = 0
    spare_input: int = 0
    waits: Asked | None = None
    undo: tuple[Ticket, Amount, int] | None = None
    """A verdict that came while it waited and that it has not acted on; and its last word before."""

    chain: list[Run] = field(default_factory=list)
    """Itself and its ancestors."""
    below: list[Run] = field(default_factory=list)
    """Itself and its descendants."""

    def __post_init__(self) -> None:
        self.chain = [self, *(self.parent.chain if self.parent else [])]

    @property
    def capped(self) -> bool:
        return self.caps != Caps()

    @property
    def is_busy(self) -> bool:
        return self.flight is not None or self.waits is not None


@dataclass(eq=False)
class Asked:
    """A call or a last word that was asked for, in order of asking."""

    run: Run
    want: Want
    keep: bool
    number: int
    spare: Want | None = None
    ticket: Ticket | None = None


@dataclass
class Judged:
    """What the laws say of one asking: never, or the accounts that block it, or how much it may say."""

    never: bool = False
    blockers: set[int] = field(default_factory=set)
    output: int = 0

    @property
    def is_clear(self) -> bool:
        return not self.never and not self.blockers


class Books:
    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.number = 0

    def add(self, run: Run) -> None:
        self.runs.append(run)
        for r in run.chain:
            r.below.append(run)

    def reserved(self, run: Run) -> Amount:
        return add(r.flight.amount for r in run.below if r.flight)

    def spare(self, run: Run) -> Amount:
        return add(r.flight.spare for r in run.below if r.flight)

    def withheld(self, run: Run) -> Amount:
        return add(r.word for r in run.below)

    def waiting(self) -> list[Asked]:
        return sorted((r.waits for r in self.runs if r.waits), key=lambda asked: asked.number)

    def judge(self, asked: Asked, *, ahead: bool) -> Judged:
        """Against the numbers alone; `ahead` is with the run's own last word, which does not wait its turn."""
        judged = Judged(output=asked.want.output_tokens)
        for run in (r for r in asked.run.chain if r.capped):
            if run.overran and (asked.keep or not ahead):
                judged.never = True
            self._judge_one(run, asked, judged, ahead=ahead)
        return judged

    def _judge_one(self, run: Run, asked: Asked, judged: Judged, *, ahead: bool) -> None:
        want, own = asked.want, asked.run.word if ahead else NOTHING
        reserved, withheld = self.reserved(run), self.withheld(run)
        held = add((reserved, self.spare(run)))
        for i, cap in enumerate(run.caps.amounts):
            if cap is None:
                continue
            room = cap - run.spent[i] - withheld[i] + own[i]
            least, free = want.amount(want.least_output)[i], room - held[i]
            # A request in flight is as good as spent; what else is held may come free.
            if least > (room - reserved[i] if i == 0 else room):
                judged.never = True
                judged.blockers.add(id(run))
            elif want.amount(judged.output)[i] <= free:
                continue
            elif (held[i] and not ahead) or least > free:
                judged.blockers.add(id(run))
            else:
                judged.output = most_output(want, i, free, judged.output)

    def stuck(self, asked: Asked) -> Judged:
        """Why it waits: what it is told in its turn, or ahead of its turn where it has a last word."""
        if asked.run.word != NOTHING:
            return self.judge(asked, ahead=True)
        return self.judge(asked, ahead=False)

    def rows(self, asked: Asked) -> list[tuple[Asked, set[int]]]:
        """Those who wait already, each with all the accounts that block it: itself, or somebody before it."""
        rows: list[tuple[Asked, set[int]]] = []
        blocked: set[int] = set()
        for w in (w for w in self.waiting() if w.number < asked.number):
            blockers = self.stuck(w).blockers | (blocked & ids(w.run.chain))
            rows.append((w, blockers))
            blocked |= blockers | self.judge(w, ahead=False).blockers
        return rows

    def must_wait(self, asked: Asked) -> bool:
        """Whether somebody earlier is blocked only by accounts that this one shares."""
        chain = ids(asked.run.chain)
        return any(blockers <= chain and not self.stuck(w).never for w, blockers in self.rows(asked))

    def may_wait(self, asked: Asked) -> bool:
        """Whether somebody earlier is blocked by an account that this one shares."""
        chain = ids(asked.run.chain)
        return any(
            (blockers | self.judge(w, ahead=False).blockers) & chain for w, blockers in self.rows(asked)
        )

    def spare_for(self, asked: Asked) -> Amount:
        """The last word that can be held besides the call it was just granted, if it fits everywhere."""
        if asked.spare is None or asked.run.word != NOTHING:
            return NOTHING
        extra = asked.spare.amount(asked.spare.output_tokens)
        for run in (r for r in asked.run.chain if r.capped):
            used = add((run.spent, self.reserved(run), self.spare(run), self.withheld(run), extra))
            if run.overran or not all(
                is_within(u, cap) for u, cap in zip(used, run.caps.amounts, strict=True)
            ):
                return NOTHING
        return extra


def is_within(value: int, cap: int | None) -> bool:
    return cap is None or value <= cap


def ids(runs: list[Run]) -> set[int]:
    return {id(r) for r in runs}


def add(amounts: Iterable[Amount]) -> Amount:
    total = NOTHING
    for a in amounts:
        total = Amount(total[0] + a[0], total[1] + a[1], total[2] + a[2])
    return total


def most_output(want: Want, resource: int, free: int, most: int) -> int:
    return next(o for o in range(most, -1, -1) if want.amount(o)[resource] <= free)
