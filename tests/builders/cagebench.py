"""A workspace beside a home folder, for sandbox tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from shellbench import Shell, open_shell

import remit.tools.builtin.sandbox.bubblewrap as bubblewrap
from remit.tools.result import ToolResult, render
from remit.tools.tool import Tool, ToolContext
from remit.types.messages import JsonObject
from remit.types.sandbox import Sandbox

_TROUBLE = bubblewrap.trial()
_REQUIRED = os.environ.get("REQUIRE_SANDBOX") == "1"

works = pytest.mark.skipif(_TROUBLE is not None and not _REQUIRED, reason=f"no sandbox here. {_TROUBLE}")

READ, WRITE = Sandbox("read-only"), Sandbox("workspace-write")
READ_NET, WRITE_NET = Sandbox("read-only", network=True), Sandbox("workspace-write", network=True)
NO_NET = Sandbox("open", network=False)

GIT = "git -c init.defaultBranch=main -c user.name=x -c user.email=x@x.example"
NEW = f"{GIT} init -q . && echo a > a && git add a && {GIT} commit -qm a"
"""Make the folder a repository with one commit."""


@contextmanager
def open_beside_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell in `ws`, beside a home folder with a secret."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("hidden-value")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    with open_shell(tmp_path / "ws", monkeypatch) as made:
        yield made


async def run(shell: Shell, sandbox: Sandbox, command: str) -> ToolResult:
    shell.sandbox = sandbox
    return await shell.run(command)


def outside(command: str, folder: Path) -> None:
    """Run the command outside the sandbox, as the user would."""
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def use(tool: Tool, shell: Shell, approved: str = "", **args: object) -> ToolResult:
    """The result of a file tool in the shell's sandbox; `approved` are the approved reasons."""
    ctx = ToolContext(
        run_id="r",
        path=("lead",),
        depth=0,
        workspace=shell.workspace,
        deps=None,
        emit=shell.emitted.append,
        cancelled=lambda: False,
        sandbox=shell.sandbox,
        approved=approved,
    )
    return render(cast(ToolResult, tool.invoke(tool.check(cast(JsonObject, args)), ctx)))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def python_inside() -> str:
    """A Python that exists in the sandbox: an environment below /tmp does not, since the sandbox has its own /tmp."""
    environment = Path(sys.prefix).resolve()
    return sys.executable if not environment.is_relative_to("/tmp") else os.path.realpath(sys.executable)
