"""A command in a sandbox can do what the sandbox allows, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cagebench import python_inside
from shellbench import Shell, open_shell

import remit
import remit.tools.builtin.sandbox.bubblewrap as bubblewrap
import remit.tools.builtin.sandbox.seccomp as seccomp
from remit import Agent
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.sandbox.mounts import Mount
from remit.tools.builtin.terminal.terminal import make_terminal, terminal
from remit.tools.result import ToolResult
from remit.types.sandbox import Sandbox

_TROUBLE = bubblewrap.trial()
_REQUIRED = os.environ.get("REQUIRE_SANDBOX") == "1"

pytestmark = pytest.mark.real_time

works = pytest.mark.skipif(_TROUBLE is not None and not _REQUIRED, reason=f"no sandbox here. {_TROUBLE}")

READ, WRITE = Sandbox("read-only"), Sandbox("workspace-write")
READ_NET, WRITE_NET = Sandbox("read-only", network=True), Sandbox("workspace-write", network=True)
NO_NET = Sandbox("open", network=False)
CLOSED = [READ, WRITE, READ_NET, WRITE_NET]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with open_shell(tmp_path / "ws", monkeypatch) as made:
        yield made


@contextmanager
def _listening(family: int, address: object) -> Iterator[socket.socket]:
    """A server that sends a greeting to every client."""
    with socket.socket(family) as server:
        server.bind(address)  # pyright: ignore[reportArgumentType]
        server.listen()

        def greet() -> None:
            while True:
                try:
                    other, _ = server.accept()
                except OSError:
                    return
                with other:
                    other.sendall(b"welcome-outside\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            if isinstance(address, str) and not address.startswith("\0"):
                Path(address).unlink()


def _made(*paths: str) -> list[str]:
    return [path for path in paths if Path(path).exists()]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _python(code: str) -> str:
    python = python_inside()
    return f"{python} -S -c {code!r}" if "'" not in code else f'{python} -S -c "{code}"'


def _connect(family: str, address: str) -> str:
    return _python(
        f"import socket; s = socket.socket(socket.{family}); s.connect({address}); print(s.recv(99))"
    )


async def _run(shell: Shell, sandbox: Sandbox, command: str, **args: object) -> ToolResult:
    shell.sandbox = sandbox
    return await shell.run(command, **args)


def test_the_sandbox_works_where_it_is_required() -> None:
    """With REQUIRE_SANDBOX=1, the tests fail on a machine without a sandbox instead of skipping."""
    if _REQUIRED:
        assert _TROUBLE is None


@works
@pytest.mark.parametrize("sandbox", CLOSED, ids=str)
async def test_a_sandbox_writes_only_where_it_may(shell: Shell, tmp_path: Path, sandbox: Sandbox) -> None:
    """Commands can write the workspace only with workspace-write, other folders never, a private /tmp always."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "old").write_text("old")
    (shell.workspace / "link").symlink_to(outside)
    result = await _run(
        shell,
        sandbox,
        f"echo x > inside; echo x > {outside}/new; rm -f {outside}/old; echo x > link/new; echo x > /etc/remit-test;"
        " echo x > ~/new; echo x > /usr/remit-test; mkdir ../new; echo x > /tmp/remit-test && echo private",
    )
    assert (shell.workspace / "inside").exists() is (sandbox.files == "workspace-write")
    assert _names(outside) == ["old"]
    assert not _made("/etc/remit-test", "/usr/remit-test", "/tmp/remit-test")
    # remit creates its own folder for journals, in order to hide it.
    assert _names(tmp_path / "home") == [".local"]
    assert _names(tmp_path) == ["home", "outside", "ws"]
    assert "private" in result.content


@works
@pytest.mark.parametrize("sandbox", [READ, WRITE, NO_NET], ids=str)
async def test_without_network_nothing_is_reached(shell: Shell, sandbox: Sandbox) -> None:
    """Without network, not even servers on this machine can be reached."""
    with _listening(socket.AF_INET, ("127.0.0.1", 0)) as server:
        dial = _connect("AF_INET", f'("127.0.0.1", {server.getsockname()[1]})')
        result = await _run(shell, sandbox, dial)
        assert not result.ok
        assert "welcome-outside" not in result.content
        assert "welcome-outside" in (await _run(shell, Sandbox(sandbox.files, network=True), dial)).content


@works
@pytest.mark.parametrize("sandbox", [WRITE, WRITE_NET], ids=str)
async def test_unix_sockets_cannot_be_reached(shell: Shell, tmp_path: Path, sandbox: Sandbox) -> None:
    """Servers behind Unix sockets, such as docker's, cannot be reached: by path, in the workspace, or abstract."""
    name = f"remit-{shell.mark}"
    run = Path("/run") if os.access("/run", os.W_OK) else tmp_path
    for address in (f"{run}/{name}.sock", str(shell.workspace / "s.sock"), f"\0{name}"):
        with _listening(socket.AF_UNIX, address):
            named = address.replace("\0", "")
            dial = _connect("AF_UNIX", f'chr(0) + "{named}"' if named != address else f'"{named}"')
            result = await _run(shell, sandbox, dial)
            assert "welcome-outside" not in result.content
            assert not result.ok
            assert "Error" in result.content
            assert "welcome-outside" in (await _run(shell, Sandbox("open", network=True), dial)).content


@works
async def test_sockets_inside_a_sandbox_work(shell: Shell) -> None:
    """Programs in a sandbox can communicate through socket pairs and loopback."""
    pair = _python('import socket; a, b = socket.socketpair(); a.send(b"hey"); print(b.recv(9))')
    own = _python(
        'import socket; s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname());'
        ' c.send(b"hello"); print(s.accept()[0].recv(9))'
    )
    for sandbox in (WRITE, WRITE_NET):
        result = await _run(shell, sandbox, f"{pair}; {own}")
        assert result.content == "b'hey'\nb'hello'\n(exit code 0)"


@works
@pytest.mark.parametrize("sandbox", [READ, READ_NET, WRITE_NET], ids=str)
async def test_secrets_are_hidden(shell: Shell, tmp_path: Path, sandbox: Sandbox) -> None:
    """Well-known secret files are hidden in a sandbox, also behind symlinks and in the workspace."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("hidden-value")
    (home / ".config/gh").mkdir(parents=True)
    (home / ".config/gh/hosts.yml").write_text("hidden-value")
    (home / ".netrc").write_text("hidden-value")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/credentials").write_text("hidden-value")
    (home / ".aws").symlink_to(tmp_path / "elsewhere")
    if sandbox.files == "read-only":
        shell.workspace = home
    (shell.workspace / "plain").write_text("visible-value")
    command = (
        f"cat ~/.ssh/* ~/.config/gh/* ~/.netrc ~/.aws/* {tmp_path}/elsewhere/*; grep -r hidden-v ~; cat plain"
    )
    result = await _run(shell, sandbox, command)
    assert "hidden-value" not in result.content
    assert "visible-value" in result.content
    assert "hidden-value" in (await _run(shell, Sandbox("open", network=True), command)).content


@works
async def test_the_environment_of_others_is_hidden(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandboxed command sees no other processes and no environment of theirs, and cannot signal them."""
    other = subprocess.Popen(["/bin/sleep", "99"], env={"OTHER": "hidden-value"})  # noqa: ASYNC220 - it returns at once
    try:
        for sandbox in (READ, WRITE_NET, NO_NET):
            result = await _run(
                shell,
                sandbox,
                f"kill -9 {other.pid}; kill -9 -{other.pid}; cat /proc/*/environ | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l",
            )
            assert "hidden-value" not in result.content
            assert other.poll() is None
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


@works
async def test_rights_cannot_be_gained(shell: Shell) -> None:
    """A sandboxed command has no capabilities and cannot gain any, cannot mount, and sees no disk in /dev."""
    result = await _run(
        shell,
        WRITE,
        "grep -E 'CapEff|CapPrm|CapBnd|NoNewPrivs' /proc/self/status; mount -o remount,rw / ; mount -t tmpfs x /mnt;"
        " unshare -rm mount -o remount,rw,bind /usr; unshare -rm sh -c 'mount -o remount,rw,bind / && touch /usr/remit-test';"
        " ls /dev | tr '\\n' ' '; mknod /tmp/disk b 8 0",
    )
    assert set(result.content.split("\n")[:4]) == {
        *(f"Cap{kind}:\t{0:016x}" for kind in ("Eff", "Prm", "Bnd")),
        "NoNewPrivs:\t1",
    }
    assert not _made("/usr/remit-test")
    assert not [name for name in ("sda", "vda", "nvme0n1", "mem", "kmsg") if f" {name} " in result.content]


_PLANTS = {
    "a hook": "echo 'touch /tmp/x' > .git/hooks/pre-commit",
    "a hook through a renamed folder": "mv .git .old && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "a hook in a renamed hooks": "mv .git/hooks .git/other && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
    "a removed hooks": "rm -rf .git/hooks; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    "a setting": "git config core.fsmonitor ./evil; echo '[core]' >> .git/config; mv .git/config .git/c; cp .git/c .git/config",
    "another repository": "echo ../evil > .git/commondir",
    "an agent": "mkdir -p .remit/agents .claude/agents; echo x > .remit/agents/a.md; echo x > .claude/agents/a.md",
    "a server": "echo '{}' > .mcp.json; echo x > remit.toml",
    "an agent over a link": "rm -f .codex; mkdir -p .codex/agents; echo x > .codex/agents/a.toml",
}


@works
@pytest.mark.parametrize("how", _PLANTS)
async def test_nothing_is_planted_that_runs_outside_later(shell: Shell, tmp_path: Path, how: str) -> None:
    """A sandboxed command cannot leave files that programs outside would run or use: hooks, settings, agents, servers."""
    ws = shell.workspace
    subprocess.run(["git", "init", "-q", str(ws)], check=True, env={"PATH": os.environ["PATH"]})  # noqa: ASYNC221 - quick
    (ws / ".claude").mkdir()
    (tmp_path / "agents").mkdir()
    (ws / ".codex").symlink_to(tmp_path / "agents")
    config = (ws / ".git/config").read_bytes()
    hooks = _names(ws / ".git/hooks")
    await _run(shell, WRITE, _PLANTS[how])
    assert (ws / ".git/config").read_bytes() == config
    assert _names(ws / ".git/hooks") == hooks
    for name in (".git/commondir", ".remit", ".mcp.json", "remit.toml", ".claude/agents", ".codex/agents"):
        assert not (ws / name).exists()
    assert not list((tmp_path / "agents").iterdir())


@works
async def test_renamed_files_are_reported(shell: Shell) -> None:
    """A file that a command may not create is kept under another name, and the result says so."""
    result = await _run(shell, WRITE, "echo '{}' > .mcp.json")
    assert ".mcp.json was renamed" in result.content
    assert (shell.workspace / ".mcp.json.from-sandbox1").read_text() == "{}\n"


@works
async def test_git_works_in_a_sandbox(shell: Shell) -> None:
    """Ordinary work is possible: writing files, creating and cloning repositories, commits, also in nested repositories."""
    subprocess.run(["git", "init", "-q", str(shell.workspace)], check=True, env={"PATH": os.environ["PATH"]})  # noqa: ASYNC221 - quick
    commit = "echo x > f && git add f && git -c user.name=a -c user.email=b commit -qm"
    result = await _run(
        shell, WRITE, f"{commit} first && git log --format=%s && git init -q inner && git clone -q . copy"
    )
    assert result.content == "first\n(exit code 0)"
    assert (shell.workspace / "copy/.git/config").exists()
    result = await _run(
        shell,
        WRITE,
        f"cd inner && {commit} second && cd ../copy && git checkout -q -b other && {commit} third; git status -s",
    )
    assert (shell.workspace / "inner/.git/refs/heads").exists()
    assert result.content.endswith("\n(exit code 0)")
    assert not list(shell.workspace.rglob("*.from-sandbox*"))


@works
async def test_everyday_programs_work_in_a_sandbox(shell: Shell) -> None:
    """Running tests, installing packages, naming threads, using pools and writing to /dev/stdout work."""
    (shell.workspace / "test_it.py").write_text(
        "import concurrent.futures, multiprocessing, tempfile, unittest\n"
        "class It(unittest.TestCase):\n"
        "    def test_it(self):\n"
        "        with tempfile.TemporaryFile() as file:\n"
        "            file.write(b'x')\n"
        "        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool:\n"
        "            self.assertEqual(pool.submit(abs, -3).result(), 3)\n"
    )
    result = await _run(
        shell,
        WRITE,
        f"{python_inside()} -m unittest test_it 2>&1 | grep -c '^OK';"
        " echo out > /dev/stdout; echo err > /dev/stderr; echo fd > /proc/self/fd/1; cat /proc/self/comm /proc/sys/kernel/ostype",
    )
    assert result.content.startswith("1\n")
    assert "out\nerr\nfd\ncat\nLinux\n(exit code 0" in result.content


@works
async def test_several_commands_at_once_each_have_their_sandbox(shell: Shell) -> None:
    """Concurrent commands in one workspace do not disturb each other."""
    subprocess.run(["git", "init", "-q", str(shell.workspace)], check=True, env={"PATH": os.environ["PATH"]})  # noqa: ASYNC221 - quick
    shell.sandbox = WRITE
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(
                shell.run(f"mkdir d{n}; git init -q d{n}; echo {n} > d{n}/f; git status -s | wc -l")
            )
            for n in range(5)
        ]
    assert all(run.result().ok for run in runs)
    assert [(shell.workspace / f"d{n}/f").read_text() for n in range(5)] == [f"{n}\n" for n in range(5)]


@works
async def test_remits_own_environment_is_read_only(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """remit's own virtual environment is read-only, also if it is in the workspace."""
    own = shell.workspace / "tools/.venv"
    own.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(own))
    await _run(
        shell,
        WRITE,
        "touch tools/.venv/x; mv tools other; mkdir -p tools/.venv; touch tools/.venv/x; touch tools/y",
    )
    assert not list(own.iterdir())
    assert (shell.workspace / "tools/y").exists()


@works
@pytest.mark.parametrize("sandbox", [WRITE, READ_NET, NO_NET], ids=str)
async def test_a_sandbox_ends_as_a_whole(shell: Shell, sandbox: Sandbox) -> None:
    """Exit codes, background processes and timeouts work as without a sandbox."""
    result = await _run(shell, sandbox, "echo a; setsid sleep 99 & exit 3")
    shell.assert_nothing_left()
    assert result.content.startswith(
        "a\n(exit code 3; ended 1 process left in the background: sleep; in a sandbox:"
    )
    shell.tool = make_terminal(timeout_s=0.3)
    result = await _run(
        shell, sandbox, "echo a; trap '' TERM; setsid sleep 99 & while :; do sleep 0.01; done"
    )
    shell.assert_nothing_left()
    assert result.content.startswith("a\n(timed out")


@works
async def test_a_child_is_in_a_narrower_sandbox_than_its_parent(shell: Shell) -> None:
    """A child's sandbox is never wider than its parent's; the caller's sandbox applies to all runs."""
    child = Agent("child", description="does", tools=[terminal], sandbox="workspace-write+network")
    lead = Agent("lead", tools=[terminal], subagents=[child], sandbox="workspace-write")
    model = ScriptedModel(
        {
            "lead": [
                call("terminal", command="echo x > lead"),
                call("task", agent="child", prompt="go"),
                say("done"),
            ],
            "child": [
                call("terminal", command="echo x > child; grep -o '^ *[a-z0-9]*:' /proc/net/dev"),
                say("done"),
            ],
        }
    )
    outcome = await remit.run(lead, "go", model=model, policy=["allow terminal"], workspace=shell.workspace)
    assert outcome.ok
    assert outcome.children[0].messages[2].text == "    lo:\n(exit code 0)"
    assert _names(shell.workspace) == ["child", "lead"]
    model = ScriptedModel({"lead": [call("terminal", command="echo x > more"), say("done")]})
    outcome = await remit.run(
        lead, "go", model=model, policy=["allow terminal"], workspace=shell.workspace, sandbox="read-only"
    )
    assert not outcome.calls[0].success
    assert not (shell.workspace / "more").exists()


@works
async def test_a_file_that_vanishes_during_setup_causes_a_retry(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a sandbox cannot be set up because a file to hide has just disappeared, remit tries again."""
    tries: list[int] = []
    hidden = bubblewrap._hidden

    def once_wrong(path: Path) -> Iterator[object]:
        if path.name == ".ssh" and not tries:
            tries.append(1)
            yield Mount(Path("/usr/never-was-there"), "nothing")
        yield from hidden(path)

    monkeypatch.setattr(bubblewrap, "_hidden", once_wrong)
    result = await _run(shell, READ, "echo fine")
    assert tries
    assert result.content == "fine\n(exit code 0)"


@works
async def test_a_workspace_that_is_everything_is_refused(shell: Shell) -> None:
    """A sandbox that may write in the whole file system would protect nothing, so it is refused."""
    for everything in ("/", "/usr", "/etc"):
        shell.workspace = Path(everything)
        result = await _run(shell, WRITE, "true")
        assert not result.ok
        assert "contains system folders" in result.content


# --- Where it does not work ----------------------------------------------------------------------


@pytest.fixture
def _no_trial() -> Iterator[None]:
    bubblewrap.trial.cache_clear()
    yield
    bubblewrap.trial.cache_clear()


@pytest.mark.usefixtures("_no_trial")
@pytest.mark.parametrize("sandbox", [*CLOSED, NO_NET], ids=str)
async def test_without_bubblewrap_commands_are_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    """Without bubblewrap, no command runs outside its sandbox, and the message gives the remedy."""
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: "")
    monkeypatch.setattr(sys, "platform", "linux")
    result = await _run(shell, sandbox, "touch ran")
    assert not result.ok
    assert "Install the package `bubblewrap`" in result.content
    assert not (shell.workspace / "ran").exists()


@pytest.mark.usefixtures("_no_trial")
async def test_a_bubblewrap_that_fails_is_detected(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trial run decides whether bubblewrap works; the message contains its output."""
    fake, runs = tmp_path / "bwrap", tmp_path / "runs"
    fake.write_text(
        f"#!/bin/sh\necho x >> {runs}\necho 'No permissions to create new namespace' >&2\nexit 1\n"
    )
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: str(fake))
    for _ in range(2):
        result = await _run(shell, READ, "touch ran")
        assert not result.ok
        assert "No permissions to create new namespace" in result.content
        assert "user namespaces" in result.content
    assert runs.read_text() == "x\n"


async def test_a_machine_without_a_filter_has_no_network_sandbox(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Unix sockets cannot be blocked, a sandbox with network is refused."""
    monkeypatch.setattr(seccomp, "can_filter", lambda: False)
    result = await _run(shell, WRITE_NET, "touch ran")
    assert not result.ok
    assert "without network" in result.content
