"""The tool `terminal`: output, status line, refusals, and the environment of commands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shellbench import Shell, open_shell

import remit
import remit.tools.builtin.terminal.terminal as terminals
from remit import Agent
from remit.errors import UsageError
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.terminal.environment import scrub
from remit.tools.builtin.terminal.output import PIECE_BYTES, Kept, Pieces, tidy
from remit.tools.builtin.terminal.terminal import INLINE_CHARS, make_terminal, terminal
from remit.tools.policy_rules import Subject

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_shell(tmp_path / "ws", monkeypatch) as made:
        yield made


# --- Results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "content", "ok"),
    [
        ("echo out; echo err >&2; echo more", "out\nerr\nmore\n(exit code 0)", True),
        ("exit 3", "(no output)\n(exit code 3)", False),
        ("printf x", "x\n(exit code 0)", True),
        ("kill -SEGV $$", "(no output)\n(ended by SIGSEGV)", False),
        ("(exit 137)", "(no output)\n(exit code 137 (128 + SIGKILL))", False),
        ('cat; read x; echo "[$x]"', "[]\n(exit code 0)", True),
        ("tty; test -t 0 || echo none", "not a tty\nnone\n(exit code 0)", True),
        ("[[ a == a* ]] && echo bash", "bash\n(exit code 0)", True),
        ("printf '10%%\\r20%%\\r100%%\\n\\033[31mred\\033[0m\\n'", "100%\nred\n(exit code 0)", True),
        ("printf '\\xff\\xc3\\xa9\\n'", "\ufffdé\n(exit code 0)", True),
    ],
)
async def test_a_result_is_output_and_how_it_ended(
    shell: Shell, command: str, content: str, ok: bool
) -> None:
    """A result is the output and a last line with the exit code; only exit code 0 is a success."""
    result = await shell.run(command)
    assert (result.content, result.ok) == (content, ok)


async def test_a_result_has_its_numbers(shell: Shell) -> None:
    """The details have the exit code, the seconds and the bytes."""
    result = await shell.run("echo four; exit 4")
    assert isinstance(result.details, dict)
    assert (result.details["exit_code"], result.details["bytes"], result.details["signal"]) == (4, 5, None)
    assert isinstance(result.details["seconds"], float)
    assert terminal.summarise(result) == "exit code 4"
    assert terminal.summarise(await shell.run("echo a; echo b")) == "2 lines"
    assert terminal.summarise(await shell.run("true")) == "done"


async def test_a_long_output_becomes_an_artifact(shell: Shell) -> None:
    """The model reads the beginning and the end of a long output, with the exit code; an artifact has all of it."""
    model = ScriptedModel({"lead": [call("terminal", command=f"seq {INLINE_CHARS}; exit 1"), say("done")]})
    lead = Agent("lead", tools=[terminal])
    outcome = await remit.run(lead, "go", model=model, policy=["allow terminal"], workspace=shell.workspace)
    read = outcome.messages[2].text
    assert read.startswith("1\n2\n3\n")
    assert f"\n{INLINE_CHARS}\n(exit code 1)" in read
    assert INLINE_CHARS <= len(read) <= INLINE_CHARS + 1000
    assert [artifact.chars for artifact in outcome.artifacts] == [
        len("".join(f"{n}\n" for n in range(1, INLINE_CHARS + 1))) + 13
    ]


async def test_it_runs_in_the_workspace(shell: Shell) -> None:
    """Commands run in the workspace, or in a folder inside it; other folders are refused."""
    (shell.workspace / "sub").mkdir()
    (shell.workspace / "out").symlink_to("/usr")
    assert (await shell.run("pwd")).content.startswith(f"{shell.workspace}\n")
    assert (await shell.run("pwd", cwd="sub")).content.startswith(f"{shell.workspace}/sub\n")
    for cwd in ("..", "/", "out", "sub/../..", "none", "~"):
        result = await shell.run("pwd", cwd=cwd)
        assert not result.ok
        assert "exit code" not in result.content


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"command": " \n"}, "empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 200_000}, "too long"),
        ({"command": "true", "timeout": 0}, "at least 1"),
        ({"command": "sudo rm -rf /"}, "remit never runs such a command"),
        ({"command": ":(){ :|:& };:"}, "fork bomb"),
    ],
)
async def test_refusals_have_a_message(shell: Shell, args: dict[str, object], words: str) -> None:
    """A command that may not run gives a result with the reason, and nothing is started."""
    result = await shell.run(**args)  # pyright: ignore[reportArgumentType]
    assert not result.ok
    assert words in result.content


# --- Rules ----------------------------------------------------------------------------


async def test_make_terminal_has_rules(shell: Shell) -> None:
    """With `allow`, every part of a command must be allowed; a part that `deny` matches is refused."""
    shell.tool = make_terminal(allow=["echo *", "printf:*"], deny=["echo secret*"])
    assert (await shell.run("echo a && printf b")).ok
    for command, words in (
        ("echo a; ls", "`ls` is not allowed. Allowed: echo *, printf:*"),
        ("echo a > f", "`> f` is not allowed"),
        ("echo $(id)", "`id` is not allowed"),
        ("$x a", "cannot determine"),
        ("printfx", "is not allowed. Allowed: "),
        ("echo a; echo secret", "matches the denied pattern 'echo secret*'"),
    ):
        result = await shell.run(command)
        assert not result.ok
        assert words in result.content
    shell.tool = make_terminal(deny=["touch *"])
    assert (await shell.run("echo a")).ok
    assert not (await shell.run("env X=1 /usr/bin/touch f")).ok
    assert not list(shell.workspace.iterdir())


async def test_make_terminal_has_a_timeout(shell: Shell) -> None:
    """`timeout_s` applies to every command, and a call may only shorten it."""
    shell.tool = make_terminal(timeout_s=0.2)
    result = await shell.run("echo a; sleep 99", timeout=60)
    assert result.content.startswith("a\n(timed out")


@pytest.mark.parametrize("bad", [{"allow": "git"}, {"deny": [3]}, {"env": [""]}, {"timeout_s": 0}])
def test_invalid_settings_of_make_terminal_are_errors(bad: dict[str, object]) -> None:
    """Invalid settings raise UsageError before anything runs."""
    with pytest.raises(UsageError):
        make_terminal(**bad)  # pyright: ignore[reportArgumentType]


def test_the_subjects_of_a_command() -> None:
    """Rules such as `allow terminal(git status*)` are matched against the parts of the command."""
    assert terminal.subjects({"command": "git status; ls"}) == (Subject("git status"), Subject("ls"))
    assert str(terminal.tier) == "confirm"


# --- Environment ---------------------------------------------------------------------------------


async def test_secrets_do_not_reach_commands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands do not get keys and tokens unless `env` lists them; they get the variables they need."""
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_" + "a1B2" * 9)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-x")
    monkeypatch.setenv("PLAIN_SETTING", "yes")
    said = (await shell.run("env")).content
    assert "TOKEN" not in said
    assert "sk-ant" not in said
    assert {"PLAIN_SETTING=yes", "TERM=dumb", "PAGER=cat", "GIT_TERMINAL_PROMPT=0"} <= set(said.split("\n"))
    shell.tool = make_terminal(env=["GITHUB_*"])
    said = (await shell.run("env")).content
    assert "GITHUB_TOKEN=ghp_" in said
    assert "ANTHROPIC" not in said


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        *[
            (name, "x", False)
            for name in ("MY_KEY", "token", "DbPassword", "AWS_REGION", "SSH_AUTH_SOCK", "COOKIES", "X_DSN")
        ],
        *[
            (name, "x", False)
            for name in ("LD_PRELOAD", "BASH_ENV", "ENV", "BASH_FUNC_ls%%", "GIT_DIR", "PS4", "IFS_TOKEN")
        ],
        *[
            (name, "x", True)
            for name in (
                "HOME",
                "LANG",
                "LC_ALL",
                "TZ",
                "TMPDIR",
                "USER",
                "SHELL",
                "VIRTUAL_ENV",
                "GIT_AUTHOR_NAME",
            )
        ],
        ("DB", "postgres://me:hunter2@host/db", False),
        ("DB", "postgres://host/db", True),
        ("HARMLESS", "ghp_" + "a1B2" * 9, False),
        ("HARMLESS", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", False),
        ("JAVA_HOME", "/usr/lib/jvm/java-17-openjdk-amd64", True),
        ("HARMLESS", "a long sentence with 12345 words", True),
    ],
)
def test_the_environment_of_commands(name: str, value: str, kept: bool) -> None:
    """A secret is recognised by its name or its value; harmless variables are kept."""
    assert (scrub({name: value}).get(name) == value) is kept


# --- Output --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x \x1b]8;;http://x\x1b\\link", "red x link"),
        ("a\x1b(Bb\x1bcc\x9b2Jd", "abcd"),
        ("10%\r 50%\r100%\nnext\r\nlast", "100%\nnext\nlast"),
        ("done\r", "done"),
        ("b\x08bo\x08ol\x08ld|\x08/\x08-", "bold-"),
        ("bell\x07 null\x00 tab\t.", "bell null tab\t."),
        ("\x1b]0;never ended\nnext", "\nnext"),
        ("\x1b[", ""),
    ],
)
def test_output_has_no_terminal_escapes(raw: str, seen: str) -> None:
    """Escapes and control characters are removed, and a progress bar is shown in its final state."""
    assert tidy(raw) == seen


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_tidy_text_has_no_controls(raw: str) -> None:
    """For any output, no control characters are left except line breaks and tabs."""
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", tidy(raw))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=30))
def test_head_and_tail_are_kept(pieces: list[bytes]) -> None:
    """For any output in any pieces, the beginning and the end are kept, and the gap is reported."""
    kept, whole = Kept(400, 400), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    assert kept.total == len(whole)
    text = kept.text()
    if len(whole) <= 800:
        assert text == tidy(whole.decode("utf-8", "replace"))
    else:
        assert "omitted ...]" in text


def test_omitted_output_is_counted() -> None:
    """The gap is between whole lines, and its size is right."""
    kept = Kept(100, 100)
    for number in range(1000):
        kept.add(b"line %d\n" % number)
    head, gap, tail = re.split(r"\[\.\.\. (.*) omitted \.\.\.\]\n", kept.text())
    assert head.endswith("line 12\n")
    assert tail.startswith("line 9")
    assert gap == f"{(kept.total - len(head) - len(tail)) / 1000:.1f} KB"


async def test_pieces_are_few_and_small() -> None:
    """For any amount of output, progress events are bounded in number and size, and report omitted bytes."""
    said: list[str] = []
    pieces = Pieces(said.append)
    for _ in range(1000):
        pieces.add(b"0123456789\n" * 1000)
        if not _ % 100:
            await asyncio.sleep(0.001)
    pieces.add(b"the end")
    pieces.close()
    assert 1 <= len(said) <= 3
    assert max(map(len, said)) < PIECE_BYTES + 100
    assert said[0].startswith("[... ")
    assert said[-1].endswith("the end")


async def test_output_is_reported_as_it_arrives(shell: Shell) -> None:
    """Progress events contain output while the command still runs."""
    task = asyncio.create_task(shell.run("echo early; sleep 99"))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if shell.emitted:
            break
    assert shell.emitted == ["early\n"]
    assert not task.done()
    task.cancel()
    await task


# --- Through a run -------------------------------------------------------------------------------


async def test_a_run_uses_it(shell: Shell) -> None:
    """An allowed command runs, its output is an event, and the model reads the result."""
    model = ScriptedModel({"lead": [call("terminal", command="echo hello > f; cat f"), say("done")]})
    events: list[remit.Event] = []
    outcome = await remit.run(
        Agent("lead", tools=[terminal]),
        "go",
        model=model,
        policy=["allow terminal"],
        workspace=shell.workspace,
        on_event=events.append,
    )
    assert outcome.ok
    assert outcome.messages[2].text == "hello\n(exit code 0)"
    assert [event.text for event in events if event.kind == "call_progressed"] == ["hello\n"]  # pyright: ignore[reportAttributeAccessIssue]
    assert outcome.calls[0].result == "1 line"


async def test_without_an_approver_commands_are_denied(shell: Shell) -> None:
    """Without an allowing rule and without an approver, commands are denied."""
    model = ScriptedModel({"lead": [call("terminal", command="touch f"), say("done")]})
    outcome = await remit.run(Agent("lead", tools=[terminal]), "go", model=model, workspace=shell.workspace)
    assert not outcome.calls[0].success
    assert not (shell.workspace / "f").exists()


async def test_sh_is_used_if_bash_is_missing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bash, sh runs the commands; without both, the result says so."""
    monkeypatch.setattr(terminals, "_shell", lambda: "/bin/sh")
    assert (await shell.run("echo $0 | grep -c sh")).ok

    def none() -> str:
        raise terminals.Refused("There is neither bash nor sh here.")

    monkeypatch.setattr(terminals, "_shell", none)
    result = await shell.run("echo x")
    assert (result.content, result.ok) == ("There is neither bash nor sh here.", False)
