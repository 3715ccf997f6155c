"""Gates: how many commands or searches execute at once in a process, over all runs and event loops."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from remit import Agent, Limits, Outcome, Status, ToolMessage, run, start, tool
from remit.stores.memory import MemoryStore
from remit.tasks.semaphore import Gate, Pass
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.builtin.search.grep import grep
from remit.tools.builtin.search.grep_engines import SEARCHES
from remit.tools.builtin.terminal.terminal import make_terminal, terminal
from remit.tools.processes.process import COMMANDS, MOST_COMMANDS
from remit.types.events import CallEnded, CallStarted


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


class Worker:
    """A tool behind a gate, and the number of its calls that executed at once."""

    def __init__(self, most: int) -> None:
        self.now = self.peak = self.begun = 0

        @tool(tier="observe")
        async def work(seconds: float = 1.0) -> str:
            """Works."""
            self.begun += 1
            self.now += 1
            self.peak = max(self.peak, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1
            return "worked"

        self.tool = work
        self.tool.gate = Gate(most)


# --- In runs -------------------------------------------------------------------------------------


async def test_calls_of_all_runs_share_a_gate() -> None:
    """A gate limits the calls of its tool over all runs together."""
    worker = Worker(3)
    kid = Agent("kid", tools=[worker.tool])
    lead = Agent("lead", tools=[worker.tool], subagents=[kid])
    mine = calls(*[call("work")] * 5, *[call("task", agent="kid", prompt="x")] * 4)
    scripts = {"lead": [mine, say("ok")], "kid": [calls(*[call("work")] * 5), say("done")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead, "go", model=model)
    assert outcome.ok
    assert all(m.ok for m in results(outcome))
    assert (worker.peak, worker.begun) == (3, 25)


async def test_a_call_starts_when_its_gate_admits_it() -> None:
    """A call is recorded as started, and its time counts, only when the gate admits it."""
    worker, store = Worker(1), MemoryStore()
    asked = calls(*[call("work", seconds=8)] * 3)
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(
            Agent("lead", tools=[worker.tool]), "go", model=model, store=store, limits=Limits(call_seconds=10)
        )
    assert all(m.ok for m in results(outcome))
    seen = [e.kind async for e in store.read(outcome.run_id) if isinstance(e, CallStarted | CallEnded)]
    assert seen == ["call_started", "call_ended"] * 3


async def test_a_cancel_ends_waiting_calls_and_frees_the_gate() -> None:
    """Law 4: no waiting call starts after a cancel, and the next run finds the gate free."""
    worker = Worker(2)
    lead = Agent("lead", tools=[worker.tool])
    model = ScriptedModel([calls(*[call("work", seconds=1000)] * 10)])
    async with start(lead, "go", model=model) as running:
        await asyncio.sleep(1)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert (outcome.status, worker.begun, worker.now, len(results(outcome))) == (Status.CANCELLED, 2, 0, 10)
    with ScriptedModel([calls(*[call("work")] * 4), say("ok")]) as again:
        assert (await run(lead, "go", model=again)).ok
    assert worker.peak == 2


async def test_a_refused_call_frees_its_place() -> None:
    """Bad arguments and an exhausted budget leave the gate free for the next call."""
    worker = Worker(1)
    asked = calls(call("work", seconds="x"), call("work"), call("work"), call("work"))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[worker.tool]), "go", model=model, limits=Limits(calls=2))
    assert [m.ok for m in results(outcome)] == [False, True, True, False]


def test_commands_and_searches_have_a_gate() -> None:
    """All commands of a process share one gate, including those of custom terminal tools; all searches share another."""
    assert terminal.gate is COMMANDS
    assert make_terminal(allow=["git *"]).gate is COMMANDS
    assert grep.gate is SEARCHES
    assert COMMANDS.most == MOST_COMMANDS == 32
    assert 2 <= SEARCHES.most <= 8


# --- The gate itself -----------------------------------------------------------------------------


def test_places_are_granted_in_order() -> None:
    """Waiters get places in order; a waiter that leaves is skipped."""
    gate, woken = Gate(1), list[int]()
    places = [gate.enter(lambda n=n: woken.append(n)) for n in range(4)]
    assert [place.granted for place in places] == [True, False, False, False]
    gate.leave(places[1])
    gate.leave(places[0])
    assert woken == [2]
    gate.leave(places[2])
    gate.leave(places[3])
    assert woken == [2, 3]
    assert gate.enter(lambda: None).granted


def test_a_place_for_a_closed_event_loop_goes_to_the_next() -> None:
    """A waiter that cannot be woken does not keep a place."""
    gate, woken = Gate(1), list[str]()

    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    inside = gate.enter(lambda: None)
    gate.enter(closed)
    gate.enter(lambda: woken.append("next"))
    gate.leave(inside)
    assert woken == ["next"]


@pytest.mark.real_time
def test_a_gate_works_across_threads() -> None:
    """Event loops in several threads share a gate, and no place is lost or added."""
    gate, lock = Gate(3), threading.Lock()
    inside = peak = 0

    def go() -> None:
        nonlocal inside, peak
        for _ in range(200):
            granted = threading.Event()
            place: Pass = gate.enter(granted.set)
            assert place.granted or granted.wait(30)
            with lock:
                inside += 1
                peak = max(peak, inside)
            with lock:
                inside -= 1
            gate.leave(place)

    workers = [threading.Thread(target=go) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (inside, peak <= 3) == (0, True)
    assert all(gate.enter(lambda: None).granted for _ in range(3))
    assert not gate.enter(lambda: None).granted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_starts_with_an_empty_gate() -> None:
    """Calls of the parent do not block its forked child."""
    code = (
        "import os\nfrom remit.tasks.semaphore import Gate\ngate = Gate(1)\ngate.enter(print)\npid = os.fork()\n"
        "os._exit(not gate.enter(print).granted) if pid == 0 else None\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
