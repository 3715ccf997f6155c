"""The stage of the kill tests: one model server and one forking process for all of them."""

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

from checking import Plain  # noqa: E402 - found by the lines above
from killing import Say, Stage  # noqa: E402 - as above

# Whether a process is dead is only seen at once where there is /proc; elsewhere its lease has to run out.
collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    # In memory where that can be had: a killed process leaves the same there, and hundreds of stores wait for no disk.
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
    """Has a figure be seen also when the test passes."""

    def line(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}")

    return line
