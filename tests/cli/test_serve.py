"""`remit serve` as a process: what it prints, what it refuses, and what becomes of runs that were started on the page."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from commandbench import Bench, make_bench, remit

import remit.cli.commands.serve as serve

PROGRAM = """
import asyncio, sys
from remit import Reply
from remit.cli.main import main

class Slow:
    name = "slow"
    async def reply(self, request, emit):
        if len(sys.argv) > 1 and sys.argv[1] == "serve" and "slowly" in request.messages[0].text:
            await asyncio.sleep(60)
        return Reply(f"Done: {request.messages[0].text}")

sys.exit(main(models={"slow": Slow()}))
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


class Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.address = process.stdout.readline().strip()
        parts = urlsplit(self.address)
        self.base, self.token = f"http://{parts.netloc}", parts.query.removeprefix("token=")

    def ask(self, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def wait_for(self, run: str, status: str) -> None:
        for _ in range(200):
            if self.ask(f"/api/runs/{run}")["head"]["status"] == status:
                return
            time.sleep(0.05)
        raise AssertionError(f"{run} is not {status}")

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, err
        return err


def program(*args: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *args]


@contextmanager
def served(*args: str) -> Iterator[Server]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        program("serve", "--port", "0", *args),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.communicate()


def test_runs_of_the_page_stop_with_the_server_and_can_be_resumed(bench: Bench) -> None:
    """A run that was started on the page ends as cancelled when the server stops, and `remit resume` completes it."""
    with served("--allow-start") as server:
        assert [one["name"] for one in server.ask("/api/agents")] == ["lead"]
        quick = server.ask("/api/runs", {"prompt": "quick", "model": "slow"})["run"]
        server.wait_for(quick, "completed")
        run = server.ask("/api/runs", {"prompt": "slowly", "model": "slow", "limits": "seconds=300"})["run"]
        server.wait_for(run, "running")
        assert server.ask(f"/api/runs/{run}")["head"]["hosted"] is True
        assert "Stopping." in server.stop()
    shown = json.loads(remit("show", run, "--json").out)
    assert shown["run"]["status"] == "cancelled"
    assert "the server stopped" in json.dumps(shown["run"])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        program("resume", run), env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "Done: slowly")


def test_a_stopped_run_is_resumed_on_the_page(bench: Bench) -> None:
    """A tree that `remit run` started and that was interrupted is resumed in the server's process."""
    with served("--allow-start") as server:
        run = server.ask("/api/runs", {"prompt": "slowly", "model": "slow"})["run"]
        server.wait_for(run, "running")
        server.process.kill()
        server.process.wait()
    with served("--allow-start") as server:
        head = server.ask(f"/api/runs/{run}")["head"]
        assert (head["status"], head["resumable"]) == ("interrupted", "here")
        assert server.ask(f"/api/runs/{run}/resume", {})["run"] == run
        server.wait_for(run, "running")
        with pytest.raises(urllib.error.HTTPError, match="409"):
            server.ask(f"/api/runs/{run}/resume", {})
        server.stop()


def test_a_mistake_in_a_start_is_answered(bench: Bench) -> None:
    """An unknown agent, model or limit is refused with the sentence that `remit run` would print."""
    with served("--allow-start") as server:
        for wish in (
            {"prompt": "x", "agent": "nobody", "model": "slow"},
            {"prompt": "x", "model": "nothing"},
            {"prompt": "x", "model": "slow", "limits": "request=1"},
            {"prompt": " "},
            {"prompt": "x", "yes": True},
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                server.ask("/api/runs", wish)
            assert refused.value.code == 400
            assert json.load(refused.value)["error"]
        assert server.ask("/api/runs")["total"] == 0


def test_open_streams_do_not_delay_the_stop(bench: Bench) -> None:
    """A server with an open stream stops at the first Ctrl-C within a few seconds."""
    with served() as server:
        request = urllib.request.Request(
            f"{server.base}/api/stream", headers={"Authorization": f"Bearer {server.token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as stream:
            stream.readline()
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < 5


def test_the_token_is_not_in_the_arguments(bench: Bench) -> None:
    """Another user of the machine, who sees the arguments of processes, does not see the token there."""
    with served() as server:
        arguments = Path(f"/proc/{server.process.pid}/cmdline")
        if not arguments.exists():
            pytest.skip("needs /proc")
        assert server.token not in arguments.read_text()
        assert len(server.token) >= 40


def test_open_gives_the_browser_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--open` starts the browser with a file that only the user can read, and removes it at the end."""
    opened: list[Path] = []

    def look(address: str) -> bool:
        file = Path(urlsplit(address).path)
        opened.append(file)
        assert address.startswith("file://")
        assert file.stat().st_mode & 0o077 == 0
        assert file.parent.stat().st_mode & 0o077 == 0
        assert "token=secret" in file.read_text()
        return True

    monkeypatch.setattr(webbrowser, "open", look)
    with serve._opened_page("http://127.0.0.1/?token=secret", opens=True):
        assert opened[0].exists()
    assert not opened[0].exists()


def test_other_addresses_need_a_token_of_your_own(bench: Bench) -> None:
    """Serving on an address that others can reach is refused without --token-file or REMIT_TOKEN."""
    result = remit("serve", "--host", "0.0.0.0")
    assert result.code == 2
    assert "--token-file" in result.err
    Path("short").write_text("abc")
    result = remit("serve", "--host", "0.0.0.0", "--port", "0", "--token-file", "short")
    assert (result.code, "16 characters" in result.err) == (2, True)
    assert remit("serve", "--token-file", "nowhere").code != 0


def test_an_own_token_is_not_printed(bench: Bench) -> None:
    """A token from a file is used and not printed."""
    Path("token").write_text("my-own-token-of-24-chars\n")
    with served("--token-file", "token") as server:
        assert server.token == "YOUR_TOKEN"
        server.token = "my-own-token-of-24-chars"
        assert server.ask("/api/runs")["total"] == 0


def test_a_used_port_is_reported(bench: Bench) -> None:
    """A port that another program uses is an error with its number."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = remit("serve", "--port", str(port))
    assert result.code == 2
    assert f"port {port}" in result.err


def test_host_names() -> None:
    """Requests may use the served address and loopback; with 0.0.0.0 any numeric address, but no other name."""
    assert serve._hosts("127.0.0.1", ()) == {"127.0.0.1", "localhost", "::1"}
    assert serve._hosts("10.0.0.5", ("box.example",)) >= {"10.0.0.5", "box.example"}
    assert "*" in serve._hosts("0.0.0.0", ())
    assert "*" in serve._hosts("::", ())
