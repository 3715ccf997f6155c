"""The ledger by hand: overruns, and the last word that a delegating run keeps for itself."""

from __future__ import annotations

import asyncio

import pytest

import remit.engine.budget.ledger as ledger
from remit import Agent, Usage, resume, run, start, tool
from remit.engine.budget.account import NOTHING, Amount, Want
from remit.engine.budget.ledger import Account, Over, Overrun, Reservation, Ticket
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.types.events import Warned
from remit.types.limits import Limits
from remit.types.ports import Price

ONE_A_TOKEN = Price(1.0, 1.0)


def open_account(parent: Account | None = None, owner: str = "run", /, **caps: float | None) -> Account:
    every: dict[str, float | None] = dict.fromkeys(("requests", "tokens", "usd", "calls", "delegations"))
    return Account(owner, Limits(**{**every, **caps}), parent)  # pyright: ignore[reportArgumentType]


def ask(account: Account, tokens: int, woken: list[str] | None = None) -> Reservation | Over | Ticket:
    return ledger.reserve(
        account, Want(0, tokens), lambda: woken.append(account.owner) if woken is not None else None
    )


def get(account: Account, tokens: int) -> Reservation:
    got = ask(account, tokens)
    assert isinstance(got, Reservation)
    return got


def keep(account: Account, tokens: int) -> None:
    assert isinstance(ledger.withhold(account, Want(0, tokens), lambda: None), Reservation)


def test_an_overrun_is_recorded_in_full_and_closes_the_account() -> None:
    """Usage above the reservation is recorded in full, and the account accepts no new reservations."""
    root = open_account(None, "lead", tokens=1000)
    child = open_account(root)
    assert ledger.settle(get(child, 100), 130, 0) == (Overrun("tokens", 100, 130),)
    assert root.spent.tokens == 130
    over = ask(open_account(root), 10)
    assert isinstance(over, Over)
    assert over.overran
    assert "lead" in over.words
    assert ledger.look(root) is not None


def test_tokens_and_money_can_overrun_in_one_call() -> None:
    """Each resource that was overrun is reported."""
    root = open_account(tokens=1000, usd=1.0)
    got = ledger.reserve(root, Want(0, 100, ONE_A_TOKEN), lambda: None)
    assert isinstance(got, Reservation)
    overruns = ledger.settle(got, 130, 140)
    assert sorted(overruns) == [Overrun("tokens", 100, 130), Overrun("usd", 100, 140)]


def test_only_a_capped_resource_can_overrun() -> None:
    """Without a cap, using more than was estimated is not an overrun."""
    root = open_account(requests=10)
    assert ledger.settle(get(root, 100), 5000, 0) == ()
    assert isinstance(ask(root, 100), Reservation)


def test_an_overrun_below_closes_the_accounts_above_and_not_beside() -> None:
    """An overrun counts in the account and in every ancestor; a sibling's own account stays open to itself."""
    root = open_account()
    left, right = open_account(root, tokens=1000), open_account(root, tokens=1000)
    ledger.settle(get(open_account(left), 100), 200, 0)
    assert isinstance(ask(left, 100), Over)
    assert isinstance(ask(right, 100), Reservation)


def test_waiting_calls_are_refused_after_an_overrun() -> None:
    """An overrun ends the waiting: nothing more will be granted."""
    root = open_account(tokens=1000)
    flight = get(open_account(root), 900)
    woken: list[str] = []
    ticket = ask(open_account(root, "waiter"), 500, woken)
    assert isinstance(ticket, Ticket)
    ledger.settle(flight, 901, 0)
    assert woken == ["waiter"]
    assert isinstance(ticket.verdict, Over)


def test_after_an_overrun_nothing_is_promised() -> None:
    """What is left is what can still be spent: after an overrun only the run's own last word."""
    root = open_account(tokens=1000)
    keep(root, 100)
    child = open_account(root)
    ledger.settle(get(child, 100), 101, 0)
    assert ledger.left(child).tokens == 0
    assert ledger.left(root).tokens == 100


def test_a_last_word_counts_as_spent_for_others_in_every_ancestor() -> None:
    """A run that delegates withholds one request and its tokens in every capped ancestor's account."""
    root = open_account(requests=3, tokens=1000)
    middle = open_account(open_account(root), requests=2)
    keep(middle, 300)
    assert root.withheld == middle.withheld == Amount(1, 300, 0)
    assert (ledger.left(root).requests, ledger.left(root).tokens) == (2, 700)
    get(open_account(middle), 100)
    assert isinstance(ask(open_account(middle), 100), Over)
    assert isinstance(ask(open_account(root), 100), Reservation)


def test_a_parent_can_answer_after_its_children_spent_everything() -> None:
    """At any level, a run whose children spent everything can still send its last word."""
    root = open_account(requests=5, tokens=1000)
    middle = open_account(root, tokens=900)
    keep(root, 100)
    keep(middle, 100)
    while isinstance(got := ask(open_account(middle), 100), Reservation):
        ledger.settle(got, 100, 0)
    ledger.settle(get(middle, 100), 100, 0)
    ledger.settle(get(root, 100), 100, 0)
    assert root.spent.requests == 5
    assert isinstance(ask(root, 10), Over)


def test_a_last_word_is_never_waited_for() -> None:
    """Other calls do not wait for a last word to be released: they are over budget."""
    root = open_account(tokens=1000)
    keep(root, 950)
    assert isinstance(ask(open_account(root), 64), Over)


def test_a_last_word_goes_ahead_of_the_queue() -> None:
    """It becomes the run's own reservation in one step, while others wait and hold the rest."""
    root = open_account(tokens=1000)
    keep(root, 100)
    get(open_account(root), 850)
    assert isinstance(ask(open_account(root), 900), Ticket)
    assert get(root, 100).amount.tokens == 100
    assert root.withheld == NOTHING


def test_a_last_word_is_shrunk_rather_than_made_to_wait() -> None:
    """A call larger than what was withheld gets what there is, now."""
    root = open_account(tokens=1000)
    keep(root, 100)
    get(open_account(root), 850)
    assert get(root, 4096).output_tokens == 150


def test_a_last_word_is_kept_while_there_is_enough_for_an_ordinary_call() -> None:
    """A call that fits in its turn leaves the last word where it is."""
    root = open_account(tokens=1000)
    keep(root, 100)
    get(root, 300)
    assert root.withheld.tokens == 100


def test_a_last_word_can_be_said_after_an_overrun_while_it_fits() -> None:
    """An overrun takes nothing from a last word that still fits; one that ate it does."""
    for used, heard in ((250, True), (900, True), (950, False)):
        root = open_account(tokens=1000)
        keep(root, 100)
        ledger.settle(get(open_account(root), 200), used, 0)
        assert isinstance(ask(root, 100), Reservation) == heard


def test_no_last_word_is_withheld_after_an_overrun() -> None:
    """The account takes no new reservations, so a run may not start to delegate."""
    root = open_account(tokens=1000)
    ledger.settle(get(open_account(root), 100), 101, 0)
    assert isinstance(ledger.withhold(root, Want(0, 100), lambda: None), Over)


def test_withholding_again_replaces_the_last_word() -> None:
    """A run has one last word: asking again changes its size, and what it frees serves who waits."""
    root = open_account(tokens=1000)
    get(open_account(root), 500)
    keep(root, 400)
    woken: list[str] = []
    assert isinstance(ask(open_account(root, "waiter"), 200, woken), Ticket)
    keep(root, 100)
    assert root.withheld == Amount(1, 100, 0)
    assert woken == ["waiter"]


def test_a_released_last_word_is_for_others() -> None:
    """A run that has ended gives its last word back, and who waits is served."""
    root = open_account(tokens=1000)
    child = open_account(root)
    get(open_account(root), 500)
    keep(child, 400)
    woken: list[str] = []
    assert isinstance(ask(open_account(root, "waiter"), 200, woken), Ticket)
    ledger.release(child)
    assert woken == ["waiter"]
    assert root.withheld == NOTHING


def test_a_last_word_outlives_a_grant_that_nobody_took() -> None:
    """A run stopped in the step in which it was granted with the help of its last word still has it."""
    root = open_account(tokens=1000)
    keep(root, 100)
    flight = get(open_account(root), 880)
    ticket = ledger.reserve(root, Want(200, 100), lambda: None)
    assert isinstance(ticket, Ticket)
    ledger.settle(flight, 640, 0)
    assert isinstance(ticket.verdict, Reservation)
    ledger.withdraw(ticket)
    assert root.withheld == Amount(1, 100, 0)
    get(open_account(root), 260)
    assert isinstance(ask(root, 100), Reservation)


@pytest.mark.parametrize("delegates", [True, False])
def test_a_reply_that_delegates_has_its_last_word_at_once(delegates: bool) -> None:
    """What is held besides a call becomes its run's last word if the reply delegates, and is free otherwise."""
    root = open_account(requests=2)
    lead = open_account(root)
    got = ledger.reserve(lead, Want(0, 100), lambda: None, spare=True)
    assert isinstance(got, Reservation)
    ledger.settle(got, 100, 0, Want(0, 64) if delegates else None)
    assert isinstance(ask(open_account(root), 100), Over if delegates else Reservation)
    assert isinstance(ask(lead, 64), Reservation if delegates else Over)


@pytest.mark.parametrize(("tokens", "kept"), [(1200, 900), (1000, 64)])
def test_a_last_word_is_as_large_as_it_should_be_where_that_fits(tokens: int, kept: int) -> None:
    """In the step in which the reply is settled it is made larger, and stays what was spare where that does not fit."""
    root = open_account(tokens=tokens)
    got = ledger.reserve(root, Want(0, 100), lambda: None, spare=True)
    assert isinstance(got, Reservation)
    get(open_account(root), 150)
    ledger.settle(got, 100, 0, Want(300, 600))
    assert root.withheld == root.last_word == Amount(1, kept, 0)
    assert root.word_full == (kept == 900)


def test_a_last_word_is_not_made_larger_after_an_overrun() -> None:
    """The account takes no new reservations; what was spare is kept."""
    root = open_account(tokens=10_000)
    got = ledger.reserve(root, Want(0, 100), lambda: None, spare=True)
    assert isinstance(got, Reservation)
    ledger.settle(got, 101, 0, Want(300, 600))
    assert root.withheld == Amount(1, 64, 0)
    assert not root.word_full


def test_a_last_word_does_not_grow_ahead_of_waiting_calls() -> None:
    """Earlier tickets are served first; a run that needs more than its spare amount waits in turn."""
    root = open_account(tokens=1000)
    got = ledger.reserve(root, Want(0, 100), lambda: None, spare=True)
    other = get(open_account(root), 700)
    assert isinstance(got, Reservation)
    woken: list[str] = []
    assert isinstance(ask(open_account(root, "waiter"), 500, woken), Ticket)
    ledger.settle(got, 100, 0, Want(0, 100))
    assert root.withheld == Amount(1, 64, 0)
    ledger.settle(other, 100, 0)
    assert woken == ["waiter"]


def test_what_is_spare_is_waited_for_and_never_makes_a_call_wait() -> None:
    """Others wait for what is held besides a call in flight; the call itself goes without where it does not fit."""
    root = open_account(requests=2)
    first = ledger.reserve(open_account(root), Want(0, 100), lambda: None, spare=True)
    assert isinstance(first, Reservation)
    woken: list[str] = []
    second = ask(open_account(root, "second"), 100, woken)
    assert isinstance(second, Ticket)
    ledger.settle(first, 100, 0)
    assert woken == ["second"]
    last = ledger.reserve(open_account(requests=1), Want(0, 100), lambda: None, spare=True)
    assert isinstance(last, Reservation)
    assert last.spare == NOTHING


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(tokens=50_000), "A model call used 9,050 tokens, more than the "),
        (Limits(usd=5.0), "A model call used $4, more than the $"),
    ],
)
async def test_the_outcome_explains_an_overrun(limits: Limits, words: str) -> None:
    """An overrun leaves most of a limit unused: the outcomes of the run and of the root say so, once per tree."""
    much = Usage(1, 50, 9000, usd=4.0)
    child = calls(call("task", agent="leaf", prompt="a"), call("task", agent="leaf", prompt="b"))
    model = ScriptedModel(
        {"lead": [child, say("done")], "leaf": [say("ok", usage=much)]}, price=Price(1.0, 1.0)
    )
    outcome = await run(Agent("lead", subagents=[Agent("leaf")]), "go", model=model, limits=limits)
    first, second = (child.warnings for child in outcome.children)
    assert (len(first), len(second)) == (1, 0)
    assert first[0].startswith(words)
    assert outcome.warnings == (f"lead > leaf: {first[0]}",)


async def test_an_overrun_of_another_resource_is_reported_too() -> None:
    """A child that overran its own limit does not hide an overrun of another resource."""
    script = {
        "lead": [
            call("task", agent="small", prompt="a"),
            call("task", agent="dear", prompt="b"),
            call("task", agent="dear", prompt="c"),
            say("done"),
        ],
        "small": [say("ok", usage=Usage(1, 50, 9000, usd=0.000001))],
        "dear": [say("ok", usage=Usage(1, 5, 5, usd=4.0))],
    }
    below = [Agent("small", limits=Limits(tokens=6000)), Agent("dear")]
    model = ScriptedModel(script, price=Price(1.0, 1.0))
    outcome = await run(Agent("lead", subagents=below), "go", model=model, limits=Limits(usd=5.0))
    assert [text.split(", ")[0] for text in outcome.warnings] == [
        "lead > small: A model call used 9,050 tokens",
        "lead > dear: A model call used $4",
    ]


async def test_a_resumed_tree_still_explains_an_overrun() -> None:
    """The root's warning about its children is in the journal, and appears once."""
    waits = asyncio.Event()

    @tool(tier="observe")
    async def wait() -> str:
        """Waits."""
        await waits.wait()
        return "x"

    lead = Agent("lead", subagents=[Agent("leaf")], tools=[wait])
    much = Usage(1, 50, 9000)
    first = {
        "lead": [calls(call("task", agent="leaf", prompt="a"), call("wait"))],
        "leaf": [say("ok", usage=much)],
    }
    store = MemoryStore()
    running = start(lead, "go", model=ScriptedModel(first), limits=Limits(tokens=50_000), store=store)
    async with running:
        async for event in running.events():
            if isinstance(event, Warned):
                await running.cancel("enough")
        before = await running.outcome()
    waits.set()
    after = await resume(store, before.run_id, agent=lead, model=ScriptedModel({"lead": [say("done")]}))
    assert len(before.warnings) == 1
    assert after.warnings == before.warnings
