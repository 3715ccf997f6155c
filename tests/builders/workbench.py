"""A workspace with a folder outside it, and a way to call tools as a run does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remit.tools.result import ToolResult, render
from remit.tools.tool import Tool, ToolContext

SECRET = "s3cret-outside"


class Bench:
    """A folder `ws`, the workspace, and a folder `outside` that tools may not touch."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "ws"
        self.outside = base / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")
        self.before = self.snapshot()
        self.workspace: Path | None = self.root
        self.cancelled: Callable[[], bool] = lambda: False

    def file(self, path: str, content: str | bytes = "") -> Path:
        """A file of the workspace."""
        made = self.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(content if isinstance(content, bytes) else content.encode())
        return made

    def use(self, tool: Tool, /, **args: object) -> ToolResult:
        """The result of a call of the tool."""
        return self.use_as("r", tool, **args)

    def use_as(self, run: str, tool: Tool, /, **args: object) -> ToolResult:
        """The same, for a run with this id."""
        ctx = ToolContext(
            run_id=run,
            path=("lead", run),
            depth=0,
            workspace=self.workspace,
            deps=None,
            emit=lambda text: None,
            cancelled=self.cancelled,
        )
        return render(tool.invoke(tool.check(dict(args)), ctx))

    def snapshot(self) -> dict[str, bytes]:
        """Everything outside, by name."""
        return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(self.outside.rglob("*"))}

    def assert_contained(self, *results: ToolResult) -> None:
        """Check that nothing from outside is in the result, and that nothing outside has changed."""
        for result in results:
            assert SECRET not in result.content
            assert not any(SECRET.encode() in part.data for part in result.parts)
        assert self.snapshot() == self.before
