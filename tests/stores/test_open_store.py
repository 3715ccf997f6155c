"""Names and addresses of stores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.errors import UsageError
from remit.stores import default_path, open_store
from remit.stores.memory import MemoryStore
from remit.stores.postgres import PostgresStore
from remit.stores.sqlite import SqliteStore
from remit.testing.samples import new_tree, started


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("memory", MemoryStore, ""),
        ("sqlite:////full/path/runs%20of%20mine.db", SqliteStore, "/full/path/runs of mine.db"),
        ("sqlite:///here.db", SqliteStore, str(Path.cwd() / "here.db")),
        ("postgresql://user:hunter2@example:5433/runs", PostgresStore, "example:5433/runs"),
        ("postgres://user@example/runs", PostgresStore, "example/runs"),
    ],
)
def test_addresses(url: str, kind: type, words: str) -> None:
    """An address gives its store, and opens nothing."""
    store = open_store(url)
    assert type(store) is kind
    assert words in repr(store)
    assert "hunter2" not in repr(store)


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an address: $REMIT_HOME, else the user's state folder."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("REMIT_HOME", raising=False)
    assert default_path() == Path("/home/somebody/.local/state/remit/runs.db")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_path() == Path("/home/somebody/.local/state/remit/runs.db")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_path() == Path("/state/remit/runs.db")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_path() == Path("/home/somebody/Library/Application Support/remit/runs.db")
    monkeypatch.setenv("REMIT_HOME", str(tmp_path))
    assert default_path() == tmp_path / "runs.db"
    assert str(tmp_path / "runs.db") in repr(open_store("sqlite"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqllite:///runs.db", "Did you mean 'sqlite'?"),
        ("postgre://host/db", "Did you mean 'postgres'?"),
        ("mysql://me:hunter2@host/db", "There is no store 'mysql'. A store is one of 'memory', 'sqlite'"),
        ("runs.db", "There is no store 'runs.db'"),
        ("", "A store is one of"),
        ("sqlite://runs.db", "sqlite:///runs.db for a file here"),
        ("sqlite:///", "names no file"),
        (
            "sqlite:/runs.db",
            "'sqlite:/runs.db' has too few slashes. Write sqlite:///runs.db for a file here (three)",
        ),
        ("sqlite:runs.db", "'sqlite:runs.db' has too few slashes"),
        ("postgresql", "'postgresql' is not written in full. A store is one of"),
        ("postgres:/me:hunter2@host/db", "'postgres:...' is not written in full. A store is one of"),
        ("memory:/", "'memory:...' is not written in full. A store is one of"),
        ("memory://somewhere", "A store is one of"),
    ],
)
def test_mistakes(url: str, words: str) -> None:
    """What means nothing is refused at once, with what would be known, and without the password."""
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def run(code: str) -> str:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_missing_driver_is_named() -> None:
    """Without psycopg the message says what to install."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from remit.stores import open_store\n"
        "from remit.errors import UsageError\n"
        "try: open_store('postgresql://host/db')\n"
        "except UsageError as error: print(error)"
    )
    assert "pip install 'remit[postgres]'" in run(code)


def test_databases_are_imported_with_their_stores() -> None:
    """Importing the stores brings in no database."""
    code = "import sys, remit.stores, remit.testing; print([n for n in ('sqlite3', 'psycopg', 'pytest') if n in sys.modules])"
    assert run(code) == "[]"


@pytest.mark.real_time
async def test_secrets_that_were_named_are_kept_out(tmp_path: Path) -> None:
    """What looks like nothing is known by being named."""
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}", secrets=["blue elephant"])
    root = await new_tree(store)
    store.append(started(root, 1, task="the word is blue elephant"))
    await store.close()
    assert b"elephant" not in path.read_bytes()
    assert b"the word is [redacted]" in path.read_bytes()


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ("9988776655", "put it in a list"),
        ({"pin": "9988776655"}, "give its values in a list"),
        (5, "not int"),
        (["9988776655", 1], "number 2 of them is of the type int"),
        ([" "], "number 1 of them is empty"),
        (
            ["9988776655", "text"],
            "Number 2 of the secrets is a part of a word that every event is written with",
        ),
        (["complete"], "give it a longer one"),
        (["run_start"], "give it a longer one"),
        (["firm"], "give it a longer one"),
    ],
)
def test_secrets_that_are_no_list_of_texts_are_refused(secrets: Any, said: str) -> None:
    """Each letter of a text, or the names of a mapping, would be kept out, and the secret would not."""
    with pytest.raises(UsageError, match=said) as refused:
        open_store("sqlite:///runs.db", secrets=secrets)
    assert "9988776655" not in str(refused.value)


@pytest.mark.real_time
async def test_secrets_may_come_one_by_one(tmp_path: Path) -> None:
    """What was looked at to check it is still there to be kept out."""
    path = tmp_path / "runs.db"
    given: Any = (word for word in ("blue elephant",))
    store = open_store(f"sqlite:///{path}", secrets=given)
    root = await new_tree(store)
    store.append(started(root, 1, task="the word is blue elephant"))
    await store.close()
    assert b"elephant" not in path.read_bytes()
