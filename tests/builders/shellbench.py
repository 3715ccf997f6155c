"""A workspace for commands, and checks of what they leave behind."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from remit.tools.builtin.terminal.terminal import terminal
from remit.tools.result import ToolResult, render
from remit.tools.tool import Tool, ToolContext
from remit.types.messages import JsonObject
from remit.types.sandbox import OPEN, Sandbox

MARK = "REMIT_TEST_MARK"


class Shell:
    """Calls `terminal` as a run does; every process that its commands start carries a mark."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.sandbox: Sandbox = OPEN
        self.tool: Tool = terminal
        self.emitted: list[str] = []
        self.mark = secrets.token_hex(6)

    async def run(self, command: str, **args: object) -> ToolResult:
        """The result of a call."""
        ctx = ToolContext(
            run_id="r",
            path=("lead",),
            depth=0,
            workspace=self.workspace,
            deps=None,
            emit=self.emitted.append,
            cancelled=lambda: False,
            sandbox=self.sandbox,
        )
        checked = self.tool.check(cast(JsonObject, {"command": command, **args}))
        made = self.tool.invoke(checked, ctx)
        assert hasattr(made, "__await__")
        return render(await made)  # pyright: ignore[reportGeneralTypeIssues]

    def running(self) -> list[str]:
        """The command lines of running processes with the mark."""
        sign = f"{MARK}={self.mark}".encode()
        found: list[str] = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if entry.name != str(os.getpid()) and sign in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
        return found

    def assert_nothing_left(self, seconds: float = 0.0) -> None:
        """Check that no process with the mark and no zombie is left."""
        end = time.monotonic() + seconds
        while (self.running() or self.zombies()) and time.monotonic() < end:
            time.sleep(0.01)
        assert self.running() == []
        assert self.zombies() == []

    def zombies(self) -> list[str]:
        me = f"{os.getpid()}"
        found: list[str] = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                name, _, rest = (entry / "stat").read_text().rpartition(") ")
                if rest.split()[:2] == ["Z", me]:
                    found.append(name)
        return found


@contextmanager
def open_shell(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell that must leave no process at the end."""
    workspace.mkdir(exist_ok=True)
    shell = Shell(workspace.resolve())
    monkeypatch.setenv(MARK, shell.mark)
    yield shell
    shell.assert_nothing_left()
