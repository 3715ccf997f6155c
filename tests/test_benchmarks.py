"""The benchmarks as programs: they report wrong arguments before they measure anything."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

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
        (
            ("--only", "journal, nonsense"),
            "unknown workload 'nonsense'; known workloads: soak, journal, opened",
        ),
        (("--only", ""), "a name is missing; known workloads: soak"),
        (("--only", "cancel,"), "a name is missing; known workloads: soak"),
        (("--rounds", "0"), "'0' is not a number of rounds"),
        (("--rounds", "-1"), "'-1' is not a number of rounds"),
        (("--out", "no/such/folder/x.json"), "cannot be written: No such file"),
    ],
)
def test_a_wrong_argument_is_reported_before_measuring(args: tuple[str, ...], words: str) -> None:
    code, text = said("own.py", *args)
    assert code == 2
    assert words in text
    assert "Traceback" not in text


def test_a_wrong_argument_leaves_no_file(tmp_path: Path) -> None:
    assert said("own.py", "--out", str(tmp_path / "own.json"), "--only", "nonsense")[0] == 2
    assert not list(tmp_path.iterdir())


def test_a_workload_is_measured_and_its_results_written(tmp_path: Path) -> None:
    out = tmp_path / "own.json"
    code, text = said("own.py", "--only", "cancel", "--rounds", "1", "--out", str(out))
    assert code == 0, text
    assert "ratio" in text
    assert "(ours_wall_ms <= 150: " in text
    assert '"ours_wall_ms"' in out.read_text(encoding="utf-8")


def test_children_of_code_are_measured_against_children_of_a_model() -> None:
    """The benchmark of delegating from code runs, and prints a figure for each kind of child."""
    code, text = said("from_code.py", "--rounds", "1")
    assert code == 0, text
    assert all(kind in text for kind in ("a model's task", "a tool's map", "a program's map"))


def test_draw_without_arguments_shows_its_usage() -> None:
    code, text = said("draw.py")
    assert code == 1
    assert "draw.py results.json own.json" in text


def test_draw_has_help() -> None:
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
        ('{"samples": {}}', "has no 'machine'"),
    ],
)
def test_draw_reports_wrong_files(tmp_path: Path, written: str | None, words: str) -> None:
    path = tmp_path / "results.json"
    if written is not None:
        path.write_text(written, encoding="utf-8")
    code, text = said("draw.py", str(path), str(path))
    assert code == 1
    assert words in text
    assert "Traceback" not in text


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that draws the page, with a temporary page."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    program = importlib.import_module("draw")
    page = tmp_path / "performance.md"
    page.write_text(program.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(program, "PAGE", page)
    monkeypatch.setattr(program, "PICTURE", tmp_path / "performance.svg")
    return program


def measured(draw: ModuleType, times: float, ratio: float) -> tuple[dict[str, object], dict[str, object]]:
    """Complete results of the harness and of our own workloads, with this multiple for a delegation and this ratio for the journal."""
    samples: dict[str, dict[str, list[dict[str, float]]]] = {}
    for one in draw.MEASURES:
        for peer in ("ours", "floor", "floor_rich"):
            rows = samples.setdefault(one.job, {}).setdefault(peer, [{} for _ in range(5)])
            for row in rows:
                row[one.key] = 10.0 if peer != "ours" else times if one.job == "delegation" else 1.0
    machine = {"system": "Linux", "cpus": 2, "python": "3.11", "started": "2026-11-17T"}
    figures = {"sqlite_cpu_ms": 3.0, "bare_cpu_ms": 1.0, "ratio": 3.0, "on_against_off": ratio}
    cancel = {"ours_wall_ms": 30.0, "bare_wall_ms": 1.0, "ratio": 30.0}
    own: dict[str, object] = {"rounds": 5}
    own |= {
        name: {"what": f"{name}.", **(cancel if name == "cancel" else figures)} for name in draw.WORKLOADS
    }
    return {"samples": samples, "machine": machine, "versions": {}}, own


def written(folder: Path, *data: object) -> list[str]:
    """Files with this data."""
    names = [folder / f"{number}.json" for number in range(len(data))]
    for name, one in zip(names, data, strict=True):
        name.write_text(json.dumps(one), encoding="utf-8")
    return list(map(str, names))


def test_several_runs_are_drawn_with_their_range(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page shows the median, the range, and in how many runs a target was met; missed targets are also printed."""
    runs = [measured(draw, *figures) for figures in [(13.0, 1.9), (14.0, 2.1), (15.5, 1.8)]]
    files = written(tmp_path, *[one for run in runs for one in run])
    monkeypatch.setattr(sys, "argv", ["draw.py", *files])
    draw.main()
    page, said = draw.PAGE.read_text(encoding="utf-8"), capsys.readouterr().out
    assert "| a delegation | 14.0x | 13.0 to 15.5x | <= 15.0x | 2 of 3 | 10.0x |" in page
    assert "on against off 1.90 (1.80 to 2.10) | <= 2 | 2 of 3 |" in page
    assert "a delegation: 13.00 to 15.50x, held in 2 of 3, target <= 15x" in said
    assert "journal, on_against_off: 1.80 to 2.10, held in 2 of 3, target <= 2" in said
    assert "cancel" not in said
    assert "remit 14.0x" in draw.PICTURE.read_text(encoding="utf-8")


def test_incomplete_results_do_not_change_the_page(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Incomplete results are refused with the file and the missing figures; the page stays unchanged."""
    results, own = measured(draw, 13.0, 1.4)
    less = {**own}
    del less["cancel"]
    before = draw.PAGE.read_text(encoding="utf-8")
    for data, words in (
        ((results, less), "1.json lacks figures for cancel."),
        (({**results, "samples": {}}, own), "0.json lacks figures for a turn with one tool"),
        (({**results, "machine": {}}, own), "0.json lacks figures for system, cpus"),
    ):
        monkeypatch.setattr(sys, "argv", ["draw.py", *written(tmp_path, *data)])
        with pytest.raises(SystemExit) as refused:
            draw.main()
        assert words in str(refused.value)
        assert draw.PAGE.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("ratio", [None, 2.004, float("nan")])
def test_a_missing_figure_counts_as_a_missed_target(draw: ModuleType, ratio: float | None) -> None:
    """So does a value that is not a number, or that meets the target only when rounded."""
    own = {"journal": {} if ratio is None else {"on_against_off": ratio}, "cancel": {"ours_wall_ms": 30.0}}
    missed = draw.verdicts([{"delegation": {"ours": [{"x_floor": 10.0}]}}], [own])
    assert any(line.startswith("journal, on_against_off: ") for line in missed)
    assert "a level of nesting: not measured, held in 0 of 0, target <= 12x" in missed
    assert not any(line.startswith(("cancel", "a delegation")) for line in missed)


def test_make_bench_checks_times_before_deleting_results() -> None:
    for times in ("0", "abc", "-1", ""):
        ended = subprocess.run(
            ["make", "-n", "bench", f"TIMES={times}"],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            cwd=BENCHMARKS.parent,
        )
        lines = ended.stdout.splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith(f'case "{times}" in'))
        assert not any(line.startswith("rm ") for line in lines[:at])
        assert _status(lines[at]) == 2
        assert _status(lines[at].replace(f'case "{times}" in', 'case "10" in')) == 0


def _status(line: str) -> int:
    return subprocess.run(["sh", "-c", line], capture_output=True, timeout=50, check=False).returncode


def test_a_blocked_loop_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's thread time between two iterations counts: work in one step is seen, the same work in many steps is not."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    blocking = importlib.import_module("blocking")

    async def busy(steps: int) -> None:
        for _ in range(steps):
            end = time.thread_time() + 0.2 / steps
            while time.thread_time() < end:
                pass
            await asyncio.sleep(0)

    seen: list[float] = []
    for steps in (1, 20):
        watch = blocking.Watch()
        with asyncio.Runner(loop_factory=lambda watch=watch: asyncio.SelectorEventLoop(watch)) as runner:
            runner.run(busy(steps))
        seen.append(watch.cpu)
    assert seen[0] >= 0.2 > seen[1]


def test_a_blocking_case_is_measured_and_its_results_written(tmp_path: Path) -> None:
    """Each case runs in its own process, and its figures are printed and stored."""
    out = tmp_path / "blocking.json"
    code, text = said("blocking.py", "--only", "args_many", "--store", "off", "--out", str(out))
    assert code == 0, text
    assert "status completed  calls 1  good 0" in text
    assert json.loads(out.read_text(encoding="utf-8"))["args_many"]["off"]["cpu_ms"] >= 0


def test_an_unknown_case_is_reported() -> None:
    """It is reported before anything is measured."""
    code, text = said("blocking.py", "--only", "grep,nonsense")
    assert code == 2
    assert "unknown name 'nonsense'; known names: grep, terminal" in text
