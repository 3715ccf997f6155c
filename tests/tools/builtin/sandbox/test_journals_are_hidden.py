"""Attempts of sandboxed commands to approve calls by writing to a journal: only people may approve."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from cagebench import NO_NET, READ, WRITE, names, open_beside_home, outside, run, works
from journalbench import attack, forge, lead, nobody, ran, result_of
from shellbench import Shell

import remit
import remit.history.journal_files as journal_files
from remit import Agent, Limits, Outcome, UsageError
from remit.stores.sql.database import Trouble
from remit.stores.sqlite import SqliteFile, SqliteStore
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.terminal.terminal import terminal
from remit.types.ports import Store
from remit.types.sandbox import Sandbox, SandboxChoice

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.delenv("REMIT_HOME", raising=False)
    ran.clear()
    with open_beside_home(tmp_path, monkeypatch) as made:
        yield made


async def _attack(
    shell: Shell, store: Store | str, command: str, sandbox: SandboxChoice = "workspace-write"
) -> Outcome:
    """A tree whose model makes a call and a command that tries to approve it; no person answers."""
    async with remit.start(
        lead(sandbox),
        "go",
        model=attack(command),
        store=store,
        approver=nobody,
        policy=["allow terminal"],
        workspace=shell.workspace,
    ) as running:
        async for event in running.events():
            if event.kind == "call_ended":
                break
        await running.cancel()
        return await running.outcome()


@asynccontextmanager
async def _waiting(store: SqliteStore, workspace: Path) -> AsyncIterator[remit.Running]:
    """Another run, without a sandbox, that waits for an approval."""
    model = ScriptedModel({"lead": [call("publish", what="of another run"), say("done")]})
    async with remit.start(
        lead(None), "go", model=model, store=store, approver=nobody, workspace=workspace
    ) as running:
        async for event in running.events():
            if event.kind == "approval_requested":
                break
        yield running


async def _answered(store: SqliteStore, root: str) -> bool:
    return bool(await store.commands(root, 0, wait=False))


def _read(path: Path) -> str:
    """A command that prints the number of bytes it can read from a file."""
    return f"cat {path} 2>/dev/null | wc -c"


# --- A store that sandboxed commands may write is refused -----------------------------------------


async def test_a_store_in_a_workspace_that_commands_may_write_is_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree does not start with a journal that its sandboxed commands could write, however its path is given."""
    ws = shell.workspace
    monkeypatch.chdir(ws)
    (ws / "sub").mkdir()
    (ws.parent / "elsewhere").mkdir()
    (ws / "link.db").symlink_to(ws.parent / "elsewhere/runs.db")
    (ws / "door").symlink_to(ws.parent / "elsewhere")
    (ws.parent / "in").symlink_to(ws / "sub")
    for store in (
        f"sqlite:///{ws}/runs.db",
        "sqlite:///runs.db",
        "sqlite:///sub/../runs.db",
        "sqlite:///runs.db?mode=rwc&cache=shared",
        # A command could change the symlink, and thereby the journal of every later run.
        f"sqlite:///{ws}/link.db",
        f"sqlite:///{ws}/door/runs.db",
        f"sqlite:///{ws.parent}/in/runs.db",
        f"sqlite:///{ws.parent}/elsewhere/../ws/runs.db",
    ):
        with pytest.raises(UsageError, match="could approve their own calls") as refused:
            await _attack(shell, store, forge("runs.db"))
        assert str(ws.parent / "home/.local/state/remit/runs.db") in str(refused.value)
    assert not ran
    assert not list(ws.parent.rglob("runs.db*"))


async def test_a_default_store_in_the_workspace_is_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A $REMIT_HOME in the workspace is refused too, and the message does not suggest it."""
    monkeypatch.setenv("REMIT_HOME", str(shell.workspace / "state"))
    with pytest.raises(UsageError, match="Name a file outside the workspace, or use a smaller workspace"):
        await _attack(shell, "sqlite", "true")


async def test_a_store_is_refused_for_the_sandbox_of_any_run_below(shell: Shell) -> None:
    """The sandboxes of all agents count: one child that may write is enough, unless its parent may not."""
    store = f"sqlite:///{shell.workspace}/runs.db"
    child = Agent("child", description="does", tools=[terminal], sandbox="workspace-write")
    model = ScriptedModel({"top": [say("done"), say("done")]})
    with pytest.raises(UsageError, match="workspace-write"):
        await remit.run(
            Agent("top", subagents=[child]), "go", model=model, store=store, workspace=shell.workspace
        )
    top = Agent("top", subagents=[child], sandbox="read-only")
    outcome = await remit.run(top, "go", model=model, store=store, workspace=shell.workspace)
    assert outcome.ok


async def test_a_store_in_the_workspace_is_refused_on_resume(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On resume, the tree's own workspace and sandbox decide."""
    store = f"sqlite:///{shell.workspace.parent}/runs.db"
    stopped = await remit.run(
        lead(),
        "go",
        model=ScriptedModel({"lead": [call("terminal", command="true"), say("done")]}),
        store=store,
        policy=["allow terminal"],
        workspace=shell.workspace,
        limits=Limits(turns=1),
    )
    monkeypatch.chdir(shell.workspace)
    (shell.workspace.parent / "runs.db").rename("runs.db")
    with pytest.raises(UsageError, match="could approve their own calls"):
        await remit.resume("sqlite:///runs.db", stopped.run_id, agent=lead(), model=ScriptedModel({}))


# --- A store elsewhere cannot be reached ----------------------------------------------------------


@works
@pytest.mark.parametrize("sandbox", [READ, WRITE, NO_NET], ids=str)
async def test_a_command_reaches_no_journal_outside_its_workspace(
    shell: Shell, shown_path: Path, sandbox: Sandbox
) -> None:
    """No sandboxed command can read or write the journal and the files beside it, by path or through a symlink."""
    (shell.workspace / "way").symlink_to(shown_path / "runs.db")
    files = [shown_path / f"runs.db{ending}" for ending in ("", "-wal", "-shm")]
    tries = [
        forge(files[0]),
        forge("way"),
        *map(_read, files),
        f"echo x > {shown_path}/mine; cat {shown_path}/other",
    ]
    (shown_path / "other").write_text("can be read\n")
    outcome = await _attack(shell, f"sqlite:///{files[0]}", "; ".join(tries), sandbox)
    assert not ran
    said = result_of(outcome, "terminal")
    assert "forged" not in said
    assert "\n0\n0\n0\n" in said
    # Another file in the folder is visible, so only the journal is hidden.
    assert "can be read\n" in said


@works
async def test_the_default_journal_needs_no_settings(
    shell: Shell, shown_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default journal, a sandboxed tree runs normally, and its commands do not see the journal's folder."""
    monkeypatch.setenv("HOME", str(shown_path))
    usual = shown_path / ".local/state/remit"
    model = ScriptedModel({"lead": [call("terminal", command=f"ls -A {usual}; echo x > f"), say("done")]})
    outcome = await remit.run(
        lead(), "go", model=model, store="sqlite", policy=["allow terminal"], workspace=shell.workspace
    )
    assert outcome.ok
    assert not outcome.warnings
    assert result_of(outcome, "terminal") == "(no output)\n(exit code 0)"
    assert names(shell.workspace) == ["f"]
    assert (usual / "runs.db").exists()


@works
@pytest.mark.parametrize("variable", ["HOME", "REMIT_HOME", "XDG_STATE_HOME"])
async def test_a_journal_created_while_a_command_runs_is_hidden(
    shell: Shell, shown_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The default folder is hidden before it contains a journal, wherever the environment puts it."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv(variable, str(shown_path / "here"))
    below = {"HOME": ".local/state/remit", "REMIT_HOME": "", "XDG_STATE_HOME": "remit"}
    usual = shown_path / "here" / below[variable]

    async def make() -> None:
        while not (shell.workspace / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        usual.mkdir(parents=True, exist_ok=True)
        (usual / "runs.db").write_text("made later")
        (shell.workspace / "made").touch()

    result = None
    async with asyncio.timeout(10), anyio.create_task_group() as group:
        group.start_soon(make)
        result = await run(shell, WRITE, f"touch go; until [ -e made ]; do sleep 0.01; done; cat {usual}/*")
    assert result is not None
    assert "made later" not in result.content


@works
@pytest.mark.parametrize("ending", ["", "-wal"])
async def test_a_journal_with_a_second_hard_link_is_refused(
    shell: Shell, tmp_path: Path, ending: str
) -> None:
    """While a journal file has a second hard link, no sandboxed command runs, and the message gives the remedy."""
    store = SqliteStore(tmp_path / "runs.db")
    async with _waiting(store, shell.workspace) as running:
        (shell.workspace / "innocent").hardlink_to(tmp_path / f"runs.db{ending}")
        result = await run(shell, WRITE, forge("innocent"))
        assert "hard links" in result.content
        assert not await _answered(store, running.run_id)
        (shell.workspace / "innocent").unlink()
        assert (await run(shell, WRITE, "true")).ok
    await store.close()


# --- Journals of others in the workspace ----------------------------------------------------------


@works
async def test_a_journal_is_hidden_although_its_store_does_not_name_it(shell: Shell) -> None:
    """The journal of a custom store in the workspace is recognised by its content, and no command can reach it."""
    store = SqliteStore(shell.workspace / "runs.db")
    store.exposed = None  # pyright: ignore[reportAttributeAccessIssue]
    outcome = await _attack(shell, store, forge("runs.db"))
    await store.close()
    assert not ran
    assert "forged" not in result_of(outcome, "terminal")


@works
async def test_no_journal_is_created_where_a_command_may_write(shell: Shell) -> None:
    """While a command may write in a folder, no process creates a journal there: it could not be hidden."""

    async def make() -> None:
        while not (shell.workspace / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        with pytest.raises(Trouble, match="while a sandboxed command can write to") as refused:
            SqliteFile(shell.workspace / "new/runs.db").open_writer()
        assert refused.value.passing
        SqliteFile(shell.workspace.parent / "runs.db").open_writer().close()
        (shell.workspace / "made").touch()

    async with asyncio.timeout(10), anyio.create_task_group() as group:
        group.start_soon(make)
        await run(shell, WRITE, "touch go; until [ -e made ]; do sleep 0.01; done")
    SqliteFile(shell.workspace / "new/runs.db").open_writer().close()
    # A command that only reads does not prevent it.
    await run(shell, READ, "true")


@works
@pytest.mark.parametrize("sandbox", [READ, WRITE], ids=str)
async def test_a_journal_of_another_run_in_the_workspace_is_hidden(shell: Shell, sandbox: Sandbox) -> None:
    """A run without a sandbox may keep its journal in the workspace; sandboxed commands of other runs cannot reach it."""
    folder = shell.workspace / "deep/er"
    store = SqliteStore(folder / "runs.db")
    async with _waiting(store, shell.workspace) as running:
        result = await run(
            shell,
            sandbox,
            f"{forge('deep/er/runs.db')}; cd deep/er; rm -f runs.db*; mv runs.db x; cp /etc/passwd runs.db-wal; cd ../..;"
            f" mv deep other; mv deep/er other; {_read(folder / 'runs.db')}; {_read(folder / 'runs.db-wal')}",
        )
        assert "forged" not in result.content
        assert "0\n0\n" in result.content
        assert not await _answered(store, running.run_id)
        await running.cancel()
    assert not ran
    await store.close()
    assert names(folder) == ["runs.db"]


@works
async def test_nothing_is_planted_beside_an_unused_journal(shell: Shell, tmp_path: Path) -> None:
    """A command does not change an unused journal, and leaves no file beside it that SQLite would apply."""
    journal = shell.workspace / "runs.db"
    store = SqliteStore(journal)
    async with _waiting(store, shell.workspace) as running:
        root = running.run_id
        await running.cancel()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "forged.db")) as file:
        file.execute("CREATE TABLE t (x)")
    (shell.workspace / "forged.db").write_bytes((tmp_path / "forged.db").read_bytes())
    before = journal.read_bytes()
    result = await run(
        shell,
        WRITE,
        f"{forge('runs.db')}; cp forged.db runs.db; mv forged.db runs.db; for e in wal shm journal; do cp /etc/passwd"
        " runs.db-$e; mv /etc/passwd runs.db-$e; ln -sf forged.db runs.db-$e; done; ls",
    )
    assert "runs.db-journal was renamed" in result.content
    assert journal.read_bytes() == before
    assert [n for n in names(shell.workspace) if "from-sandbox" not in n] == ["forged.db", "runs.db"]
    store = SqliteStore(journal)
    assert [info.root for info in await store.trees()] == [root]
    assert not await _answered(store, root)
    await store.close()


@works
async def test_git_works_beside_a_journal(shell: Shell) -> None:
    """`git add`, `commit` and `diff` work in a workspace with another run's journal."""
    ws = shell.workspace
    store = SqliteStore(ws / "runs.db")
    async with _waiting(store, ws):
        outside("git init -q . && echo 'runs.db*' > .gitignore", ws)
        result = await run(
            shell,
            WRITE,
            "echo a > f && git add . && git -c user.name=a -c user.email=b commit -qm first && echo b > f && git diff"
            " --stat | cat && git status -s",
        )
    await store.close()
    assert "1 file changed" in result.content
    assert result.content.endswith(" M f\n(exit code 0)")


# --- Tools that write files -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["runs.db", "runs.db-wal", "runs.db-journal", "link"])
async def test_write_and_edit_do_not_change_a_journal(shell: Shell, name: str) -> None:
    """No file tool writes a journal or a file beside it, even without a sandbox and with an allowing rule."""
    ws = shell.workspace
    store = SqliteStore(ws / "runs.db")
    (ws / "link").symlink_to("runs.db")
    model = ScriptedModel({"lead": [call("write", path=name, content="forged"), say("done")]})
    outcome = await remit.run(
        Agent("lead", tools=["write"]), "go", model=model, store=store, policy=["allow write"], workspace=ws
    )
    await store.close()
    assert "belongs to one of remit's journals" in result_of(outcome, "write")


def test_a_journal_is_recognised_before_its_first_checkpoint(tmp_path: Path) -> None:
    """The header identifies a journal as soon as it has tables, while its writer is still open."""
    link = SqliteFile(tmp_path / "runs.db").open_writer()
    copy = tmp_path / "copy"
    # A copy: the file itself is registered as used by this process.
    outside(f"cp runs.db {copy}", tmp_path)
    assert journal_files.is_journal(copy)
    assert journal_files.is_journal(tmp_path / "runs.db")
    assert not journal_files.is_journal(tmp_path)
    link.close()
