"""A sandboxed command cannot leave a setuid file."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cagebench import NO_NET, WRITE, WRITE_NET, open_beside_home, python_inside, run, works
from shellbench import Shell

from remit.types.sandbox import Sandbox

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_beside_home(tmp_path, monkeypatch) as made:
        yield made


def _python(code: str) -> str:
    return f"{python_inside()} -S -c {shlex.quote(f'import os, ctypes; call = ctypes.CDLL(None).syscall; {code}')}"


_OPEN_HOW = "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)"

_WAYS = {
    "chmod": "cp /bin/true f; chmod u+s f; chmod 4755 f; chmod 6755 f",
    "install": "install -m 4755 /bin/true f",
    "a copy that keeps its mode": "cp -p /usr/bin/su f; cp -a /usr/bin/passwd g; rsync -a /usr/bin/su h",
    "an archive": "printf 'f' > f; tar cf a.tar --mode=4755 f; rm f; tar xpf a.tar",
    "fchmod": _python("os.fchmod(os.open('f', os.O_CREAT | os.O_WRONLY), 0o4755)"),
    "fchmodat": _python(
        "os.close(os.open('f', os.O_CREAT)); os.chmod('f', 0o4711, dir_fd=os.open('.', os.O_RDONLY))"
    ),
    "fchmodat2": "touch f; " + _python("call(452, -100, b'f', 0o4755, 0)"),
    "open": _python("os.open('f', os.O_CREAT | os.O_WRONLY, 0o4755)"),
    "a file without a name": _python(
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755); os.link(f'/proc/self/fd/{fd}', 'f')"
    ),
    "openat2": _python(f"{_OPEN_HOW}; call(437, -100, b'f', how, 24)"),
    "creat": _python("call(85, b'f', 0o4755)"),
    "mknod": _python("os.mknod('f', 0o104755)"),
    "a link to another's": "ln /usr/bin/su f; mv /usr/bin/su g",
    "a user namespace": "cp /bin/true f; unshare -Ur chmod 4755 f; unshare -Ur setcap cap_setuid+ep f",
    "capabilities": "cp /bin/true f; setcap cap_setuid+ep f",
}


@works
async def test_a_sandboxed_command_leaves_no_setuid_file_behind(shell: Shell) -> None:
    """No system call that sets a mode can create a setuid file in a sandbox, whichever user runs remit."""
    tries = [
        f"mkdir {number}; (cd {number}; {way}) >{number}.log 2>&1"
        for number, way in enumerate(_WAYS.values())
    ]
    await run(shell, WRITE, "; ".join(tries))
    made = {way: [*(shell.workspace / str(number)).iterdir()] for number, way in enumerate(_WAYS)}
    assert len(made) == len(_WAYS)
    assert not [way for way in made for path in made[way] if path.stat().st_mode & stat.S_ISUID]
    assert not [way for way in made for path in made[way] if "security.capability" in os.listxattr(path)]


@works
@pytest.mark.parametrize("sandbox", [WRITE_NET, NO_NET], ids=str)
async def test_no_kind_of_sandbox_allows_setuid_files(shell: Shell, sandbox: Sandbox) -> None:
    """The rule also holds with network, and in a sandbox with open files."""
    result = await run(shell, sandbox, "touch f; chmod 4755 f || echo refused")
    assert "refused" in result.content
    assert not (shell.workspace / "f").stat().st_mode & stat.S_ISUID


@works
async def test_other_modes_can_be_set(shell: Shell) -> None:
    """Executable, private, sticky and setgid modes, which folders need, work as outside."""
    result = await run(
        shell,
        WRITE,
        "touch f; chmod 755 f; chmod u+x,go-rwx f; mkdir d; chmod 2775 d; chmod +t d; install -m 700 f g; cp -p f h;"
        " tar cf a.tar f d; mkdir out; tar xpf a.tar -C out; mkfifo p; git init -q r && git -C r status -s",
    )
    assert result.content == "(no output)\n(exit code 0)", result.content
    assert stat.S_IMODE((shell.workspace / "d").stat().st_mode) == 0o3775
