"""Approvals through a server: other machines can give them, sandboxed commands cannot."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import anyio
import psycopg
import pytest

import remit
import remit.remote as remote
import remit.tools.builtin.sandbox.bubblewrap as bubblewrap
from remit import Agent, UsageError, tool
from remit.stores.postgres import PostgresDatabase, PostgresStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.builtin.terminal.terminal import make_terminal
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import CallEnded
from remit.types.sandbox import Sandbox

pytestmark = pytest.mark.real_time

PASSWORD = "correct horse/battery"
READ_NET, WRITE_NET = Sandbox("read-only", network=True), Sandbox("workspace-write", network=True)
WRITE, NO_NET = Sandbox("workspace-write"), Sandbox("open", network=False)

works = pytest.mark.skipif(bubblewrap.trial() is not None, reason="no sandbox here")


@tool
def publish() -> str:
    """Change something."""
    return "published"


async def nobody(_: ApprovalRequest) -> Decision:
    await anyio.sleep(3600)
    raise AssertionError


def python(code: str) -> str:
    return f"{sys.executable} -c {shlex.quote(f'import os, psycopg, socket; {code}')}"


@asynccontextmanager
async def running(
    url: str, command: str, sandbox: Sandbox, workspace: Path
) -> AsyncIterator[tuple[remit.Running, str]]:
    """A tree that waits for an approval, after a sandboxed command has printed something."""
    both = calls(call("publish"), call("terminal", command=command))
    lead = Agent("lead", tools=[make_terminal(env=["DATABASE_URL", "PG*", "APP_*"]), publish])
    async with remit.start(
        lead,
        "go",
        model=ScriptedModel({"lead": [both, say("done")]}),
        store=url,
        approver=nobody,
        policy=["allow terminal"],
        sandbox=sandbox,
        workspace=workspace,
    ) as tree:
        async for event in tree.events():
            if isinstance(event, CallEnded):
                yield tree, event.content
                return


@works
@pytest.mark.usefixtures("shown_path")
async def test_another_machine_can_approve_a_sandboxed_run(locked_url: str, tmp_path: Path) -> None:
    """A person approves through the server, also with network in the sandbox, while the sandboxed command cannot log in."""
    port = urlsplit(locked_url).port
    name = locked_url.rpartition("/")[2]
    forge = python(f"psycopg.connect(host='127.0.0.1', port={port}, user='keeper', dbname='{name}')")
    for sandbox in (WRITE, WRITE_NET):
        async with running(locked_url, forge, sandbox, tmp_path) as (tree, said):
            assert "OperationalError" in said
            # A command without network cannot even connect.
            assert ("password" in said.rpartition("OperationalError")[2]) is sandbox.network
            elsewhere = PostgresStore(locked_url)
            (request,) = await remote.waiting(elsewhere, tree.run_id)
            assert await remote.approve(elsewhere, request.id)
            await elsewhere.close()
            outcome = await tree.outcome()
        assert outcome.ok
        assert "published" in outcome.messages[-3].text


@works
async def test_a_journals_password_reaches_no_sandboxed_command(
    locked_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable that contains the password of a journal, in any form, is passed on, even if it is named."""
    monkeypatch.setenv("DATABASE_URL", locked_url)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("APP_DSN", f"host=x password='{PASSWORD}' user=keeper")
    monkeypatch.setenv("APP_NAME", "correct")
    async with running(locked_url, "env", WRITE, tmp_path) as (tree, said):
        await tree.cancel()
    assert "APP_NAME=correct" in said
    assert "battery" not in said


@works
@pytest.mark.parametrize("variable", ["PGPASSFILE", "PGSERVICEFILE", "HOME"])
async def test_password_files_are_hidden(
    locked_url: str, tmp_path: Path, shown_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A store whose password is in a libpq file works, and commands cannot read that file."""
    folder = shown_path
    monkeypatch.setenv("HOME", str(folder))
    parts = urlsplit(locked_url)
    service = variable == "PGSERVICEFILE"
    file = folder / {"PGPASSFILE": "mine", "PGSERVICEFILE": "mine", "HOME": ".pgpass"}[variable]
    line = f"{parts.hostname}:{parts.port}:*:keeper:{PASSWORD}\n"
    file.write_text(f"[mine]\npassword={PASSWORD}\n" if service else line)
    file.chmod(0o600)
    if variable != "HOME":
        monkeypatch.setenv(variable, str(file))
    url = locked_url.replace(f":{quote(PASSWORD, safe='')}", "") + ("?service=mine" if service else "")
    (folder / "other").write_text("can be read")
    async with running(url, f"cat {file}; cat {folder}/other", WRITE_NET, tmp_path) as (tree, said):
        await tree.cancel()
    assert "can be read" in said
    assert "battery" not in said


async def test_a_server_without_passwords_is_refused_with_network(postgres_url: str, tmp_path: Path) -> None:
    """A sandbox with network is refused if the server needs no password; a sandbox without network is not."""
    for sandbox in (READ_NET, WRITE_NET):
        with pytest.raises(UsageError, match="accepts its user without a password"):
            async with running(postgres_url, "true", sandbox, tmp_path):
                pass
    child = Agent("child", description="does", sandbox=WRITE_NET)
    with pytest.raises(UsageError, match="without a password"):
        await remit.run(
            Agent("lead", subagents=[child]),
            "go",
            model=ScriptedModel({}),
            store=postgres_url,
            workspace=tmp_path,
        )
    outcome = await remit.run(
        Agent("lead"),
        "go",
        model=ScriptedModel(["done"]),
        store=postgres_url,
        sandbox=WRITE,
        workspace=tmp_path,
    )
    assert outcome.ok


@works
@pytest.mark.usefixtures("shown_path")
async def test_a_unix_socket_is_out_of_reach(postgres_url: str, tmp_path: Path) -> None:
    """A sandbox cannot reach the server's socket, even with all files open and Unix sockets allowed."""
    with psycopg.connect(postgres_url) as connection:
        (folder,) = connection.execute("SHOW unix_socket_directories").fetchone() or ("",)
    parts = urlsplit(postgres_url)
    url = f"postgresql://remit@/{parts.path[1:]}?host={quote(folder)}&port={parts.port}"
    dial = python(f"socket.socket(socket.AF_UNIX).connect('{folder}/.s.PGSQL.{parts.port}')")
    for sandbox in (WRITE, NO_NET):
        async with running(url, dial, sandbox, tmp_path) as (tree, said):
            await tree.cancel()
        assert "Error" in said.splitlines()[-2]
    # The same server accepts everyone at its other address.
    assert "without a password" in PostgresDatabase(url).exposed([WRITE_NET], tmp_path)


@pytest.mark.parametrize("form", [PASSWORD, quote(PASSWORD, safe="")])
async def test_a_password_in_the_workspace_is_refused_with_network(
    locked_url: str, tmp_path: Path, form: str
) -> None:
    """Commands that could read the password and reach the server do not start; the message names the file."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/remit.toml").write_text(f'journal = "postgresql://keeper:{form}@127.0.0.1/x"')
    with pytest.raises(UsageError, match=r"run store is in .*conf/remit\.toml"):
        async with running(locked_url, "true", READ_NET, tmp_path):
            pass
    (tmp_path / "conf/remit.toml").write_text(f"x{form}x")
    assert PostgresDatabase(locked_url).exposed([READ_NET], tmp_path) == ""


def test_an_unreachable_server_is_not_reported_as_exposed(tmp_path: Path) -> None:
    """Connection problems are reported when the tree is claimed, not by `exposed`."""
    database = PostgresDatabase("postgresql://remit@127.0.0.1:1/x")
    assert database.exposed([WRITE_NET], tmp_path) == ""
