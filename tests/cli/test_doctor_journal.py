"""`remit doctor` and a journal that is read-only, or whose disk is full."""

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
    """Remove write access to a folder, also for root, whom permissions do not stop."""
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: may(path, mode) and (mode != os.W_OK or Path(path) != folder)
    )
    flags = SimpleNamespace(f_flag=os.ST_RDONLY if mounted_read_only else 0)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    # SQLite cannot create its files beside the journal either.
    (folder / "runs.db-shm").mkdir()


def _have_left(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def test_a_journal_on_a_read_only_file_system(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal can be read; the fix is to store runs elsewhere, since permissions do not help."""
    bench.run(two_scouts())
    _close(bench.folder, monkeypatch, mounted_read_only=True)
    first, second = _journal()
    assert first["level"] == "ok"
    assert second["level"] == "problem"
    assert "is read-only: it is on a read-only file system" in second["text"]
    assert "--journal sqlite:///" in second["fix"]
    assert "chmod" not in second["fix"]


def test_a_journal_in_a_read_only_folder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal can be read; the fix names the folder that needs write access."""
    bench.run(two_scouts())
    _close(bench.folder, monkeypatch, mounted_read_only=False)
    first, second = _journal()
    assert first["level"] == "ok"
    assert second["level"] == "problem"
    assert f"is read-only: this user has no write access to {bench.folder}" in second["text"]
    assert f"chmod u+w {bench.folder}" in second["fix"]


def test_a_journal_that_cannot_be_created(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that does not exist and cannot be created is a problem."""
    _close(bench.folder, monkeypatch, mounted_read_only=True)
    assert "cannot be created: it is on a read-only file system" in _journal()[1]["text"]


def test_a_full_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk too full to start a run is a problem; the fix is not `remit rm`, which needs space too."""
    _have_left(100_000, monkeypatch)
    assert remit("doctor", "--no-servers").code == 1
    bench.age(bench.run(two_scouts()).run_id, 40)
    found = _journal()[1]
    assert found["level"] == "problem"
    assert found["text"] == "only 0.1 MB are free on the journal's disk, not enough to start a run"
    assert "remit rm" not in found["fix"]
    assert found["fix"].startswith("free some space")


def test_a_nearly_full_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little free space is a warning; the fix is to delete old runs if there are any."""
    _have_left(100_000_000, monkeypatch)
    bench.run(two_scouts())
    found = _journal()[1]
    assert (found["level"], found["text"]) == ("warning", "only 100.0 MB are free on the journal's disk")
    assert "remit rm" not in found["fix"]
    bench.age(bench.run(two_scouts()).run_id, 40)
    assert _journal()[1]["fix"] == "remit rm --older-than 30d"


def test_free_space_is_reported_for_an_unusable_journal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is a common cause, so the free space is reported too."""
    (bench.folder / "runs.db").write_text("no database" * 100)
    _have_left(0, monkeypatch)
    assert [one["level"] for one in _journal()] == ["problem", "problem"]


def test_a_journal_that_other_users_may_read_is_reported(bench: Bench) -> None:
    """A journal that other users can read is a warning, with the command that fixes it."""
    bench.run(two_scouts())
    file = bench.folder / "runs.db"
    for mode, can in ((0o640, "read it"), (0o606, "read and change it")):
        file.chmod(mode)
        (warning,) = [one for one in _journal() if one["level"] == "warning"]
        assert warning["text"].endswith(f"its mode lets them {can}.")
        assert warning["fix"] == f"Run: chmod 600 {file}"


def test_a_journal_that_another_user_owns_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of another user, who could change it, is a warning."""
    bench.run(two_scouts())
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    (warning,) = [one for one in _journal() if one["level"] == "warning"]
    assert f"belongs to another user (uid {own})" in warning["text"]


def test_a_journal_that_sandboxed_commands_may_write_is_a_problem(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that the configured sandbox may write is a problem; `remit run` reports the same, with exit code 2."""
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
