"""The ledger against random programs: trees of accounts, calls that use less or more, last words, waiting, leaving.

`Books` in `slow_books.py` keeps the same accounts.
"""

from __future__ import annotations

from examples import examples
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from slow_books import Asked, Books, Caps, Run, add, is_within

import remit.engine.budget.ledger as ledger
from remit.engine.budget.account import LEAST_OUTPUT, NOTHING, Amount, Want
from remit.engine.budget.ledger import Account, Over, Reservation, Ticket
from remit.types.ports import Price

PRICES = (Price(2.0, 10.0), Price(0.5, 1.5), Price(0.0, 3.0))
LEAST_WANT = Want(0, 1, Price(0.0, 1.0))


def some(least: int, most: int) -> st.SearchStrategy[int | None]:
    """Often no cap, else enough for a few calls that get in each other's way."""
    return st.one_of(st.none(), st.none(), st.integers(least, most))


CAPS = st.builds(Caps, some(1, 9), some(200, 1500), some(1000, 9000), some(1, 4), some(1, 4))
TOKENS = st.builds(Caps, tokens=st.integers(200, 900))
NO_CAPS, ZERO = st.just(Caps()), st.builds(Caps, *[st.sampled_from([0, 1, None])] * 5)
PICK = st.integers(0, 30)
PLANTED = st.lists(
    st.tuples(PICK, st.one_of(NO_CAPS, TOKENS, CAPS), st.sampled_from(PRICES)), min_size=2, max_size=6
)
INPUT, OUTPUT = st.integers(0, 60), st.one_of(st.integers(1, 20), st.integers(100, 200))


class LedgerMachine(RuleBasedStateMachine):
    """Random programs. A run asks for one thing at a time, as the loop does."""

    @initialize(requests=some(1, 9), tokens=st.integers(200, 900), shape=PLANTED)
    def plant(self, requests: int | None, tokens: int, shape: list[tuple[int, Caps, Price]]) -> None:
        self.books = Books()
        self.woken: list[Asked] = []
        self.add(0, Caps(requests, tokens), PRICES[0])
        for parent, caps, price in shape:
            self.add(parent, caps, price)

    @precondition(lambda self: len(self.books.runs) < 9)
    @rule(parent=PICK, caps=st.one_of(NO_CAPS, CAPS, ZERO), price=st.sampled_from(PRICES))
    def grow(self, parent: int, caps: Caps, price: Price) -> None:
        self.add(parent, caps, price)

    @rule(
        who=PICK, input_tokens=INPUT, output=OUTPUT, what=st.sampled_from(["call", "delegating call", "word"])
    )
    def reserve_or_withhold(self, who: int, input_tokens: int, output: int, what: str) -> None:
        run = self.pick(who)
        if not run.is_busy:
            spare = Want(input_tokens, LEAST_OUTPUT, run.price) if what == "delegating call" else None
            self.ask(run, Want(input_tokens, output, run.price), keep=what == "word", spare=spare)

    @precondition(lambda self: any(r.word != NOTHING and not r.is_busy for r in self.books.runs))
    @rule(who=PICK)
    def use_last_word(self, who: int) -> None:
        """What was withheld can be had at once, unless an overrun ate it."""
        able = [r for r in self.books.runs if r.word != NOTHING and not r.is_busy]
        run = able[who % len(able)]
        got = self.ask(run, Want(run.word_input, run.word.tokens - run.word_input, run.price), keep=False)
        assert isinstance(got, Reservation) or any(r.overran for r in run.chain)

    @precondition(lambda self: any(r.flight for r in self.books.runs))
    @rule(
        who=PICK,
        tokens=st.sampled_from([0, 1, 2, 2, 2, 3]),
        micros=st.sampled_from([0, 1, 2, 2, 2, 3]),
        word=st.one_of(st.none(), st.tuples(INPUT, OUTPUT)),
    )
    def settle(self, who: int, tokens: int, micros: int, word: tuple[int, int] | None) -> None:
        flying = [r for r in self.books.runs if r.flight]
        run = flying[who % len(flying)]
        assert run.flight
        # Nothing, half, all or half as much again of what was reserved.
        used = Amount(1, run.flight.amount.tokens * tokens // 2, run.flight.amount.micros * micros // 2)
        self.land(run, used, None if word is None else Want(*word, run.price))

    @precondition(lambda self: any(r.flight for r in self.books.runs))
    @rule(whether=st.integers(0, 3))
    def settle_everything(self, whether: int) -> None:
        """Once all calls have settled nobody waits, and nothing is reserved."""
        while whether == 0 and (flying := [r for r in self.books.runs if r.flight]):
            assert flying[0].flight
            self.land(flying[0], flying[0].flight.amount)
        if whether == 0:
            assert not self.books.waiting()
            assert all(r.account.reserved == NOTHING for r in self.books.runs)

    @rule(who=PICK)
    def release(self, who: int) -> None:
        run = self.pick(who)
        run.word, run.undo = NOTHING, None
        ledger.release(run.account)
        self.deliver()

    @precondition(lambda self: self.books.waiting())
    @rule(who=PICK)
    def leave_the_queue(self, who: int) -> None:
        waiting = self.books.waiting()
        asked = waiting[who % len(waiting)]
        asked.run.waits = None
        assert asked.ticket
        ledger.withdraw(asked.ticket)
        self.deliver()

    @precondition(lambda self: any(r.undo for r in self.books.runs))
    @rule(who=PICK)
    def leave_after_the_verdict(self, who: int) -> None:
        """A run stopped in the step in which its verdict came is as if it had never asked."""
        able = [r for r in self.books.runs if r.undo]
        run = able[who % len(able)]
        assert run.undo
        ticket, run.word, run.word_input = run.undo
        run.undo = run.flight = None
        ledger.withdraw(ticket)
        self.deliver()

    @rule(who=PICK, calls=st.integers(0, 2), delegations=st.integers(0, 2))
    def charge(self, who: int, calls: int, delegations: int) -> None:
        run = self.pick(who)
        over = ledger.charge(run.account, calls=calls, delegations=delegations)
        fits = all(
            is_within(r.calls + calls, r.caps.calls)
            and is_within(r.delegations + delegations, r.caps.delegations)
            for r in run.chain
        )
        assert fits == (over is None)
        for r in run.chain if fits else []:
            r.calls += calls
            r.delegations += delegations

    @invariant()
    def a_first_look_is_right(self) -> None:
        """It says no exactly when one more delegation, or the smallest call, could never be had."""
        for run in self.books.runs:
            smallest = Asked(Run(run.account, Caps(), run, run.price), LEAST_WANT, keep=False, number=0)
            full = any(not is_within(r.delegations + 1, r.caps.delegations) for r in run.chain)
            expected = full or self.books.judge(smallest, ahead=False).never
            assert (ledger.look(run.account) is not None) == expected

    @invariant()
    def what_is_left_is_right(self) -> None:
        """It is the smallest remainder on the way up, the run's own last word included."""
        for run in self.books.runs:
            if any(r.overran for r in run.chain):
                continue
            left = ledger.left(run.account)
            usd = None if left.usd is None else round(left.usd * 1_000_000)
            columns = zip(*(self.remainders(r, run.word) for r in run.chain), strict=True)
            least = [min((x for x in column if x is not None), default=None) for column in columns]
            assert [left.requests, left.tokens, usd, left.calls, left.delegations] == least

    @invariant()
    def numbers_agree(self) -> None:
        """Reserved is what is in flight, withheld the last words, spent what was used, here and below."""
        for run in self.books.runs:
            if run.capped:
                account = run.account
                assert account.spent == run.spent
                assert account.reserved == self.books.reserved(run)
                assert account.spare == self.books.spare(run)
                assert account.withheld == self.books.withheld(run)

    @invariant()
    def no_cap_is_exceeded(self) -> None:
        """Nothing goes above a cap except by what providers reported above their reservation."""
        for run in self.books.runs:
            a = run.account
            used = add((a.spent, a.reserved, a.spare, a.withheld))
            for i, cap in enumerate(run.caps.amounts):
                assert is_within(used[i] - run.extra[i], cap), (a.owner, i)
            assert is_within(a.calls, run.caps.calls)
            assert is_within(a.delegations, run.caps.delegations)

    @invariant()
    def only_calls_in_flight_are_waited_for(self) -> None:
        """Who waits has a call in flight in an account above it, and could not be served in its turn."""
        for asked in self.books.waiting():
            assert asked.ticket
            assert asked.ticket.verdict is None
            assert any(self.books.reserved(r) != NOTHING for r in asked.run.chain if r.capped)
            assert not self.books.stuck(asked).is_clear or self.books.may_wait(asked)

    def add(self, parent: int, caps: Caps, price: Price) -> None:
        above = self.pick(parent) if self.books.runs else None
        account = Account(f"run{len(self.books.runs)}", caps.limits, above.account if above else None)
        self.books.add(Run(account, caps, above, price))

    def pick(self, who: int) -> Run:
        return self.books.runs[who % len(self.books.runs)]

    def remainders(self, run: Run, own: Amount) -> list[int | None]:
        used = add((run.spent, self.books.reserved(run), self.books.spare(run), self.books.withheld(run)))
        rows = [(cap, used[i] - own[i]) for i, cap in enumerate(run.caps.amounts)]
        rows += [(run.caps.calls, run.calls), (run.caps.delegations, run.delegations)]
        return [None if cap is None else max(0, cap - gone) for cap, gone in rows]

    def ask(
        self, run: Run, want: Want, *, keep: bool, spare: Want | None = None
    ) -> Reservation | Over | Ticket:
        run.undo = None
        self.books.number += 1
        asked = Asked(run, want, keep, self.books.number, spare)
        if keep:
            got = ledger.withhold(run.account, want, lambda: self.woken.append(asked))
        else:
            got = ledger.reserve(run.account, want, lambda: self.woken.append(asked), spare is not None)
        if isinstance(got, Ticket):
            asked.ticket = got
            clear = self.books.judge(asked, ahead=False).is_clear and not self.books.may_wait(asked)
            assert not clear
            assert not self.books.stuck(asked).never
            run.waits = asked
        else:
            self.told(asked, got)
        self.deliver()
        return got

    def deliver(self) -> None:
        """Read the verdicts that came, in order. A wake only tells; who was woken acts later."""
        woken, self.woken = self.woken, []
        for asked in woken:
            assert asked.ticket
            verdict, run = asked.ticket.verdict, asked.run
            assert verdict is not None
            before = run.word, run.word_input
            self.told(asked, verdict)
            run.waits = None
            if isinstance(verdict, Reservation):
                run.undo = asked.ticket, *before

    def told(self, asked: Asked, verdict: Reservation | Over) -> None:
        """Check a verdict against the laws, then write it down."""
        run, plain = asked.run, self.books.judge(asked, ahead=False)
        if isinstance(verdict, Over):
            assert self.books.stuck(asked).never
            return
        ahead = self.books.judge(asked, ahead=True)
        has_word = run.word != NOTHING and ahead.is_clear
        in_turn = plain.is_clear and not self.books.must_wait(asked)
        assert in_turn or has_word
        # A last word is used before an answer is cut short.
        better = has_word and not asked.keep and plain.output < ahead.output
        spends_word = not plain.is_clear or better or run.account.last_word == NOTHING != run.word
        assert verdict.output_tokens == (ahead if spends_word and has_word else plain).output
        assert verdict.amount == asked.want.amount(verdict.output_tokens)
        if not any(r.capped for r in run.chain):
            return
        if asked.keep:
            run.word, run.word_input = verdict.amount, asked.want.input_tokens
        else:
            run.word = NOTHING if spends_word else run.word
            run.flight = replace(verdict, spares=False)
            assert verdict.spare == self.books.spare_for(asked)
            run.flight, run.spare_input = verdict, asked.want.input_tokens

    def land(self, run: Run, used: Amount, word: Want | None = None) -> None:
        flight = run.flight
        assert flight
        run.flight = run.undo = None
        over = Amount(
            0, max(0, used.tokens - flight.amount.tokens), max(0, used.micros - flight.amount.micros)
        )
        told: set[str] = set()
        for r in run.chain:
            r.spent, r.extra = add((r.spent, used)), add((r.extra, over))
            told |= {"tokens"} if over.tokens and r.caps.tokens is not None else set()
            told |= {"usd"} if over.micros and r.caps.micros is not None else set()
            r.overran = r.overran or (over.tokens > 0 and r.caps.tokens is not None)
            r.overran = r.overran or (over.micros > 0 and r.caps.micros is not None)
        least = flight.spare if word and run.word == NOTHING else NOTHING
        if word and least != NOTHING:
            asked = Asked(run, word, keep=True, number=0, spare=word)
            whole, fits = word.amount(word.output_tokens), self.books.spare_for(asked) != NOTHING
            queue = bool(self.books.waiting())
        else:
            whole, fits, queue = least, True, False
        assert {overrun.resource for overrun in ledger.settle(flight, *used[1:], word)} == told
        if word and least != NOTHING:
            run.word = run.account.last_word
            # All of it, or what was spare; never less, and never more than there is.
            assert (
                run.word == whole
                if fits and not queue
                else run.word in ((whole, least) if fits else (least,))
            )
            assert run.account.word_full == (run.word == whole) or whole == least
            run.word_input = word.input_tokens if run.account.word_full else run.spare_input
        self.deliver()


LedgerMachine.TestCase.settings = settings(
    max_examples=examples(120),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
    # Making such a program smaller takes minutes; it is printed as it was found.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


class TestLedgerLaws(LedgerMachine.TestCase):
    """No cap is exceeded, nobody waits in vain or is overtaken, and a last word can always be said."""
