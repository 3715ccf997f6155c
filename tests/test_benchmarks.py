"""The benchmarks as programs: what they say to a slip, before anything is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

pytestmark = pytest.mark.real_time


def said(program: str, *args: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, BENCHMARKS / program, *args], capture_output=True, text=True, timeout=50, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--only", "journal, nonsense"), "no workload 'nonsense'; there are soak, journal, briefed"),
        (("--only", ""), "no workload ''"),
        (("--rounds", "0"), "'0' is no number of rounds"),
        (("--rounds", "-1"), "'-1' is no number of rounds"),
        (("--out", "no/such/folder/x.json"), "cannot be written: No such file"),
    ],
)
def test_a_slip_is_told_before_anything_is_measured(args: tuple[str, ...], words: str) -> None:
    code, text = said("own.py", *args)
    assert code == 2
    assert words in text
    assert "Traceback" not in text


def test_a_workload_is_measured_and_written_down(tmp_path: Path) -> None:
    out = tmp_path / "own.json"
    code, text = said("own.py", "--only", "cancel", "--rounds", "1", "--out", str(out))
    assert code == 0, text
    assert "ratio" in text
    assert "(ours_wall_ms <= 150: " in text
    assert '"ours_wall_ms"' in out.read_text(encoding="utf-8")


def test_what_draws_the_page_says_what_it_needs() -> None:
    code, text = said("draw.py")
    assert code == 1
    assert "draw.py results.json own.json" in text


def test_what_draws_the_page_has_help() -> None:
    code, text = said("draw.py", "--help")
    assert code == 0
    assert "draw.py results.json own.json" in text


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "No such file"),
        ("no json", "cannot be read"),
        ("{}", "has no 'samples'"),
        ("[]", "has no 'samples'"),
    ],
)
def test_what_draws_the_page_is_told_of_wrong_files(tmp_path: Path, written: str | None, words: str) -> None:
    path = tmp_path / "results.json"
    if written is not None:
        path.write_text(written, encoding="utf-8")
    code, text = said("draw.py", str(path), str(path))
    assert code == 1
    assert words in text
    assert "Traceback" not in text
