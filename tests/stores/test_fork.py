"""Forked processes: a child that runs a tree works or gets a clear error; its parent continues undisturbed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

BEGIN = """
import asyncio, multiprocessing, os, sys, threading, time
from remit import Agent, StoreError, run, run_sync, tool
from remit.stores import open_store
from remit.testing import ScriptedModel, call, say

@tool
async def change(what: str) -> str:
    "Changes something."
    return what

agent, url = Agent("lead", tools=[change]), sys.argv[1]

def model():
    return ScriptedModel([call("change", what="x" * 5000), say("done")])

def tell(store):
    "Print how the tree of a child ended, or why it could not start."
    try:
        outcome = run_sync(agent, "go", model=model(), store=store, policy=["allow *"])
        # In one write: the lines of several children do not mix.
        print(f"{outcome.text} {outcome.warnings}\\n", end="", flush=True)
    except StoreError as error:
        print(f"{error}\\n", end="", flush=True)

def fork(store):
    "Fork a child that exits normally, which frees the objects it inherited."
    child = os.fork()
    if not child:
        tell(store)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0

class Parent(threading.Thread):
    "Runs one tree after another on a store that stays open."

    def __init__(self):
        super().__init__()
        self.store, self.ran, self.stopping = open_store(url), 0, False
        self.start()
        while not self.ran:
            time.sleep(0.01)

    def run(self):
        asyncio.run(self.go())

    async def go(self):
        while not self.stopping:
            outcome = await run(agent, "go", model=model(), store=self.store, policy=["allow *"])
            assert (outcome.text, outcome.warnings) == ("done", ())
            self.ran += 1
        await self.store.close()

    def stop(self):
        self.stopping = True
        self.join()
        print("parent", self.ran)
"""

OPEN = """
parent = Parent()
for store in (url, url, url, parent.store):
    fork(store)
    time.sleep(0.02)
parent.stop()
"""

CLOSED = """
tell(url)
children = [multiprocessing.get_context("fork").Process(target=tell, args=(url,)) for _ in range(2)]
for child in children:
    child.start()
tell(url)
for child in children:
    child.join()
"""


def play(program: str, url: str) -> list[str]:
    """The output of a program. It runs in its own process: it forks, and the tests have threads."""
    command = [sys.executable, "-W", "ignore", "-c", BEGIN + program, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_child_of_a_process_with_an_open_file_is_refused(tmp_path: Path) -> None:
    """SQLite does not support forks: the child is refused at once, with advice, and the parent continues."""
    path = tmp_path / "runs.db"
    *children, inherited, parent = play(OPEN, f"sqlite:///{path}")
    for said in children:
        assert str(path) in said
        assert "forked while a SQLite store was open" in said
    assert "was opened before this process was forked" in inherited
    assert all(
        "Close SQLite stores before the fork" in said and "'spawn'" in said for said in (*children, inherited)
    )
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        ((trees,),) = connection.execute(
            "SELECT count(*) FROM remit_trees WHERE status = 'completed'"
        ).fetchall()
    assert parent == f"parent {trees}"


def test_children_forked_while_no_file_is_open_can_use_it(tmp_path: Path) -> None:
    """Processes forked between two trees use the same file at the same time as their parent."""
    path = tmp_path / "runs.db"
    assert play(CLOSED, f"sqlite:///{path}") == ["done ()"] * 4
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute(
            "SELECT count(*) FROM remit_trees WHERE status = 'completed'"
        ).fetchall() == [(4,)]


def test_children_run_trees_on_a_server_that_their_parent_uses(postgres_url: str) -> None:
    """A child opens its own connections, does not use its parent's, and cannot use its parent's store."""
    *children, inherited, parent = play(OPEN, postgres_url)
    assert children == ["done ()"] * 3
    assert "was opened before this process was forked. Open the store in each process." in inherited
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT count(*) FROM remit_trees WHERE status = 'completed'").fetchall()
    assert rows == [(int(parent.split()[1]) + 3,)]


HELD = """
from pathlib import Path
import remit.tools.builtin.files.files_read as seen

held = seen.changing(Path("/w"), ("a",))
threading.Thread(target=lambda: (held.acquire(), time.sleep(60)), daemon=True).start()
while not held.locked():
    time.sleep(0.01)
child = os.fork()
if not child:
    os._exit(not seen.changing(Path("/w"), ("a",)).acquire(timeout=5))
print(os.waitpid(child, 0)[1])
"""


def test_a_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path) -> None:
    """A lock that a thread of the parent held at the fork is free in the child."""
    assert play(HELD, f"sqlite:///{tmp_path}/runs.db") == ["0"]
