"""What was tried against the journal: bad commands, bad rows, lost files, cancels at the wrong moment, trouble that stays."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import remit.remote as remote
import remit.stores.journal_store as journal_store
import remit.stores.sqlite as sqlite
import remit.stores.writing.writer as writer
from remit import Agent, Outcome, Request, Status, StoreError, UsageError, allow, resume, run, start, tool
from remit.history.fold import fold, going_on
from remit.history.redaction import REDACTED, Redactor
from remit.stores import open_store
from remit.stores.memory import MemoryStore
from remit.stores.sql.database import Trouble
from remit.stores.sqlite import SqliteStore
from remit.testing import ScriptedModel, call, calls, say
from remit.testing.scripted import Line
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.commands import Answer, Cancel, Send
from remit.types.events import VERSION, ApprovalRequested, Event, RunStarted, Warned, Where
from remit.types.limits import Limits
from remit.types.messages import AssistantMessage, ToolMessage, user
from remit.types.ports import Posted

ODD: Any = None
"""What careless code hands over, without a type checker's eye."""


def by_turn(*steps: Line) -> Callable[[Request], Line]:
    """A script without a memory: the step follows from how often the run has spoken."""
    return lambda request: steps[sum(isinstance(m, AssistantMessage) for m in request.messages)]


@tool(tier="observe")
async def stare(seconds: float) -> str:
    """Looks for long."""
    await asyncio.sleep(seconds)
    return "saw it all"


@tool(tier="observe", name="stare")
async def quick(seconds: float) -> str:
    """Looks, whatever is asked."""
    return f"saw {seconds}"


changed: list[str] = []


@tool
async def change(what: str) -> str:
    """Changes something."""
    changed.append(what)
    return f"changed {what}"


LEAD = Agent("lead", tools=[stare, change])


def staring(seconds: float) -> ScriptedModel:
    return ScriptedModel(by_turn(call("stare", seconds=seconds), say("done")))


async def yes(request: ApprovalRequest) -> Decision:
    del request
    return allow()


async def nobody(request: ApprovalRequest) -> Decision:
    del request
    await asyncio.sleep(3600)
    return allow()


def event(root: str, seq: int, *, run: str = "", parent: str | None = None) -> Event:
    where = Where(run or root, parent, root, 0, ("lead",), "lead")
    base: dict[str, Any] = {"seq": seq, "at": 1000.0 + seq, "where": where, "v": VERSION}
    return RunStarted(**base, task=user("go")) if seq == 1 or run else Warned(**base, text="hm")


async def begun(path: Path, *roots: str) -> SqliteStore:
    """A store that owns trees of one event each."""
    store = SqliteStore(path)
    for root in roots:
        await store.claim(root, new=True)
        store.append(event(root, 1))
    await store.flush()
    return store


BAD_COMMANDS: list[Any] = [
    {"kind": "cancel", "id": "x", "at": 1, "run": "r1", "reason": None},
    {"kind": "answer", "id": "x", "at": 1, "request": "r1/approval1", "allowed": True, "scope": "forever"},
    {"kind": "pause", "id": "x", "at": 1},
    "garbage",
]


@pytest.mark.real_time
async def test_a_command_that_cannot_be_read_does_not_make_a_tree_deaf(tmp_path: Path) -> None:
    """What stands in the store behind a bad command, or one of a newer version, is heard all the same."""
    store = SqliteStore(tmp_path / "runs.db")
    async with start(LEAD, "go", model=staring(20), store=store) as running:
        await store.flush()
        with closing(sqlite3.connect(tmp_path / "runs.db")) as raw, raw:
            for number, bad in enumerate(BAD_COMMANDS, 1):
                row = (running.run_id, number, f"bad{number}", msgspec.json.encode(bad).decode())
                raw.execute("INSERT INTO remit_commands (root, number, id, data) VALUES (?, ?, ?, ?)", row)
        await store.post(running.run_id, Cancel(id="good", at=1.0, by="bob", run=running.run_id))
        outcome = await running.outcome()
    await store.close()
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "cancelled by bob")


@pytest.mark.real_time
async def test_a_command_that_cannot_be_read_back_is_not_stored(tmp_path: Path) -> None:
    """Whoever writes a bad command hears of it, not the tree."""
    bad = Cancel(id="x", at=1.0, run="r1", reason=ODD)
    for store in (MemoryStore(), SqliteStore(tmp_path / "runs.db")):
        await store.claim("r1", new=True)
        store.append(event("r1", 1))
        await store.flush()
        with pytest.raises(StoreError):
            await store.post("r1", bad)
        assert await store.commands("r1", 0, wait=False) == []
        await store.close()


async def test_what_is_asked_from_elsewhere_is_checked_there() -> None:
    """Odd ids, reasons and scopes are the caller's mistake, and said so."""
    store, odd = MemoryStore(), ODD
    await run(LEAD, "go", model=staring(1), store=store)
    for asked in (
        remote.cancel(store, odd),
        remote.look(store, odd),
        remote.approve(store, odd),
        remote.cancel(store, "r1", odd),
        remote.approve(store, "r1/approval1", scope=odd),
    ):
        with pytest.raises(UsageError):
            await asked


class OddStore(MemoryStore):
    """Answers `commands` with what it was given."""

    def __init__(self, answers: object, *, yields: bool = True) -> None:
        super().__init__()
        self.answers: Any = answers
        self.yields = yields
        self.asked = 0

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        self.asked += 1
        if self.yields or self.asked > 1000:
            await asyncio.sleep(0.1)
        return self.answers


SAME = [Posted(1, Send(id="a", at=1.0, run="r1", text="hello"))]
ODD_ANSWERS: list[object] = [None, ["x"], 5, [Posted(1, Send(id="a", at=1.0, run="r1", text=ODD))]]


@pytest.mark.parametrize("answers", ODD_ANSWERS, ids=["none", "text", "number", "no message"])
async def test_a_store_that_says_nonsense_about_commands_breaks_nothing(answers: object) -> None:
    """The outcome comes back, and the tree is let go of, whatever a store answers."""
    store = OddStore(answers)
    assert (await run(LEAD, "go", model=staring(1), store=store)).ok
    assert not (await store.trees())[0].live


@pytest.mark.parametrize("answers", [[], SAME], ids=["nothing", "the same"])
async def test_a_store_that_does_not_wait_does_not_hang_the_loop(answers: object) -> None:
    """A store that answers at once, every time, leaves the tree room to run."""
    store = OddStore(answers, yields=False)
    assert (await run(LEAD, "go", model=staring(1), store=store)).ok
    assert store.asked < 100


async def test_an_answer_to_what_nobody_asked_approves_nothing() -> None:
    """An answer counts for a request that has been made, not for whichever comes to have that id."""
    changed.clear()
    store = MemoryStore()
    twice = ScriptedModel(by_turn(call("change", what="a"), call("change", what="b"), say("done")))
    async with start(LEAD, "go", model=twice, store=store, approver=nobody) as running:
        await asyncio.sleep(1)
        for number in (2, 1):
            request = f"{running.run_id}/approval{number}"
            await store.post(running.run_id, Answer(id=f"k{number}", at=1.0, request=request, allowed=True))
        await asyncio.sleep(1)
        assert changed == ["a"]


class Forgetful(MemoryStore):
    """Cannot say at first what was posted."""

    fails = 0

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        if self.fails:
            self.fails -= 1
            raise StoreError("The store is locked for a moment.")
        return await super().commands(root, after, wait=wait)


async def test_an_old_cancel_stays_old_when_the_store_cannot_say_at_once_what_was_posted() -> None:
    """Whoever resumes a tree wants it to run: what was posted before is passed over, whenever it is heard of."""
    store = Forgetful()
    async with start(LEAD, "go", model=staring(10), store=store) as running:
        await asyncio.sleep(1)
    await store.post(running.run_id, Cancel(id="old", at=1.0, by="bob", run=running.run_id))
    store.fails = 1
    assert (await resume(store, running.run_id, agent=LEAD, model=staring(10))).ok


@pytest.mark.real_time
async def test_a_resumed_run_never_makes_a_call_with_what_was_redacted(tmp_path: Path) -> None:
    """A call whose arguments are not what the model wrote any more is not made; the model is told."""
    changed.clear()
    store = SqliteStore(tmp_path / "runs.db")
    secret = "OPENAI_API_KEY=sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56"

    def model() -> ScriptedModel:
        both = calls(call("change", what=secret), call("change", what="plain"))
        return ScriptedModel(by_turn(both, say("done")))

    async with start(LEAD, "go", model=model(), store=store, approver=nobody) as running:
        async for told in running.events():
            if isinstance(told, ApprovalRequested):
                break
    outcome = await resume(store, running.run_id, agent=LEAD, model=model(), approver=yes)
    await store.close()
    assert changed == ["plain"]
    told = [m.content for m in outcome.messages if isinstance(m, ToolMessage)]
    assert told[0].startswith("Not run")


KEYS = [
    "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",
    "xai-Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56QrSt78Uv90Wx12Yz34ABCD",
    "sk_0123456789abcdef0123456789abcdef0123456789abcdef",
    "SG.Ab12Cd34Ef56Gh78Ij90Kl.Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56QrSt78Uv90W",
    "tool --token Ab12Cd34Ef56Gh78Ij90Kl12Mn34",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_providers_are_known(key: str) -> None:
    """What providers hand out as keys is left out of texts and of JSON."""
    redactor = Redactor(environment={})
    assert REDACTED in redactor.redact_text(f"it is {key}")
    assert REDACTED.encode() in redactor.redact(msgspec.json.encode({"x": f"a\n{key}\nb"}))


ADDRESSES = ["sqlite://b:s3cr3t@h/db", "postgresql:/b:s3cr3t@h/db", "b:s3cr3t@h", "host=h password=s3cr3t"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_means_nothing_keeps_its_password(address: str) -> None:
    """The message names what is wrong, not the password."""
    with pytest.raises(UsageError) as caught:
        open_store(address)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.real_time
async def test_a_tree_that_is_taken_over_takes_no_other_one_with_it(tmp_path: Path) -> None:
    """Trees that share a store object end each by themselves."""
    store = await begun(tmp_path / "runs.db", "a", "b")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as raw, raw:
        other = '{"host":"elsewhere","pid":1,"token":"t"}'
        raw.execute("UPDATE remit_trees SET owner = ?, expires = expires + 99 WHERE root = 'a'", (other,))
    store.append(event("a", 2))
    with pytest.raises(StoreError):
        await store.flush()
    changed.clear()
    model = ScriptedModel(by_turn(call("change", what="x"), say("done")))
    outcome = await run(LEAD, "go", model=model, store=store, approver=yes)
    await store.close()
    assert (outcome.status, outcome.warnings, changed) == (Status.COMPLETED, (), ["x"])


class Cancelling(SqliteStore):
    """Cancels a task in the moment in which a tree has been claimed."""

    victim: asyncio.Task[Outcome] | None = None

    async def claim(self, root: str, *, new: bool) -> None:
        await super().claim(root, new=new)
        if self.victim is not None:
            self.victim.cancel()


@pytest.mark.real_time
async def test_a_cancel_in_the_moment_of_the_claim_leaves_nothing_owned(tmp_path: Path) -> None:
    """Whoever is cancelled while a tree is claimed does not own it afterwards."""
    store = Cancelling(tmp_path / "runs.db")
    async with start(LEAD, "go", model=staring(20), store=store) as running:
        pass
    store.victim = asyncio.ensure_future(resume(store, running.run_id, agent=LEAD, model=staring(0)))
    with suppress(asyncio.CancelledError):
        await store.victim
    store.victim = None
    assert [info.owner for info in await store.trees()] == [""]
    await store.close()


@pytest.mark.real_time
async def test_a_release_that_failed_is_not_undone_by_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only trees that are claimed are kept alive: one that could not be released in time runs out, or is released later."""
    for module in (writer, journal_store):
        monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    monkeypatch.setattr(writer, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(sqlite, "BUSY_S", 0.02)
    store = await begun(tmp_path / "runs.db", "a", "b")
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError):
            await store.release("a")
        raw.execute("ROLLBACK")

        def expires(root: str) -> float:
            return raw.execute("SELECT expires FROM remit_trees WHERE root = ?", (root,)).fetchone()[0]

        before = expires("b")
        while expires("b") < before + 0.2:  # noqa: ASYNC110 - a heartbeat sets no event of the loop's
            await asyncio.sleep(0.05)
        assert expires("b") - expires("a") > 0.1
    await store.close()


@pytest.mark.timeout(30)
def test_a_tree_whose_loop_is_gone_can_be_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim lives no longer than the event loop of whoever made it."""
    monkeypatch.setattr(writer, "HEARTBEAT_S", 0.05)

    async def take_up() -> None:
        other = SqliteStore(tmp_path / "runs.db")
        while (await other.trees())[0].live:  # noqa: ASYNC110 - it is a thread that lets go of it
            await asyncio.sleep(0.02)
        await other.close()

    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(begun(tmp_path / "runs.db", "a"))
    loop.close()
    asyncio.run(take_up())
    asyncio.run(store.close())


@pytest.mark.real_time
async def test_a_close_that_is_cancelled_ends_both_threads(tmp_path: Path) -> None:
    """Whatever a close is cut short by, the threads and their connections are not left behind."""
    inner: Any = await begun(tmp_path / "runs.db", "a")
    await inner.trees()
    threads = [inner._writer.worker._thread, inner._reader.worker._thread]
    # The threads end slowly, so that the cancel comes before they have.
    inner._ended = lambda _: asyncio.sleep(60)
    with suppress(TimeoutError):
        await asyncio.wait_for(inner.close(), 0.2)
    assert [thread.join(5) or thread.is_alive() for thread in threads] == [False, False]


@pytest.mark.real_time
async def test_a_tree_without_events_is_let_go_of_whatever_was_asked_of_it(tmp_path: Path) -> None:
    """A command to a tree that never began does not keep its row."""
    store = SqliteStore(tmp_path / "runs.db")
    await store.claim("a", new=True)
    await store.post("a", Cancel(id="x", at=1.0, run="a"))
    await store.release("a")
    await store.claim("a", new=True)
    await store.close()


async def test_jobs_that_come_while_others_are_given_up_do_not_end_the_writer(tmp_path: Path) -> None:
    """The loop adds jobs at any moment, also while the writer's thread looks at those that have waited too long."""
    inner: Any = SqliteStore(tmp_path / "runs.db")
    jobs = inner._writer._jobs

    class Watched(writer.Job[None]):
        def __getattribute__(self, name: str) -> Any:
            if name == "until" and len(jobs) < 3:
                jobs.append(writer.Job(lambda *_: None, alone=False, lasting=True))
            return super().__getattribute__(name)

    jobs.append(Watched(lambda *_: None, alone=False, lasting=True))
    inner._writer._trouble = Trouble("It is locked.", passing=True)
    inner._writer._expire()
    assert len(jobs) == 2


@pytest.mark.real_time
async def test_a_store_that_is_removed_while_a_tree_runs_is_missed(tmp_path: Path) -> None:
    """A changing call does not run on the word of a file that nobody will find, and the outcome says what is missing."""
    changed.clear()
    path = tmp_path / "folder" / "runs.db"
    model = ScriptedModel(by_turn(call("stare", seconds=0.2), call("change", what="x"), say("done")))
    async with start(LEAD, "go", model=model, store=f"sqlite:///{path}", approver=yes) as running:
        shutil.rmtree(path.parent)
        outcome = await running.outcome()
    assert changed == []
    assert any("removed" in warning for warning in outcome.warnings)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "history",
    [
        [("r1", None), ("r1.1", "r1"), ("r1.1", "r1.1")],
        [("r1", "r1")],
        [("r1", None), ("r2", None), ("r1.1", "r1")],
        [("r1", None), ("r1.1", "r1"), ("r1", "r1.1")],
    ],
)
def test_a_damaged_journal_can_be_folded(history: list[tuple[str, str | None]]) -> None:
    """Runs that come before their parents, twice, or in a ring are passed over; nothing raises, nothing hangs."""
    events: list[Event] = [
        event("r1", seq, run=name, parent=parent) for seq, (name, parent) in enumerate(history, 1)
    ]
    last = event("r1", 99, run=history[-1][0], parent=history[-1][1])
    events.append(ApprovalRequested(last.seq, last.at, last.where, last.v, request="q", call="c", tool="t"))
    tree = fold(events)
    tree.outcomes()
    tree.spending()
    assert not tree.root or tree.root == "r1" in {record.id for record in going_on(tree)}


@pytest.mark.real_time
async def test_one_row_that_cannot_be_read_hides_no_other_tree(tmp_path: Path) -> None:
    """The list of trees is there, whatever a newer version or an accident wrote into one of them."""
    store = await begun(tmp_path / "runs.db", "a", "b", "c")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as raw, raw:
        raw.execute("UPDATE remit_trees SET status = 'paused' WHERE root = 'a'")
        raw.execute("UPDATE remit_trees SET last_at = 'soon' WHERE root = 'b'")
    assert "c" in {info.root for info in await store.trees()}
    await store.close()


@pytest.mark.real_time
async def test_a_clock_that_is_set_forward_charges_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's time goes by the loop's clock, also after a resume: setting the wall clock is not time spent."""
    real, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])
    store = MemoryStore()
    async with start(LEAD, "go", model=staring(20), store=store, limits=Limits(seconds=60)) as running:
        await asyncio.sleep(0.05)
        ahead[0] = 3600.0
        await asyncio.sleep(0.05)
    kept = Agent("lead", tools=[change, quick])
    assert (await resume(store, running.run_id, agent=kept, model=staring(0))).ok
