"""What `remit doctor` says of a journal that can be read and not written, and of a disk without space."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commandbench import Bench, make_bench, remit, two_scouts

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="it is not asked there how a disk is mounted"),
]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def _journal() -> list[dict[str, str]]:
    found = json.loads(remit("doctor", "--json", "--no-servers").out)["findings"]
    return [one for one in found if one["topic"] == "journal"]


def _close(folder: Path, monkeypatch: pytest.MonkeyPatch, *, mounted_read_only: bool) -> None:
    """Nobody may write in a folder, not even the user of the tests, whom no permission stops."""
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: may(path, mode) and (mode != os.W_OK or Path(path) != folder)
    )
    flags = SimpleNamespace(f_flag=os.ST_RDONLY if mounted_read_only else 0)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    # SQLite cannot make its files beside the journal either.
    (folder / "runs.db-shm").mkdir()


def _have_left(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def test_a_journal_on_a_read_only_file_system(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sound and can be read; what to do is to keep runs elsewhere, since no permission helps."""
    bench.run(two_scouts())
    _close(bench.folder, monkeypatch, mounted_read_only=True)
    first, second = _journal()
    assert first["level"] == "ok"
    assert second["level"] == "problem"
    assert "can be read and not written: it is on a read-only file system" in second["text"]
    assert "--journal sqlite:///" in second["fix"]
    assert "chmod" not in second["fix"]


def test_a_journal_in_a_folder_that_may_not_be_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sound and can be read; the folder that has to be opened is named."""
    bench.run(two_scouts())
    _close(bench.folder, monkeypatch, mounted_read_only=False)
    first, second = _journal()
    assert first["level"] == "ok"
    assert second["level"] == "problem"
    assert f"can be read and not written: this user may not write to {bench.folder}" in second["text"]
    assert f"chmod u+w {bench.folder}" in second["fix"]


def test_a_journal_that_cannot_be_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none yet and none can be made, that is the problem."""
    _close(bench.folder, monkeypatch, mounted_read_only=True)
    assert "cannot be made: it is on a read-only file system" in _journal()[1]["text"]


def test_a_disk_that_is_full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing can be started that is a problem; deleting runs is no advice, since that has to be written too."""
    _have_left(100_000, monkeypatch)
    assert remit("doctor", "--no-servers").code == 1
    bench.age(bench.run(two_scouts()).run_id, 40)
    found = _journal()[1]
    assert found["level"] == "problem"
    assert found["text"] == "only 0.1 MB are left on its disk, too little to start a run"
    assert "remit rm" not in found["fix"]
    assert found["fix"].startswith("free some space")


def test_a_disk_that_is_nearly_full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little space there is a warning; old runs are to be deleted where there are some."""
    _have_left(100_000_000, monkeypatch)
    bench.run(two_scouts())
    found = _journal()[1]
    assert (found["level"], found["text"]) == ("warning", "only 100.0 MB are left on its disk")
    assert "remit rm" not in found["fix"]
    bench.age(bench.run(two_scouts()).run_id, 40)
    assert _journal()[1]["fix"] == "remit rm --older-than 30d"


def test_space_is_told_of_a_journal_that_cannot_be_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is often why, so that it is said as well."""
    (bench.folder / "runs.db").write_text("no database" * 100)
    _have_left(0, monkeypatch)
    assert [one["level"] for one in _journal()] == ["problem", "problem"]


def test_a_journal_that_other_users_may_read_is_reported(bench: Bench) -> None:
    """A journal whose mode lets other users in is a warning, with the command that mends it."""
    bench.run(two_scouts())
    file = bench.folder / "runs.db"
    for mode, can in ((0o640, "read it"), (0o606, "read and change it")):
        file.chmod(mode)
        (warning,) = [one for one in _journal() if one["level"] == "warning"]
        assert warning["text"].endswith(f"its mode lets them {can}.")
        assert warning["fix"] == f"Run: chmod 600 {file}"


def test_a_journal_that_another_user_owns_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of another user, who can change what it says, is a warning."""
    bench.run(two_scouts())
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    (warning,) = [one for one in _journal() if one["level"] == "warning"]
    assert f"belongs to another user (uid {own})" in warning["text"]


def test_a_journal_that_sandboxed_commands_may_write_is_a_problem(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal where the sandbox of the settings may write is a problem, and `remit run` says the same, with exit code 2."""
    monkeypatch.setenv("REMIT_JOURNAL", "sqlite:///runs.db")
    monkeypatch.setenv("REMIT_SANDBOX", "workspace-write")
    (problem,) = [one for one in _journal() if one["level"] == "problem"]
    assert "could approve their own calls" in problem["text"]
    assert str(bench.folder / "home/.local/state/remit/runs.db") in problem["text"]
    code, out, err = remit("run", "Survey this folder", "--model", "offline")
    assert (code, out) == (2, "")
    assert problem["text"] in err
    assert not Path("runs.db").exists()
    monkeypatch.delenv("REMIT_JOURNAL")
    assert remit("run", "Survey this folder", "--model", "offline").code == 0
