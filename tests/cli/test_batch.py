"""`remit batch`: rows from files, results, show, watch, cancel, resume and retry."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from commandbench import Result, _Stream

import remit.cli.exits as exits
from remit import ModelError, Price, Reply, Request, Usage
from remit.batches.records import Progress
from remit.cli.jobs.batch_job import Rate, progress_line
from remit.cli.jobs.batch_rows import read_rows, task_from
from remit.cli.main import main
from remit.errors import UsageError

pytestmark = pytest.mark.real_time


class Echo:
    """Repeats its task; fails for the rows it is told to."""

    name = "echo"
    price = Price(input=1.0, output=1.0)

    def __init__(self) -> None:
        self.bad: set[str] = set()
        self.asked: list[str] = []

    async def reply(self, request: Request, emit: object) -> Reply:
        task = request.messages[0].text
        self.asked.append(task)
        if task in self.bad:
            raise ModelError("key rejected", kind="auth")
        return Reply(f"did {task}", usage=Usage(1, 10, 10, usd=0.001))


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    return f"sqlite:///{tmp_path}/runs.db"


def remit(echo: Echo, *args: str) -> Result:
    out, err = _Stream(), _Stream()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(args), models={"echo": echo})
    return Result(code, out.getvalue(), err.getvalue())


def rows(folder: Path) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"path": f"f{n}.py"}) + "\n" for n in range(1, 5)))
    return str(path)


def run(echo: Echo, journal: str, tmp_path: Path, *more: str) -> Result:
    given = ("--task", "Review {path}", "--model", "echo", "--id", "b", "--journal", journal)
    return remit(echo, "batch", "run", rows(tmp_path), *given, *more)


def test_results_are_json_lines(echo: Echo, journal: str, tmp_path: Path) -> None:
    """Each row is a JSON line on standard output; the summary goes to standard error."""
    code, out, err = run(echo, journal, tmp_path)
    assert code == 0, err
    lines = sorted((json.loads(line) for line in out.splitlines()), key=lambda line: line["number"])
    assert [(one["row"]["path"], one["text"], one["tree"]) for one in lines] == [
        (f"f{n}.py", f"did Review f{n}.py", f"b-{n}") for n in range(1, 5)
    ]
    assert "Batch b: 4 rows (4 completed)" in err
    assert "4 requests, 80 tokens, $0.0040, 0 retries" in err
    again = run(echo, journal, tmp_path, "--out", str(tmp_path / "out.jsonl"), "--quiet")
    assert (again.code, again.out, again.err, len(echo.asked)) == (0, "", "", 4)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4


def test_a_total_stops_and_resume_goes_on(echo: Echo, journal: str, tmp_path: Path) -> None:
    """Rows beyond --total do not run; the same id with a larger total runs the rest, and `resume` uses the last options."""
    given = ("--limits", "requests=2", "--total", "requests=3", "--concurrency", "1")
    code, out, err = run(echo, journal, tmp_path, *given)
    assert code == 1
    assert sorted(json.loads(line)["status"] for line in out.splitlines()) == [
        *("completed", "completed", "not_run", "not_run")
    ]
    assert "2 of 4 rows did not run: request limit reached: 2 of 3" in err
    assert err.endswith(f"Resume: remit batch resume b --journal {journal}\n")
    before = len(echo.asked)
    assert remit(echo, "batch", "resume", "b", "--journal", journal).code == 1
    assert len(echo.asked) == before
    more = ("--limits", "requests=2", "--total", "requests=30")
    assert run(echo, journal, tmp_path, *more).code == 0
    assert sorted(set(echo.asked)) == [f"Review f{n}.py" for n in range(1, 5)]
    assert len(echo.asked) == 4


def test_failed_rows_are_shown_and_retried(echo: Echo, journal: str, tmp_path: Path) -> None:
    """`show --failed` lists the rows that failed with their causes, and `retry` runs only them, as a new batch."""
    echo.bad = {"Review f2.py", "Review f3.py"}
    assert run(echo, journal, tmp_path).code == 1
    said = remit(echo, "batch", "show", "b", "--failed", "--journal", journal).out
    assert "Batch b: 4 rows (2 completed, 2 failed)" in said
    assert "2 x " in said
    assert [line.split()[:3] for line in said.splitlines()[-2:]] == [
        ["2", "failed", "b-2"],
        ["3", "failed", "b-3"],
    ]
    shown = json.loads(remit(echo, "batch", "show", "b", "--json", "--journal", journal).out)
    assert (shown["status"], shown["summary"]["by_status"], len(shown["rows"])) == (
        "completed",
        {"completed": 2, "failed": 2},
        4,
    )
    echo.bad = set()
    echo.asked.clear()
    code, out, _ = remit(echo, "batch", "retry", "b", "--journal", journal)
    assert (code, sorted(echo.asked)) == (0, ["Review f2.py", "Review f3.py"])
    assert {json.loads(line)["tree"] for line in out.splitlines()} == {"b-again1-1", "b-again1-2"}
    assert remit(echo, "batch", "retry", "b-again1", "--journal", journal).code == 1


def test_an_ended_batch_is_watched_and_not_cancelled(echo: Echo, journal: str, tmp_path: Path) -> None:
    """`watch` prints the summary of a batch that has ended; `cancel` says that it has ended."""
    run(echo, journal, tmp_path)
    assert "4/4 rows, 4 ok" in remit(echo, "batch", "watch", "b", "--journal", journal).err
    code, _, err = remit(echo, "batch", "cancel", "b", "--journal", journal)
    assert (code, err) == (exits.FAILED, "The batch 'b' has already ended.\n")
    for verb in ("show", "watch", "cancel", "resume", "retry"):
        code, _, err = remit(echo, "batch", verb, "b-1", "--journal", journal)
        assert (code, "'b-1' is not a batch" in err) == (exits.WRONG_USE, True), verb


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"a": 1}\nnonsense\n', "line 2: not JSON"),
        ("a.jsonl", "[1]\n", "line 1: a row must be an object or a string"),
        ("a.csv", "a,b\n1,2,3\n", "line 2: the row has more or fewer columns"),
        ("a.csv", "a,b\n1\n", "line 2: the row has more or fewer columns"),
    ],
)
def test_wrong_rows(tmp_path: Path, name: str, text: str, words: str) -> None:
    """A row that cannot be read is a UsageError that names the line."""
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=words):
        read_rows(tmp_path / name)
    with pytest.raises(UsageError, match="Cannot read the rows"):
        read_rows(tmp_path / "absent.jsonl")


def test_tasks_from_templates(tmp_path: Path) -> None:
    """A template replaces names of columns, and only those: it cannot reach attributes."""
    (tmp_path / "a.csv").write_text("path,n\nx.py,3\n")
    (row,) = read_rows(tmp_path / "a.csv")
    assert task_from("Review {path} {n} {row.__class__} {}")(row) == "Review x.py 3 {row.__class__} {}"
    assert task_from("Say {row}")("hello") == "Say hello"
    with pytest.raises(
        UsageError, match=r"--task has \{pth\}, but a row has only: path, n. Did you mean 'path'?"
    ):
        task_from("Review {pth}")(row)


def test_the_progress_line() -> None:
    """The line has a bar and counts, and the rate and the estimated end once rows have ended."""
    known = {"ok": 3, "running": 2, "requests": 3, "tokens": 9, "usd": 0.5, "seconds": 2.0}
    rate = Rate()
    first = progress_line(Progress(rows=8, done=4, **known), rate)
    assert first == "[############............] 4/8 rows, 3 ok, 2 running, $0.5000"
    later = progress_line(Progress(rows=8, done=6, **known), rate)
    assert "rows/s, ends in about" in later
