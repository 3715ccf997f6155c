"""`remit doctor`: checks the setup and says how to fix each problem."""

from __future__ import annotations

import importlib.metadata as metadata
import json
import sys
from pathlib import Path

import pytest
from commandbench import Bench, make_bench, remit, two_scouts

import remit.tools.builtin.sandbox.bubblewrap as bubblewrap
import remit.tools.builtin.search.grep_engines as grep_engines
from remit.errors import UsageError
from remit.models import Shelf

pytestmark = pytest.mark.real_time

SECRET = "sk-very-secret-0123456789"
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}, {"name": "b", "inputSchema": {"type": "object"}}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "unknown"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(bubblewrap, "trial", lambda **_: None)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: "/usr/bin/bwrap")
    monkeypatch.setattr(grep_engines, "find_ripgrep", lambda: "/usr/bin/rg")
    return make_bench(tmp_path, monkeypatch)


def _findings(*args: str) -> dict[str, list[dict[str, str]]]:
    """The findings by topic."""
    found: dict[str, list[dict[str, str]]] = {}
    for one in json.loads(remit("doctor", "--json", *args).out)["findings"]:
        found.setdefault(one["topic"], []).append(one)
    return found


def test_an_empty_setup_has_no_problem(bench: Bench) -> None:
    """Without keys, agents and runs there are warnings with fixes, and the exit code is 0."""
    code, out, err = remit("doctor")
    assert (code, err) == (0, "")
    assert "note     key       no API key is set" in out
    assert "→ export ANTHROPIC_API_KEY=" in out
    assert "ok       sandbox   bubblewrap works" in out
    assert "ok       search    ripgrep works" in out
    assert out.splitlines()[-1].startswith("No problems, 1 warning")


def test_keys_are_named_but_never_shown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is set is reported by the name of its variable; its value is never printed."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    for args in ((), ("--json",)):
        out = remit("doctor", *args).out
        assert "ANTHROPIC_API_KEY is set (anthropic)" in out
        assert "GEMINI_API_KEY is set (google)" in out
        assert "OPENAI_API_KEY is set" not in out
        assert SECRET not in out


def test_an_unavailable_model_is_a_problem(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured model without its key, or that its provider rejects, is a problem; exit code 1."""
    Path("remit.toml").write_text('model = ["anthropic:claude-sonnet-5", "mine:model"]\n')

    def find(shelf: Shelf, name: str) -> None:
        del shelf, name
        raise UsageError("Unknown provider 'mine'.")

    monkeypatch.setattr(Shelf, "find", find)
    assert remit("doctor").code == 1
    first, second = _findings()["model"]
    assert first["level"] == "problem"
    assert "ANTHROPIC_API_KEY" in first["fix"]
    assert first["text"] == "anthropic:claude-sonnet-5 (from remit.toml:1) is unavailable"
    assert (second["level"], second["fix"]) == (
        "problem",
        "The model 'mine:model' is unavailable: Unknown provider 'mine'.",
    )


def test_the_offline_model_needs_no_key(bench: Bench) -> None:
    """`model = "offline"` is ok without a key."""
    Path("remit.toml").write_text('model = "offline"\n')
    assert _findings()["model"] == [{"level": "ok", "topic": "model", "text": "offline (from remit.toml:1)"}]


def test_settings_are_listed_with_their_origin(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value that is set is listed with its origin; passwords in URLs are hidden."""
    monkeypatch.setenv("REMIT_LIMITS_USD", "0.5")
    monkeypatch.setenv("REMIT_TRUST", "1")
    Path("remit.toml").write_text('[limits]\ndepth = 2\n[policy]\ndeny = ["fetch"]\n')
    rows = {
        (one["key"], one["value"], one["origin"])
        for one in json.loads(remit("doctor", "--json").out)["settings"]
    }
    assert {
        ("limits.depth", "2", "remit.toml:2"),
        ("limits.usd", "0.5", "REMIT_LIMITS_USD"),
        ("policy", "deny fetch", "remit.toml:4"),
    } <= rows
    out = remit("doctor").out
    assert "SETTING" in out
    assert "REMIT_LIMITS_USD" in out
    monkeypatch.setenv("REMIT_JOURNAL", f"postgresql://me:{SECRET}@127.0.0.1:9/none")
    assert SECRET not in remit("doctor").out


def test_broken_settings_are_a_problem(bench: Bench) -> None:
    """An unreadable remit.toml is a problem with its line; the checks that do not need it still run."""
    Path("remit.toml").write_text("modle = 1\n")
    code, out, _ = remit("doctor")
    assert code == 1
    assert "problem  settings  remit.toml:1: Unknown setting 'modle'" in out
    assert "ok       remit" in out


def test_ignored_settings_of_a_project(bench: Bench) -> None:
    """Each ignored setting of an untrusted project is a warning, with `remit trust` as the fix."""
    Path("remit.toml").write_text('[policy]\nallow = ["terminal"]\n')
    found = _findings()["trust"]
    assert found[0]["level"] == "warning"
    assert "remit.toml:2" in found[0]["text"]
    assert found[0]["fix"] == "remit trust"


def test_the_journal_is_checked(bench: Bench) -> None:
    """A readable journal is reported with its place and size, and interrupted runs with how to resume them."""
    bench.run(two_scouts())
    bench.interrupted(called=True)
    found = _findings()["journal"]
    assert found[0]["level"] == "ok"
    assert "(from REMIT_JOURNAL): 2 runs" in found[0]["text"]
    assert (found[1]["level"], found[1]["fix"]) == ("note", "remit resume mnpqrstuvw")


def test_a_damaged_journal_is_a_problem(bench: Bench) -> None:
    """A file that is damaged, or is not an SQLite file, is a problem."""
    bench.run(two_scouts("x" * 200_000))
    file = bench.folder / "runs.db"
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 30_000] = b"\xff" * 30_000
    file.write_bytes(data)
    assert remit("doctor").code == 1
    assert any(one["level"] == "problem" for one in _findings()["journal"])
    file.write_text("no database" * 100)
    assert _findings()["journal"][0]["level"] == "problem"


def test_no_journal_is_a_note(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that is turned off is a note, not a problem."""
    monkeypatch.setenv("REMIT_JOURNAL", "off")
    assert _findings()["journal"][0]["level"] == "note"


def test_a_required_sandbox_that_does_not_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bubblewrap there is a warning; if the settings require a sandbox it is a problem."""
    monkeypatch.setattr(bubblewrap, "trial", lambda **_: "Install the package `bubblewrap`.")
    assert _findings()["sandbox"][0]["level"] == "warning"
    Path("remit.toml").write_text('sandbox = "read-only"\n')
    found = _findings()["sandbox"][0]
    assert (found["level"], found["fix"]) == ("problem", "Install the package `bubblewrap`.")


def test_one_failed_check_does_not_stop_the_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that raises becomes a problem of its topic; the other checks still run."""

    def broken() -> str:
        raise ImportError("libfoo.so.1: cannot open shared object file")

    monkeypatch.setattr(grep_engines, "find_ripgrep", broken)
    found = _findings()
    assert found["search"][0]["level"] == "problem"
    assert "libfoo.so.1" in found["search"][0]["text"]
    assert found["agents"][0]["level"] == "ok"


def test_unusable_agents(bench: Bench) -> None:
    """An agent file with an error is a problem; an unavailable model is a warning."""
    folder = Path(".remit/agents")
    folder.mkdir(parents=True)
    (folder / "one.md").write_text("---\nname: one\ndescription: O.\nmodel: haiku\n---\nWork.\n")
    assert [one["level"] for one in _findings()["agents"]] == ["warning", "ok"]
    (folder / "two.md").write_text("---\nname: two\ndescription: T.\ntools: Raed\n---\nWork.\n")
    assert _findings()["agents"][0]["level"] == "problem"


def test_extras_come_from_the_package_metadata(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of an extra come from the metadata; an extra with a missing package is reported with the install command."""
    needed = [
        "click>=8",
        "msgspec>=0.1; extra == 'here'",
        "no-such-package; extra == 'gone'",
        "x; extra == 'dev'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    found = _findings()["extra"]
    assert [one["level"] for one in found] == ["ok", "note"]
    assert found[0]["text"] == f"here: msgspec {metadata.version('msgspec')}"
    assert found[1]["text"] == "not installed: gone"
    assert str(found[1]["fix"]).endswith("pip install 'remit[gone]'")


def test_servers_are_started_and_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working server reports its number of tools; one that does not start is a problem; --no-servers starts none."""
    pytest.importorskip("mcp")
    monkeypatch.setenv("REMIT_TRUST", "1")
    Path("server.py").write_text(SERVER)
    Path("remit.toml").write_text(
        f'[mcp.servers.good]\ncommand = "{sys.executable}"\nargs = ["server.py"]\n'
        '[mcp.servers.bad]\ncommand = "no-such-program-at-all"\n'
    )
    found = _findings()["server"]
    assert [one["level"] for one in found] == ["ok", "problem"], found
    assert found[0]["text"] == "good (from remit.toml:1): 2 tools"
    assert "no-such-program-at-all" in found[1]["fix"]
    assert _findings("--no-servers")["server"] == [
        {"level": "note", "topic": "server", "text": "not checked: good, bad"}
    ]


def test_servers_of_an_untrusted_project_are_not_started(bench: Bench) -> None:
    """`remit doctor` in a freshly cloned project runs none of its programs."""
    Path("remit.toml").write_text('[mcp.servers.evil]\ncommand = "touch"\nargs = ["owned"]\n')
    Path(".mcp.json").write_text('{"mcpServers": {"worse": {"command": "touch", "args": ["owned"]}}}')
    found = _findings()
    assert "server" not in found
    assert len(found["trust"]) == 2
    assert not Path("owned").exists()
