"""The tool `grep`, with ripgrep and with Python's engine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workbench import Bench

import remit.tools.builtin.search.grep as searching
import remit.tools.builtin.search.grep_engines as grep_engines
from remit.tools.builtin.search.regex_dialect import read_pattern
from remit.tools.result import ToolResult
from remit.tools.words import Refused

pytestmark = pytest.mark.real_time

grep = searching.grep
NONE = "no ripgrep here: only Python's engine is tried"


@pytest.fixture(params=["python", "ripgrep"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that searches."""
    if request.param == "python":
        monkeypatch.setattr(grep_engines, "find_ripgrep", lambda: "")
    elif not grep_engines.find_ripgrep():
        pytest.skip(NONE)
    return str(request.param)


def _both(monkeypatch: pytest.MonkeyPatch, call: Callable[[], ToolResult]) -> tuple[ToolResult, ToolResult]:
    if not grep_engines.find_ripgrep():
        pytest.skip(NONE)
    fast = call()
    with monkeypatch.context() as patch:
        patch.setattr(grep_engines, "find_ripgrep", lambda: "")
        return fast, call()


def _sample(bench: Bench) -> None:
    bench.file("a.py", "import os\n\ndef f(x):\n    return x.y\n\ndef g():\n    pass\n")
    bench.file("b/c.py", "class Fine:\n    def F(self): ...\n")
    bench.file("b/d.txt", "café naïve\nʇɹǝʌuı FFF fff ﬀ\n tab\there\r\nno end")
    bench.file("b/long.txt", "x" * 3000 + " needle\nneedle\n")
    bench.file("bom.txt", b"\xef\xbb\xbfimport this\n")
    bench.file("wide.txt", "import that\n".encode("utf-16"))
    bench.file("broken.txt", b"import caf\xe9\n")
    bench.file("bin.dat", b"import\0os\n")
    bench.file("empty.txt", "")
    bench.file(".hidden/h.py", "import hidden\n")
    bench.file("out/o.py", "import out\n")
    bench.file(".gitignore", "out/\n*.tmp\n!keep.tmp\n")
    bench.file("x.tmp", "import tmp\n")
    bench.file("keep.tmp", "import keep\n")
    bench.file("combining.txt", "é e\u0301 ٣ a\u00a0b K\n")


CASES: dict[str, dict[str, object]] = {
    "a word": {"pattern": "import"},
    "a class of characters": {"pattern": r"def \w+\("},
    "the start": {"pattern": "^import"},
    "the end": {"pattern": "end$"},
    "an empty line": {"pattern": "^$"},
    "everything": {"pattern": ".", "limit": 1000},
    "nothing": {"pattern": "zzz"},
    "ignoring case": {"pattern": "fff", "ignore_case": True},
    "ignoring case beyond ASCII": {"pattern": "CAFÉ|k", "ignore_case": True},
    "word boundaries": {"pattern": r"\be\b"},
    "words": {"pattern": r"\w\w"},
    "digits": {"pattern": r"\d"},
    "spaces": {"pattern": r"a\sb|tab\shere$"},
    "no spaces": {"pattern": r"^\S+$"},
    "beyond ASCII": {"pattern": "ï|ʇ"},
    "any character beyond ASCII": {"pattern": "caf.$"},
    "a repetition": {"pattern": r"x{20,} n"},
    "a lazy one": {"pattern": r"d.*?f"},
    "a possessive one": {"pattern": r"x++x"},
    "a lookbehind": {"pattern": r"(?<=import )os"},
    "a backreference": {"pattern": r"(f)\1"},
    "a named group": {"pattern": r"(?P<a>f)f"},
    "an escape that differs": {"pattern": r"\<os"},
    "a literal brace": {"pattern": "{"},
    "a class with a bracket": {"pattern": r"[\[\](]"},
    "a negated class": {"pattern": r"[^a-z :.\n]"},
    "an alternative": {"pattern": "os|this|that"},
    "a carriage return": {"pattern": "here$"},
    "context": {"pattern": "def", "context": 1},
    "wide context": {"pattern": "def|class", "context": 20},
    "names": {"pattern": "import", "mode": "files"},
    "numbers": {"pattern": "e", "mode": "count"},
    "a page": {"pattern": "e", "offset": 2, "limit": 3},
    "a page with context": {"pattern": "e", "offset": 1, "limit": 2, "context": 1},
    "past the end": {"pattern": "import", "offset": 1000},
    "a folder": {"pattern": "e", "path": "b"},
    "a file": {"pattern": "e", "path": "a.py"},
    "an ignored folder, named": {"pattern": "import", "path": "out"},
    "an ignored file, named": {"pattern": "import", "path": "x.tmp"},
    "hidden": {"pattern": "import", "hidden": True},
    "ignored": {"pattern": "import", "ignored": True},
    "a glob": {"pattern": "e", "glob": "*.py"},
    "a glob with folders": {"pattern": "e", "glob": "b/*.txt"},
    "a glob with braces": {"pattern": "e", "glob": "*.{py,tmp}"},
    "a negated glob": {"pattern": "e", "glob": "!*.txt"},
    "not a pattern": {"pattern": "(", "path": "b"},
    "a nested class": {"pattern": "[[:alpha:]]"},
    "a binary file, named": {"pattern": "import", "path": "bin.dat"},
    "a missing file": {"pattern": "import", "path": "none"},
}


@pytest.mark.parametrize("case", CASES)
def test_both_engines_give_the_same_result(bench: Bench, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """The whole result is the same with either engine."""
    _sample(bench)
    fast, plain = _both(monkeypatch, lambda: bench.use(grep, **CASES[case]))
    assert fast == plain


ALPHABET = ["a", "b", "A", "é", "٣", " ", "_", r"\w", r"\b", r"\d", r"\s", r"\W", ".", "^", "$", "|", "*", "+", "?", "{1,2}", "(", ")",
            "[ab]", "[^a]", "[a-z]", r"\.", r"\<", "{", "}", "++", "(?i)", "[", "]", "-", r"\Z", r"\n", "&&", "#", "/", "~"]  # fmt: skip


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    pattern=st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=6).map("".join),
    text=st.text("aAbB_.\r\n{}<", max_size=40) | st.text("aAbB é٣_.\r\n{}<\u0301K", max_size=40),
    ignore_case=st.booleans(),
)
def test_any_pattern_means_the_same_to_both(pattern: str, text: str, ignore_case: bool) -> None:
    """Every pattern that is given to ripgrep finds the same lines as in Python."""
    program = grep_engines.find_ripgrep()
    if not program:
        pytest.skip(NONE)
    try:
        wanted = read_pattern(pattern, ignore_case=ignore_case)
    except Refused:
        return
    data = text.replace("\r\n", "\n").encode()
    if (
        not wanted.shared
        or (wanted.needs_tables and not data.isascii())
        or not grep_engines.accepts(program, wanted)
    ):
        return
    found: list[list[tuple[int, int]]] = []
    for command in (grep_engines.ripgrep_command(program, wanted), grep_engines.python_command(wanted, 5)):
        made = grep_engines.Engine(command)
        made.feed(0, data)
        made.finish()
        found.append(list(made.matches()))
        made.close()
    assert found[0] == found[1]


def test_lines_are_shown_with_their_place(bench: Bench, engine: str) -> None:
    """A match shows path, number and line; context lines have dashes, and groups are separated."""
    _sample(bench)
    assert bench.use(grep, pattern=r"def \w\(", context=1, path="a.py").content == (
        "a.py-2-\na.py:3:def f(x):\na.py-4-    return x.y\na.py-5-\na.py:6:def g():\na.py-7-    pass"
    )
    assert bench.use(grep, pattern="os|self", context=1).content == (
        "a.py:1:import os\na.py-2-\n--\nb/c.py-1-class Fine:\nb/c.py:2:    def F(self): ..."
    )


def test_what_is_searched(bench: Bench, engine: str) -> None:
    """Hidden, ignored and binary files are skipped; a file given by name is searched; encodings are supported."""
    _sample(bench)
    names = bench.use(grep, pattern="import", mode="files").content.split("\n")
    assert names == ["a.py", "bom.txt", "broken.txt", "keep.tmp", "wide.txt"]
    assert bench.use(grep, pattern="import", path="out").content == "out/o.py:1:import out"
    assert bench.use(grep, pattern="import", path=".hidden").content == ".hidden/h.py:1:import hidden"
    everything = bench.use(grep, pattern="import", mode="files", hidden=True, ignored=True).content.split(
        "\n"
    )
    assert set(everything) - set(names) == {".hidden/h.py", "out/o.py", "x.tmp"}
    assert bench.use(grep, pattern="import", path="bin.dat").content == "bin.dat is binary data, not text."


def test_results_come_in_pages(bench: Bench, engine: str) -> None:
    """The pages together are the whole result, and each says how to continue; a file may span two pages."""
    for name in "abc":
        bench.file(name, "hit\nmiss\n" * 5)
    pages: list[str] = []
    offset = 0
    while True:
        *lines, footer = bench.use(grep, pattern="hit", offset=offset, limit=4).content.split("\n")
        pages += lines
        if "Continue" not in footer:
            assert footer == "(Matches 13 to 15 of 15.)"
            break
        offset = int(footer.split("offset=")[1].rstrip(".)"))
    assert pages == [f"{name}:{n}:hit" for name in "abc" for n in (1, 3, 5, 7, 9)]
    past = bench.use(grep, pattern="hit", offset=15)
    assert (past.ok, past.content) == (False, "There are only 15 matches; offset 15 is past the end.")


def test_output_is_bounded(bench: Bench, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lines are truncated, and pages and matches are limited; each limit is reported."""
    monkeypatch.setattr(searching, "MOST_CHARS", 3000)
    bench.file("min.js", ("x" * 100_000 + "\n") * 20)
    text = bench.use(grep, pattern="x", limit=1000).content
    assert len(text) < 5000
    assert "... (line truncated: it has 100,000 characters)" in text
    assert text.endswith("of 20. Continue with offset=6.)")
    bench.file("many", "y\n" * (grep_engines.MOST_MATCHES + 50))
    full = bench.use(grep, pattern="y", mode="count").content
    assert full == "many:10000\n(Stopped after 10,000 matches. Use a narrower pattern, path or glob.)"


def test_large_and_unreadable_files_are_counted(
    bench: Bench, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result counts the files that could not be searched."""
    monkeypatch.setattr(searching, "MOST_BYTES", 100)
    bench.file("large", "hit\n" * 100)
    bench.file("small", "hit\n")
    assert bench.use(grep, pattern="hit").content == "small:1:hit\n(1 file over 100 bytes not searched.)"


CATASTROPHE = "a" * 40 + "!\n"


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*$", r"(?=(a+)+$)", r"(a*)*\1$"])
def test_catastrophic_patterns_are_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """A pattern with catastrophic backtracking is stopped, reports it, and leaves no process."""
    monkeypatch.setattr(grep_engines, "find_ripgrep", lambda: "")
    monkeypatch.setattr(searching, "SECONDS", 0.4)
    bench.file("a", "aaa hit\n")
    bench.file("b", CATASTROPHE)
    before = _children()
    result = bench.use(grep, pattern=pattern)
    assert "Incomplete: the search was stopped; its limit is 0.4 s." in result.content
    assert _children() <= before


def test_ripgrep_has_no_catastrophes(bench: Bench) -> None:
    """ripgrep, which does not backtrack, answers the same pattern."""
    if not grep_engines.find_ripgrep():
        pytest.skip(NONE)
    bench.file("b", CATASTROPHE + "aaa\n")
    assert bench.use(grep, pattern=r"(a+)+$").content == "b:2:aaa"


def test_a_cancelled_search_stops(bench: Bench, engine: str) -> None:
    """A search ends when its run is cancelled, in the middle of a match or of a walk, and leaves no process."""
    bench.file("b", CATASTROPHE)
    before = _children()
    stop = threading.Event()
    bench.cancelled = stop.is_set
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    result = bench.use(grep, pattern=r"(a+)+\Z")
    assert (result.ok, result.content) == (False, "Search stopped: the run was cancelled.")
    assert time.monotonic() - began < searching.SECONDS
    assert _children() <= before


def _children() -> set[str]:
    """The child processes of this process, including zombies."""
    me = str(os.getpid())
    found: set[str] = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == me:
            found.add(place.name)
    return found


def test_an_engine_that_dies_is_not_an_empty_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the search process is killed from outside, the result is not 'no line matches'."""
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(grep_engines, "find_ripgrep", lambda: "")
    monkeypatch.setattr(grep_engines, "python_command", lambda pattern, seconds: command)
    bench.file("a", "hit\n")
    result = bench.use(grep, pattern="hit")
    assert not result.ok
    assert "No match before the search was stopped." in result.content


def test_an_engine_without_its_parent_ends(bench: Bench) -> None:
    """The Python engine has a CPU limit, so that it ends even if its parent is gone."""
    wanted = read_pattern(r"(a+)+\Z", ignore_case=False)
    command = grep_engines.python_command(wanted, -1)
    done = subprocess.run(command, input=CATASTROPHE.encode(), capture_output=True, timeout=60, check=False)
    assert done.returncode < 0


def test_programs_that_only_look_like_ripgrep_are_not_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program named rg that does something else, or is in the current directory, is not used."""
    fake = bench.file("rg", "#!/bin/sh\necho ripgrep 99\n")
    fake.chmod(0o755)
    monkeypatch.chdir(bench.root)
    monkeypatch.setattr(grep_engines.sysconfig, "get_path", lambda name: str(bench.root))
    for path in (str(bench.root), "."):
        monkeypatch.setenv("PATH", path)
        assert grep_engines.find_ripgrep.__wrapped__() == ""


def test_user_settings_do_not_change_results(
    bench: Bench, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's settings for ripgrep or Python do not change a result."""
    config = bench.file(".rgrc", "--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    monkeypatch.setenv("PYTHONSTARTUP", str(config))
    monkeypatch.setenv("PYTHONPATH", str(bench.root))
    bench.file("re.py", "raise SystemExit(9)\n")
    bench.file("a", "hit\nmiss\n")
    assert bench.use(grep, pattern="hit").content == "a:1:hit"


@pytest.mark.parametrize(
    "pattern", ["", "(", "[z-a]", "a{2,1}", "*", "a\nb", "a\0b", "x" * 1001, "(" * 500, "[[a]", "[a&&b]"]
)
def test_bad_patterns_are_explained(bench: Bench, engine: str, pattern: str) -> None:
    """An invalid pattern gives a short message, not an exception."""
    bench.file("a", "hit\n")
    result = bench.use(grep, pattern=pattern)
    assert not result.ok
    assert "Error" not in result.content
    assert len(result.content) < 1500
