"""Servers from remit.toml and from .mcp.json: valid entries, and the messages for invalid ones."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from remit.errors import UsageError
from remit.tools.mcp import McpServer, read_mcp_json, read_servers

TOML = """
[files]
command = "npx"
args = ["-y", "server-filesystem", "."]
env = { MODE = "ro" }
env_from = ["TOKEN"]
cwd = "sub"
timeout_s = 5
start_s = 10
roots = true
trusted = true

[web]
url = "https://mcp.example.com/mcp"
headers = { X-A = "b" }
headers_from = { Authorization = "Bearer ${TOKEN}" }

[off]
command = "x"
disabled = true
"""


def test_every_key_is_read() -> None:
    """A table is a server; a disabled server is left out without a problem."""
    found = read_servers(tomllib.loads(TOML), "remit.toml: mcp.servers")
    files = McpServer(
        "files",
        command="npx",
        args=["-y", "server-filesystem", "."],
        env={"MODE": "ro"},
        env_from=["TOKEN"],
        cwd="sub",
        timeout_s=5,
        start_s=10,
        roots=True,
        trusted=True,
    )
    web = McpServer(
        "web",
        url="https://mcp.example.com/mcp",
        headers={"X-A": "b"},
        headers_from={"Authorization": "Bearer ${TOKEN}"},
    )
    assert (found.servers, found.problems) == ({"files": files, "web": web}, ())


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('comand = "x"', "remit.toml: mcp.servers.bad: unknown key 'comand'; did you mean 'command'?"),
        ('zzz = "x"', "unknown key 'zzz'; known keys: command, args"),
        ("args = []", "mcp.servers.bad: MCP server bad: set a command to start it, or the url"),
        ('command = "x"\nargs = "y"', "args must be a list of strings"),
        ('command = "x"\ndisabled = "no"', "disabled must be true or false"),
        ('command = "x"\nroots = "yes"', "roots must be true or false, not 'yes'"),
        ('command = "x"\nurl = 7', "set a command to start it, or the url"),
        ('command = "x"\ntimeout_s = "soon"', "timeout_s must be a number of seconds"),
        ('command = "x"\nenv = { K = 1234567 }', "env must be a table"),
    ],
)
def test_an_invalid_server_does_not_hide_others(entry: str, words: str) -> None:
    """The message names the file, the server and the key; the valid server is read."""
    table = tomllib.loads(f'[good]\ncommand = "x"\n[bad]\n{entry}\n')
    found = read_servers(table, "remit.toml: mcp.servers")
    assert list(found.servers) == ["good"]
    assert len(found.problems) == 1
    assert words in found.problems[0]
    assert "1234567" not in found.problems[0]


def test_invalid_tables_and_names_are_reported() -> None:
    """Neither a value that is not a table nor an invalid name stops the reading."""
    found = read_servers({"a": 1, "b c": {"command": "x"}, "d": {"command": "x"}}, "f")
    assert list(found.servers) == ["d"]
    assert found.problems[0] == "f.a: must be a table."
    assert "Invalid MCP server name 'b c'" in found.problems[1]


def test_servers_must_be_a_table() -> None:
    """The error names the place."""
    with pytest.raises(UsageError, match=r"remit.toml: mcp.servers: must be a table"):
        read_servers([], "remit.toml: mcp.servers")  # pyright: ignore[reportArgumentType]


def mcp_json(folder: Path, **servers: object) -> Path:
    path = folder / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_mcp_json_is_read_as_other_programs_write_it(tmp_path: Path) -> None:
    """Variables are expanded everywhere, defaults are used, and other programs' auto-approval keys have no effect."""
    path = mcp_json(
        tmp_path,
        files={
            "type": "stdio",
            "command": "${BIN:-npx}",
            "args": ["-y", "${PKG}"],
            "env": {"K": "${TOKEN:-}"},
        },
        web={"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        plain={"command": "x", "autoApprove": ["*"], "timeout": 5000, "roots": True},
        off={"command": "x", "disabled": True},
    )
    found = read_mcp_json(path, {"PKG": "pkg", "HOST": "h.example", "TOKEN": "s3cret"})
    assert found.problems == ()
    assert found.servers == {
        "files": McpServer("files", command="npx", args=["-y", "pkg"], env={"K": "s3cret"}),
        "web": McpServer("web", url="https://h.example/mcp", headers={"Authorization": "Bearer s3cret"}),
        "plain": McpServer("plain", command="x", timeout_s=5, roots=True),
    }
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "sse", "url": "http://h/sse"}, '"sse" are unsupported'),
        ({"type": "carrier-pigeon", "command": "x"}, "type must be"),
        ({"type": "http", "command": "x"}, "needs a url"),
        ({"comand": "x"}, "did you mean 'command'?"),
        ({"command": "x", "timeout": "1"}, "milliseconds"),
        ("npx", "must be a table"),
    ],
)
def test_errors_in_mcp_json(tmp_path: Path, entry: object, words: str) -> None:
    """The message names the file and the server; the valid server is read."""
    path = mcp_json(tmp_path, good={"command": "x"}, bad=entry)
    found = read_mcp_json(path, {})
    assert list(found.servers) == ["good"]
    assert found.problems[0].startswith(f"{path}: mcpServers.bad: ")
    assert words in found.problems[0]


def test_an_unset_variable_is_a_warning(tmp_path: Path) -> None:
    """The server is missing, with a warning that names the variable; on another machine the same file may be right."""
    path = mcp_json(tmp_path, good={"command": "x"}, bad={"command": "x", "env": {"K": "${NOT_SET}"}})
    found = read_mcp_json(path, {})
    assert (list(found.servers), found.problems) == (["good"], ())
    assert (
        f"{path}: mcpServers.bad: env.K needs the environment variable NOT_SET, which is not set"
        in found.warnings[0]
    )


OTHERS = {
    "type and tools, as Copilot has them": (
        {"type": "local", "command": "x", "tools": ["find", "get_*"], "env": {"K": "${{ secrets.TOKEN }}"}},
        McpServer("s", command="x", only=["find", "get_*"], env={"K": "s3cret"}),
    ),
    "all tools": ({"type": "stdio", "command": "x", "tools": ["*"]}, McpServer("s", command="x")),
    "Codex's times and tokens": (
        {
            "url": "https://h/mcp",
            "bearer_token_env_var": "TOKEN",
            "startup_timeout_sec": 7,
            "tool_timeout_sec": 8,
            "enabled_tools": ["a"],
            "disabled_tools": ["b"],
            "http_headers": {"X": "y"},
        },
        McpServer(
            "s",
            url="https://h/mcp",
            headers_from={"Authorization": "Bearer ${TOKEN}"},
            headers={"X": "y"},
            start_s=7,
            timeout_s=8,
            only=["a"],
            without=["b"],
        ),
    ),
    "opencode's lists": (
        {"type": "local", "command": ["npx", "-y", "p"], "environment": {"A": "b"}, "enabled": True},
        McpServer("s", command="npx", args=["-y", "p"], env={"A": "b"}),
    ),
    "Gemini's names": (
        {"httpUrl": "https://h/mcp", "includeTools": ["a"], "timeout": 500, "trust": False},
        McpServer("s", url="https://h/mcp", only=["a"], timeout_s=0.5),
    ),
}


@pytest.mark.parametrize("how", OTHERS)
def test_keys_of_other_programs(tmp_path: Path, how: str) -> None:
    """A key has the same meaning in .mcp.json, in tables and in agent files, without warnings."""
    entry, expected = OTHERS[how]
    environ = {"TOKEN": "s3cret"}
    for found in (
        read_mcp_json(mcp_json(tmp_path, s=entry), environ),
        read_servers({"s": entry}, "f", environ),
    ):
        assert (found.servers, found.problems, found.warnings) == ({"s": expected}, (), ())
    if "$" not in str(entry):
        assert read_servers({"s": entry}, "f").servers == {"s": expected}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"trust": True}, "remit asks before it uses a tool"),
        ({"oauth": {"clientId": "x"}}, "remit does not log in"),
        ({"gallery": "https://x"}, "unknown key 'gallery' ignored"),
    ],
)
def test_unsupported_keys_are_ignored_with_a_warning(more: dict[str, object], words: str) -> None:
    """The server is read, and the file cannot allow anything."""
    found = read_servers({"s": {"command": "x", **more}}, "f", {})
    assert (found.servers, found.problems) == ({"s": McpServer("s", command="x")}, ())
    assert found.warnings[0].startswith("f.s: ")
    assert words in found.warnings[0]


def test_enabled_and_disabled() -> None:
    """`enabled: false` and `disabled: true` mean the same; only true and false are valid."""
    table = {"a": {"command": "x", "enabled": False}, "b": {"command": "x", "disabled": True}}
    assert read_servers(table, "f").servers == {}
    assert (
        "enabled must be true or false"
        in read_servers({"a": {"command": "x", "enabled": 1}}, "f").problems[0]
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"{", "not valid JSON (line 1, column 2)"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", 'must have a table "mcpServers"'),
        (b"[" * 100_000, "not valid JSON"),
        (b" " * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
def test_an_invalid_file_is_an_error(tmp_path: Path, content: bytes | None, words: str) -> None:
    """The error names the file and the problem."""
    path = tmp_path / ".mcp.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_mcp_json(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
