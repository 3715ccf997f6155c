"""Names and URLs of stores."""

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
def test_urls(url: str, kind: type, words: str) -> None:
    """A URL gives its store and opens nothing."""
    store = open_store(url)
    assert type(store) is kind
    assert words in repr(store)
    assert "hunter2" not in repr(store)


def test_the_default_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a URL: $REMIT_HOME, else the user's state folder."""
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
        ("mysql://me:hunter2@host/db", "Unknown store 'mysql'. Valid stores: 'memory', 'sqlite'"),
        ("runs.db", "Unknown store 'runs.db'"),
        ("", "Valid stores:"),
        ("sqlite://runs.db", "sqlite:///runs.db for a relative path"),
        ("sqlite:///", "does not name a file"),
        (
            "sqlite:/runs.db",
            "'sqlite:/runs.db' has too few slashes. Write sqlite:///runs.db for a relative path (three slashes)",
        ),
        ("sqlite:runs.db", "'sqlite:runs.db' has too few slashes"),
        ("postgresql", "'postgresql' is incomplete. Valid stores:"),
        ("postgres:/me:hunter2@host/db", "'postgres:...' is incomplete. Valid stores:"),
        ("memory:/", "'memory:...' is incomplete. Valid stores:"),
        ("memory://somewhere", "Valid stores:"),
    ],
)
def test_wrong_urls(url: str, words: str) -> None:
    """An unknown URL is refused at once, with the valid forms and without its password."""
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
    """Without psycopg, the message says what to install."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from remit.stores import open_store\n"
        "from remit.errors import UsageError\n"
        "try: open_store('postgresql://host/db')\n"
        "except UsageError as error: print(error)"
    )
    assert "pip install 'remit[postgres]'" in run(code)


def test_databases_are_imported_with_their_stores() -> None:
    """Importing `remit.stores` imports no database driver."""
    code = "import sys, remit.stores, remit.testing; print([n for n in ('sqlite3', 'psycopg', 'pytest') if n in sys.modules])"
    assert run(code) == "[]"


@pytest.mark.real_time
async def test_given_secrets_are_redacted(tmp_path: Path) -> None:
    """A secret without a recognisable form is redacted if it is given."""
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
        ("9988776655", "Write secrets="),
        ({"pin": "9988776655"}, "Pass a list of its values"),
        (5, "not int"),
        (["9988776655", 1], "item 2 is of type int"),
        ([" "], "item 1 is empty"),
        (
            ["9988776655", "text"],
            "item 2 is part of a word in the journal format",
        ),
        (["complete"], "Use a longer secret"),
        (["run_start"], "Use a longer secret"),
        (["firm"], "Use a longer secret"),
    ],
)
def test_secrets_must_be_a_list_of_texts(secrets: Any, said: str) -> None:
    """Otherwise the letters of a text or the names of a mapping would be redacted, not the secret."""
    with pytest.raises(UsageError, match=said) as refused:
        open_store("sqlite:///runs.db", secrets=secrets)
    assert "9988776655" not in str(refused.value)


@pytest.mark.real_time
async def test_secrets_may_be_an_iterator(tmp_path: Path) -> None:
    """Checking the secrets does not consume the iterator."""
    path = tmp_path / "runs.db"
    given: Any = (word for word in ("blue elephant",))
    store = open_store(f"sqlite:///{path}", secrets=given)
    root = await new_tree(store)
    store.append(started(root, 1, task="the word is blue elephant"))
    await store.close()
    assert b"elephant" not in path.read_bytes()
