"""Attempts to escape from a sandbox."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cagebench import (
    NEW,
    NO_NET,
    READ,
    READ_NET,
    WRITE,
    WRITE_NET,
    names,
    open_beside_home,
    outside,
    python_inside,
    run,
    works,
)
from shellbench import Shell

import remit.tools.builtin.sandbox.bubblewrap as bubblewrap
import remit.tools.builtin.terminal.terminal as terminal_module
from remit.tools.builtin.sandbox.mounts import Mount, Table
from remit.types.sandbox import Sandbox

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_beside_home(tmp_path, monkeypatch) as made:
        yield made


def _python(code: str) -> str:
    return f"{python_inside()} -S -c {shlex.quote(code)}"


# --- Swapping folders while a sandbox is set up --------------------------------------------------


@works
@pytest.mark.parametrize("name", [".git", ".opencode"])
@pytest.mark.parametrize("link", [True, False])
async def test_a_folder_swapped_during_setup_is_noticed(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, link: bool
) -> None:
    """A command runs only if every mount of its sandbox is as planned, even if folders are renamed meanwhile."""
    place = shell.workspace / name
    tries: list[bubblewrap.Cage] = []

    def exchanging(*args: object) -> bubblewrap.Cage:
        if place.is_symlink():
            place.unlink()
        (place / "hooks").mkdir(parents=True)
        tries.append(bubblewrap.cage(*args))  # pyright: ignore[reportArgumentType]
        place.rename(shell.workspace / f"was{len(tries)}")
        if link:
            place.symlink_to("../home/.ssh")
        return tries[-1]

    monkeypatch.setattr(terminal_module, "cage", exchanging)
    result = await run(shell, WRITE, f"cat {name}/id; echo x > {name}/planted; touch ran")
    assert len(tries) == 3
    assert not result.ok
    assert "hidden-value" not in result.content
    assert not (shell.workspace / "ran").exists()
    assert names(tmp_path / "home/.ssh") == ["id"]


@works
async def test_every_mount_is_checked(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a mount is missing, shows another folder, or is writable against the plan, nothing runs."""
    (shell.workspace / ".vscode").mkdir()
    words = Mount.words
    wrong: list[Callable[[Mount], tuple[str, ...]]] = [
        lambda _: (),
        lambda mount: words(mount._replace(how="write")),
        lambda mount: words(mount._replace(source=tmp_path / "home/.ssh")),
    ]
    for one in wrong:

        def changed(mount: Mount, one: Callable[[Mount], tuple[str, ...]] = one) -> tuple[str, ...]:
            return one(mount) if mount.path.name == ".vscode" else words(mount)

        monkeypatch.setattr(Mount, "words", changed)
        result = await run(shell, WRITE, "touch ran")
        assert f"the mount at {shell.workspace}/.vscode is not as planned" in result.content
        assert not (shell.workspace / "ran").exists()
    monkeypatch.setattr(Mount, "words", words)
    assert (await run(shell, WRITE, "touch ran")).ok


def test_the_mount_table_is_predicted() -> None:
    """The root of a mount is derived from existing mounts: stacked, escaped, and on NFS."""
    table = Table(
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "23 22 0:50 /@home /home rw shared:5 - btrfs /dev/sdb rw\n"
        "24 22 0:51 / /net rw - nfs4 server:/export rw\n"
        "25 22 254:0 /under /top rw - ext4 /dev/vda rw\n"
        "26 25 254:0 /over /top rw - ext4 /dev/vda rw\n"
        "no line of the table\n"
    )
    assert table.root(Path("/srv/a b\\c")) == r"/srv/a\040b\134c"
    assert table.root(Path("/home/me/ws")) == "/@home/me/ws"
    assert table.root(Path("/net/ws")) == "server:/export/ws"
    assert table.root(Path("/top/x")) == "/over/x"
    assert table.root(Path("/top")) == "/over"
    assert Table("").root(Path("/x")) == "?"


@works
@pytest.mark.parametrize("name", ["a b", "tab\there", "back\\slash", "quote'\"$(x)", "new\nline", "ümläut"])
async def test_folders_with_any_name_can_be_checked(shell: Shell, name: str) -> None:
    """The mounts of a workspace with any name can be checked."""
    shell.workspace = shell.workspace / name
    (shell.workspace / ".vscode").mkdir(parents=True)
    result = await run(shell, WRITE, "echo x > f; echo x > .vscode/f; ls")
    assert "f\n" in result.content
    assert (shell.workspace / "f").exists()
    assert not list((shell.workspace / ".vscode").iterdir())


# --- Renaming planted files ----------------------------------------------------------------------


@works
async def test_nothing_outside_is_renamed(shell: Shell, tmp_path: Path) -> None:
    """Planted files are renamed only in the workspace, wherever a command's symlinks point."""
    (tmp_path / "home/.ssh/config").write_text("x")
    outside(f"mkdir other && cd other && {NEW}", tmp_path)
    for target in ("../home/.ssh", "../other/.git"):
        await run(shell, WRITE, "mkdir -p real; ln -sfn real .git")
        await run(shell, WRITE, f"ln -sfn {target} .git")
        await run(shell, WRITE, f"rm -rf .claude; ln -sfn {target} .claude")
    assert names(tmp_path / "home/.ssh") == ["config", "id"]
    assert {"config", "hooks"} <= set(names(tmp_path / "other/.git"))
    assert ".git" not in names(shell.workspace)
    assert ".claude" not in names(shell.workspace)


@works
async def test_the_target_of_an_existing_symlink_is_protected(shell: Shell) -> None:
    """If `.git` is a symlink into the workspace, its target is protected, and the symlink cannot be changed."""
    outside(f"{NEW}; mv .git store; ln -s store .git", shell.workspace)
    config = (shell.workspace / "store/config").read_bytes()
    await run(shell, WRITE, "echo x >> store/config; echo x > store/hooks/pre-commit; mv store other")
    assert (shell.workspace / "store/config").read_bytes() == config
    assert not (shell.workspace / "store/hooks/pre-commit").exists()
    result = await run(shell, WRITE, "mkdir evil; ln -sfn evil .git")
    assert ".git was renamed" in result.content


@works
async def test_planted_files_are_renamed_despite_removed_permissions(shell: Shell) -> None:
    """A command cannot keep a planted file by removing the permission to rename it or to list its folder."""
    await run(
        shell,
        WRITE,
        f"mkdir -p a/b && cd a/b && git init -q && git config core.fsmonitor x && cd ../.. && {NEW} && chmod 311 a;"
        " echo x > .mcp.json; chmod 555 .",
    )
    assert not (shell.workspace / ".mcp.json").exists()
    (shell.workspace / "a").chmod(0o755)
    assert not (shell.workspace / "a/b/.git/config").exists()


# --- Escapes without files -----------------------------------------------------------------------


@works
@pytest.mark.parametrize("kind", ["stream", "datagram"])
async def test_sockets_bound_to_a_relative_name_cannot_be_reached(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A Unix socket cannot be reached in any sandbox, even one with a relative name that no list shows in full."""
    monkeypatch.chdir(shell.workspace)
    datagram = kind == "datagram"
    connect = "s = socket.socket(socket.AF_UNIX)"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM) as server:
        server.bind("ctl.sock")
        server.setblocking(False)
        if datagram:
            connect = "s = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]"
        else:
            server.listen()
        dial = _python(f"import socket; {connect}; s.connect('ctl.sock'); s.send(b'from a sandbox')")
        for sandbox in (READ, WRITE, READ_NET, WRITE_NET):
            assert "PermissionError" in (await run(shell, sandbox, dial)).content
            with pytest.raises(BlockingIOError):
                server.recv(99) if datagram else server.accept()
        assert (await run(shell, Sandbox("open", network=True), dial)).ok


@works
@pytest.mark.parametrize("sandbox", [READ, WRITE_NET, NO_NET], ids=str)
async def test_only_internet_sockets_can_be_created(shell: Shell, sandbox: Sandbox) -> None:
    """Sockets outside every namespace, such as those to the host of a virtual machine, cannot be created."""
    code = """
import socket
for number in range(46):
    for kind in (1, 2, 3, 5):
        for protocol in (0, 9, 12, 15):
            try:
                socket.socket(number, kind, protocol)
            except PermissionError:
                pass
            except OSError:
                print(number)
            else:
                print(number, protocol if number == 16 else "")
"""
    result = await run(shell, sandbox, f"{_python(code)} | sort -u")
    families = {line.split()[0] for line in result.content.split("\n")[:-1]}
    assert families == {"2", "10", "16"} | ({"1"} if sandbox.files == "open" else set())
    assert "16 0" in result.content
    assert "16 12" not in result.content


@works
@pytest.mark.parametrize("sandbox", [READ, WRITE_NET, NO_NET], ids=str)
async def test_kernel_settings_cannot_be_written(shell: Shell, sandbox: Sandbox) -> None:
    """Nothing in /proc can be written, even by root, even in namespaces that the command creates."""
    code = """
import os
for top, folders, files in os.walk("/proc"):
    if top == "/proc":
        folders[:] = [name for name in folders if not name.isdigit()] + ["self"]
    folders[:] = [name for name in folders if name not in ("fd", "map_files", "root", "cwd", "task")]
    for name in files:
        path = os.path.join(top, name)
        if not os.path.islink(path) and os.access(path, os.W_OK):
            print("writable", path)
"""
    inner = "[ -w /proc/sys/kernel/core_pattern ] && echo writable"
    result = await run(
        shell,
        sandbox,
        f"{_python(code)}; {inner}; unshare -Urm sh -c 'mount -o remount,rw /proc; {inner}';"
        f" unshare -Urpf --mount-proc sh -c '{inner}'; unshare -Urmpf sh -c 'mount -t proc proc /mnt; [ -w /mnt/sys/kernel/core_pattern ] && echo writable'; echo done",
    )
    assert "\nwritable" not in f"\n{result.content}"
    assert "done" in result.content


@works
async def test_the_programs_that_set_up_a_sandbox_ignore_ld_library_path(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the command gets LD_LIBRARY_PATH, not the programs before it or outside: its folders may be writable."""
    libraries = shell.workspace / "lib"
    libraries.mkdir()
    # bubblewrap, Python or awk would load these broken libraries and fail; bash needs none of them.
    for name in ("libcap.so.2", "libselinux.so.1", "libm.so.6"):
        (libraries / name).write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    result = await run(shell, WRITE, "echo $LD_LIBRARY_PATH")
    assert result.content == f"{libraries}\n(exit code 0)"
