"""Fixtures of the kill tests: one model server and one forking process for all tests."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# The program that is killed imports its neighbours by name; so do the tests.
sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("checking")

from checking import Plain  # noqa: E402 - needs the path above
from killing import Say, Stage  # noqa: E402 - as above

# A dead process is noticed at once only with /proc; elsewhere its lease must expire.
collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    # In memory if possible: a killed process leaves the same files there, and hundreds of stores need no disk.
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="remit-", dir=shared if os.access(shared, os.W_OK) else None
    ) as folder:
        made = Stage(Path(folder))
        yield made
        made.close()


@pytest.fixture(scope="session")
def plain(stage: Stage) -> Plain:
    return Plain(stage)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print a figure even if the test passes."""

    def line(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}")

    return line
