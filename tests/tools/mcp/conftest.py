"""Servers for the tests: ours, and third-party ones, which npm installs once into a folder of the checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests of this folder share the workshop.
sys.path.insert(0, str(Path(__file__).parent))

from workshop import Shop, gone, running

CACHE = Path(__file__).parents[3] / ".venv" / "npm"
PACKAGES = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
}


@pytest.fixture
def shop() -> Iterator[Shop]:
    """Servers whose processes must have ended when the test ends."""
    mark = uuid.uuid4().hex
    yield Shop(mark)
    assert gone(mark), f"still running: {running(mark)}"


@pytest.fixture(scope="session")
def others() -> dict[str, Path]:
    """The programs of third-party servers, by the last word of their name."""
    try:
        return _install()
    except (OSError, subprocess.SubprocessError) as error:
        if os.environ.get("REQUIRE_MCP") == "1":
            raise
        pytest.skip(f"MCP servers from npm are not tried: {error}")


def _install() -> dict[str, Path]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise FileNotFoundError("there is no node or no npm")
    CACHE.mkdir(parents=True, exist_ok=True)
    programs = {
        name.rpartition("-")[2]: CACHE / "node_modules" / name / "dist" / "index.js" for name in PACKAGES
    }
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    stamp = CACHE / "installed.txt"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (
            stamp.exists() and stamp.read_text() == str(wanted) and all(p.exists() for p in programs.values())
        ):
            flags = [
                "--prefix",
                str(CACHE),
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--loglevel=error",
            ]
            subprocess.run(
                [npm, "install", *flags, *wanted], check=True, capture_output=True, timeout=240, cwd=CACHE
            )
            stamp.write_text(str(wanted))
    return programs
