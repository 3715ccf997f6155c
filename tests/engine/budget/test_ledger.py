"""The ledger by hand: one small story for each sentence about reserving, overruns and last words."""

from __future__ import annotations

import pytest

import remit.engine.budget.ledger as ledger
from remit.engine.budget.account import LEAST_OUTPUT, NOTHING, Amount, Want, cost
from remit.engine.budget.ledger import Account, Over, Reservation, Ticket
from remit.types.limits import Left, Limits
from remit.types.ports import Price

ONE_A_TOKEN = Price(1.0, 1.0)


def open_account(parent: Account | None = None, owner: str = "run", /, **caps: float | None) -> Account:
    every: dict[str, float | None] = dict.fromkeys(("requests", "tokens", "usd", "calls", "delegations"))
    return Account(owner, Limits(**{**every, **caps}), parent)  # pyright: ignore[reportArgumentType]


def want(tokens: int, price: Price | None = None) -> Want:
    """A call whose worst case is `tokens`, all of it output."""
    return Want(0, tokens, price)


def ask(account: Account, tokens: int, price: Price | None = None) -> Reservation | Over | Ticket:
    return ledger.reserve(account, want(tokens, price), lambda: None)


def get(account: Account, tokens: int, price: Price | None = None) -> Reservation:
    got = ask(account, tokens, price)
    assert isinstance(got, Reservation)
    return got


def queue(account: Account, tokens: int, woken: list[str], name: str) -> Ticket:
    got = ledger.reserve(account, want(tokens), lambda: woken.append(name))
    assert isinstance(got, Ticket)
    return got


def test_a_call_is_reserved_in_its_account_and_in_every_ancestor() -> None:
    """A call reserves its worst case in its own account and every ancestor's before it is sent."""
    root = open_account(tokens=1000)
    middle = open_account(root)
    leaf = open_account(middle, tokens=500)
    get(leaf, 300)
    assert root.reserved == leaf.reserved == Amount(1, 300, 0)
    assert ledger.left(root).tokens == 700
    assert ledger.left(middle).tokens == 700
    assert ledger.left(leaf).tokens == 200


def test_the_worst_case_is_the_input_and_the_most_it_may_say() -> None:
    """Worst case = estimated input + the output it may give, in tokens and at the model's price."""
    root = open_account(tokens=10_000, usd=1.0)
    got = ledger.reserve(root, Want(100, 50, Price(3.0, 15.0)), lambda: None)
    assert isinstance(got, Reservation)
    assert got.amount == Amount(1, 150, 100 * 3 + 50 * 15)


@pytest.mark.parametrize("used", [0, 40, 100])
def test_unused_budget_is_given_back(used: int) -> None:
    """Settling replaces the reserved amount by the used amount, at every level."""
    root = open_account(tokens=1000)
    leaf = open_account(root, tokens=1000)
    assert ledger.settle(get(leaf, 100), used, 0) == ()
    assert ledger.left(leaf).tokens == ledger.left(root).tokens == 1000 - used


def test_thirty_children_under_ten_requests_make_exactly_ten() -> None:
    """Requests are exact: those in flight count as spent, and are not waited for."""
    root = open_account(requests=10)
    children = [open_account(root) for _ in range(30)]
    got = [ask(child, 100) for child in children]
    assert sum(isinstance(g, Reservation) for g in got) == 10
    assert all(isinstance(g, Over) and g.resource == "requests" for g in got[10:])


@pytest.mark.parametrize("resource", ["requests", "tokens", "usd"])
def test_zero_means_zero_for_calls_to_the_model(resource: str) -> None:
    """With a cap of 0 nothing is ever sent, not even for one token."""
    root = open_account(None, "lead", **{resource: 0})
    got = ask(root, 1, ONE_A_TOKEN)
    assert isinstance(got, Over)
    assert (got.owner, got.resource, got.cap, got.used) == ("lead", resource, 0, 0)
    assert ledger.look(root) is not None


@pytest.mark.parametrize("resource", ["calls", "delegations"])
def test_zero_means_zero_for_what_is_charged(resource: str) -> None:
    """With a cap of 0 the first call or delegation does not pass."""
    over = ledger.charge(open_account(**{resource: 0}), **{resource: 1})
    assert over is not None
    assert (over.resource, over.cap, over.used) == (resource, 0, 0)


def test_no_cap_means_no_limit() -> None:
    """None is unlimited: a tree without caps grants everything and counts nothing."""
    leaf = open_account(open_account())
    for _ in range(100):
        assert isinstance(ask(leaf, 10**12), Reservation)
        assert ledger.charge(leaf, calls=1, delegations=1) is None
    assert ledger.look(leaf) is None
    assert ledger.left(leaf) == Left()


def test_a_call_is_shrunk_if_no_call_in_flight_can_free_budget() -> None:
    """Output is shrunk to what is left if no call in flight could give anything back."""
    root = open_account(tokens=1000)
    ledger.settle(get(root, 700), 700, 0)
    assert get(root, 4096).output_tokens == 300


def test_a_call_is_not_shrunk_while_others_hold_head_room() -> None:
    """While a call in flight may give something back, a call waits for its full size."""
    root = open_account(tokens=1000)
    flight = get(open_account(root), 700)
    woken: list[str] = []
    ticket = queue(open_account(root), 500, woken, "second")
    ledger.settle(flight, 200, 0)
    assert woken == ["second"]
    assert isinstance(ticket.verdict, Reservation)
    assert ticket.verdict.output_tokens == 500


def test_less_than_a_useful_answer_is_not_sent() -> None:
    """A call is shrunk down to the least useful answer and no further: then it is over budget."""
    exact = open_account(tokens=100 + LEAST_OUTPUT)
    got = ledger.reserve(exact, Want(100, 4096), lambda: None)
    assert isinstance(got, Reservation)
    assert got.output_tokens == LEAST_OUTPUT
    short = open_account(tokens=100 + LEAST_OUTPUT - 1)
    assert isinstance(ledger.reserve(short, Want(100, 4096), lambda: None), Over)


@pytest.mark.parametrize(
    ("input_price", "output_price", "output"), [(0.3, 0.1, 7), (0.9, 0.1, 1), (0.0, 0.1, 10)]
)
def test_an_amount_that_fits_to_the_micro_dollar_is_granted_whole(
    input_price: float, output_price: float, output: int
) -> None:
    """What fits is granted: the arithmetic of floats takes no token away."""
    root = open_account(usd=0.000001)
    got = ledger.reserve(root, Want(1, output, Price(input_price, output_price)), lambda: None)
    assert isinstance(got, Reservation)
    assert got.output_tokens == output


def test_a_call_that_can_never_fit_is_over_budget_at_once() -> None:
    """A call that would not fit even after all calls in flight have settled does not wait."""
    root = open_account(tokens=1000)
    ledger.settle(get(root, 600), 600, 0)
    get(open_account(root), 300)
    got = ask(open_account(root), 1000)
    assert isinstance(got, Ticket)
    large = ledger.reserve(open_account(root), Want(500, 100), lambda: None)
    assert isinstance(large, Over)
    assert (large.resource, large.cap, large.used) == ("tokens", 1000, 600)


def test_waiters_are_served_first_come_first_served() -> None:
    """A small call does not pass a large one that came first and waits for the same account."""
    root = open_account(tokens=1000)
    flight = get(open_account(root), 600)
    woken: list[str] = []
    queue(open_account(root), 900, woken, "large")
    queue(open_account(root), 70, woken, "small")
    ledger.settle(flight, 0, 0)
    assert woken == ["large", "small"]


def test_a_call_that_does_not_share_the_blocking_account_may_pass() -> None:
    """A waiting call is overtaken only by calls that do not share the account that blocks it."""
    root = open_account(tokens=10_000)
    narrow = open_account(root, tokens=100)
    get(narrow, 100)
    assert isinstance(ask(open_account(narrow), 100), Ticket)
    assert isinstance(ask(open_account(root), 100), Reservation)


def test_a_waiting_call_that_can_no_longer_fit_is_refused() -> None:
    """Every settle checks the queue: the amount used may leave too little for a waiting call."""
    root = open_account(tokens=1000)
    flight = get(open_account(root), 950)
    woken: list[str] = []
    first = queue(open_account(root), 500, woken, "first")
    second = queue(open_account(root), 50, woken, "second")
    ledger.settle(flight, 950, 0)
    assert woken == ["first", "second"]
    assert isinstance(first.verdict, Over)
    assert isinstance(second.verdict, Reservation)


def test_a_settle_serves_the_queues_of_all_ancestors() -> None:
    """A settle serves the queue of every account on the way up."""
    root = open_account(tokens=1000)
    leaf = open_account(open_account(root, tokens=1000), tokens=1000)
    flight = get(leaf, 1000)
    woken: list[str] = []
    queue(open_account(root), 500, woken, "above")
    ledger.settle(flight, 100, 0)
    assert woken == ["above"]


def test_a_call_blocked_by_two_accounts_keeps_its_turn() -> None:
    """A waiting call that one account admits and the next blocks keeps its place in the order."""
    root = open_account(tokens=1000)
    inner = open_account(root, tokens=800)
    inside, outside = get(open_account(inner), 600), get(open_account(root), 350)
    woken: list[str] = []
    queue(open_account(inner), 700, woken, "inner")
    queue(open_account(root), 700, woken, "root")
    ledger.settle(inside, 0, 0)
    assert woken == []
    ledger.settle(outside, 0, 0)
    assert woken == ["inner"]


def test_leaving_the_queue_lets_the_next_one_in() -> None:
    """When a call leaves the queue, the next call that fits is served at once."""
    root = open_account(tokens=1000)
    get(open_account(root), 600)
    woken: list[str] = []
    large = queue(open_account(root), 900, woken, "large")
    queue(open_account(root), 300, woken, "small")
    ledger.withdraw(large)
    assert woken == ["small"]


def test_an_unused_grant_is_undone() -> None:
    """A run stopped in the same step in which its call was granted gives everything back, and the next call is served."""
    root = open_account(tokens=1000)
    flight = get(open_account(root), 600)
    woken: list[str] = []
    granted = queue(open_account(root), 900, woken, "granted")
    queue(open_account(root), 300, woken, "next")
    ledger.settle(flight, 0, 0)
    assert woken == ["granted"]
    ledger.withdraw(granted)
    assert woken == ["granted", "next"]
    assert root.reserved == Amount(1, 300, 0)


def test_a_thousand_calls_leave_the_queue_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving the queue takes far fewer than quadratic steps."""
    root = open_account(tokens=100)
    get(open_account(root), 100)
    tickets = [queue(open_account(root), 100, [], "") for _ in range(5000)]
    steps = count_comparisons(monkeypatch)
    for ticket in reversed(tickets):
        ledger.withdraw(ticket)
    assert steps[0] < 5000 * 40


def count_comparisons(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    steps = [0]
    compare = Ticket.__lt__

    def counted(a: Ticket, b: Ticket) -> bool:
        steps[0] += 1
        return compare(a, b)

    monkeypatch.setattr(Ticket, "__lt__", counted)
    return steps


def test_calls_and_delegations_are_charged_all_or_nothing() -> None:
    """A charge passes every account on the way up or leaves no trace in any."""
    root = open_account(None, "lead", delegations=1, calls=10)
    child = open_account(root, delegations=5)
    assert ledger.charge(child, calls=1, delegations=1) is None
    over = ledger.charge(child, calls=1, delegations=1)
    assert over is not None
    assert (over.owner, over.resource, over.cap, over.used) == ("lead", "delegations", 1, 1)
    left = ledger.left(child)
    assert (left.delegations, left.tokens, left.usd, left.calls) == (0, None, None, 9)
    assert ledger.charge(child, calls=1) is None


def test_a_first_look_counts_requests_in_flight() -> None:
    """`look` refuses if no request would be left, so that no child waits in vain; it reserves nothing."""
    root = open_account(requests=2)
    get(root, 100)
    assert ledger.look(root) is None
    get(open_account(root), 100)
    over = ledger.look(root)
    assert over is not None
    assert (over.resource, over.cap, over.used) == ("requests", 2, 2)


def test_a_limit_in_money_is_rounded_down_and_spending_up() -> None:
    """Rounding to micro-dollars never lets anything pass a limit."""
    root = open_account(usd=0.0000015)
    assert cost(Price(0.4, 0.4), 1, 0) == 1
    assert isinstance(ask(root, 2, ONE_A_TOKEN), Over)
    assert isinstance(ask(root, 1, ONE_A_TOKEN), Reservation)
    assert NOTHING.micros == cost(None, 10**6, 10**6) == 0


def test_a_refusal_names_the_limit_and_its_numbers() -> None:
    """A refusal names the limit, the run it is set on, and how much is used."""
    root = open_account(None, "lead", tokens=1500)
    ledger.settle(get(root, 1450), 1450, 0)
    over = ask(open_account(root), 4096)
    assert isinstance(over, Over)
    for part in ("lead", "token limit", "1,450", "1,500"):
        assert part in over.words
    paid = open_account(None, "lead", usd=0.25)
    ledger.settle(get(paid, 250_000, ONE_A_TOKEN), 250_000, 250_000)
    broke = ask(paid, 100, ONE_A_TOKEN)
    assert isinstance(broke, Over)
    assert "$0.25" in broke.words
