"""The tools `ls` and `glob`, and .gitignore as git reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from workbench import Bench

import remit.tools.builtin.search.ls_glob as listing
from remit.tools.builtin.search.path_patterns import compile_glob, read_ignore

pytestmark = pytest.mark.real_time

ls, glob = listing.ls, listing.glob


def _sample(bench: Bench) -> None:
    bench.file("b.txt", "12345")
    bench.file("a/x.py", "x" * 12_345)
    bench.file("a/deep/er/y.py")
    bench.file(".env", "KEY=1")
    bench.file("out/z.py")
    bench.file(".gitignore", "out/\n")
    (bench.root / "link").symlink_to("a/x.py")


def test_a_folder_is_listed(bench: Bench) -> None:
    """Each line is a name with its kind or size; the last line has the totals and what is not shown."""
    _sample(bench)
    os.mkfifo(bench.root / "pipe")
    assert bench.use(ls).content == (
        "a/\nb.txt  5 bytes\nlink -> a/x.py\nout/\npipe  (FIFO)\n"
        "(.: 2 folders, 1 file, 1 symlink, 1 other, 2 hidden not shown.)"
    )
    assert bench.use(ls, path="a", hidden=True).content == "deep/\nx.py  12 KB\n(a: 1 folder, 1 file.)"


def test_a_tree_has_a_depth(bench: Bench) -> None:
    """depth shows nested levels, indented; ignored folders are listed but not opened."""
    _sample(bench)
    assert bench.use(ls, depth=2).content == (
        "a/\n  deep/\n  x.py  12 KB\nb.txt  5 bytes\nlink -> a/x.py\nout/  (ignored, not opened)\n"
        "(.: 3 folders, 2 files, 1 symlink, 2 hidden not shown.)"
    )
    assert "er/\n      y.py  0 bytes" in bench.use(ls, depth=10**9).content


def test_long_lists_are_truncated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list beyond the limit says how many lines are omitted, and its totals count everything."""
    monkeypatch.setattr(listing, "MOST_ENTRIES", 3)
    for name in "abcde":
        bench.file(name)
    assert bench.use(ls).content == (
        "a  0 bytes\nb  0 bytes\nc  0 bytes\n... 2 more lines; list a smaller folder.\n(.: 5 files.)"
    )


def test_an_empty_folder_and_no_workspace_say_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder is reported as such; without a workspace the list names the current directory."""
    assert bench.use(ls).content == "(.: no entries.)"
    bench.workspace = None
    monkeypatch.chdir(bench.root)
    assert bench.use(ls).content == "(.: no entries. No workspace is set: this is the current directory.)"
    assert bench.use(ls, path="none").content == "none does not exist."


def test_globs_find_files(bench: Bench) -> None:
    """Patterns match paths relative to the searched folder; results are paths relative to the workspace."""
    _sample(bench)

    def found(pattern: str, **args: object) -> list[str]:
        return bench.use(glob, pattern=pattern, **args).content.split("\n")

    assert found("**/*.py") == ["a/deep/er/y.py", "a/x.py"]
    assert found("a/*") == ["a/x.py"]
    assert found("./a/*.{py,js}") == ["a/x.py"]
    assert found("**", path="a/deep") == ["a/deep/er/y.py"]
    assert found("*.py") == ["No file matches *.py in the workspace. To search subfolders too: **/*.py"]
    assert found("**/*.py", ignored=True) == ["a/deep/er/y.py", "a/x.py", "out/z.py"]
    assert found(".*") == [".env", ".gitignore"]
    assert found(str(bench.root / "a" / "*.py")) == ["a/x.py"]


def test_globs_come_in_pages(bench: Bench) -> None:
    """The pages together are the whole result, and each says how to continue."""
    for i in range(5):
        bench.file(f"f{i}")
    assert (
        bench.use(glob, pattern="*", limit=2).content
        == "f0\nf1\n(Files 1 to 2 of 5. Continue with offset=2.)"
    )
    assert bench.use(glob, pattern="*", limit=2, offset=4).content == "f4\n(Files 5 to 5 of 5.)"
    assert "only 5 files" in bench.use(glob, pattern="*", offset=5).content


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", ["a", ".a", "a b"], ["a/b"]),
        ("**/x", ["x", "a/x", "a/b/x"], ["ax", "x/a"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/b/c"]),
        ("?.[ch]", ["a.c", "b.h"], ["ab.c", "/.c", "a.x"]),
        ("[!a-c]x", ["dx"], ["ax", "/x"]),
        ("*.{py,txt}", ["a.py", "b.txt"], ["a.js", "a.py/x"]),
        ("{a,b/*}/c", ["a/c", "b/x/c"], ["b/c"]),
        ("a.b", ["a.b"], ["axb"]),
        ("[a", ["[a"], ["a"]),
        (r"\*", ["*"], ["a"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("*a*b*", ["ab", "xaxbx"], ["ba"]),
        ("x{,.y}", ["x", "x.y"], ["xy"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"], ["b"]),
        ("**/a/**/b", ["a/b", "x/a/y/z/b", "a/a/b"], ["b", "a"]),
        ("a{", ["a{"], ["a"]),
        ("*.{py}", ["a.py"], ["a.{py}"]),
        ("{a.b}/{c}", ["a.b/c"], ["{a.b}/{c}"]),
        ("f{1..3}", ["f1", "f3"], ["f4", "f1..3"]),
        (r"\{a,b\}", ["{a,b}"], ["a", "b"]),
        ("{}", [], ["{}", "a"]),
        ("*.PY", ["a.PY"], ["a.py"]),
        ("[[:digit:]]x", ["1x"], ["ax", "[x"]),
        ("[z-a]", [], ["a", "z", "[z-a]"]),
        ("[a-[:digit:]]", ["a", "-", "7"], ["b"]),
        ("**/.*/x", [".a/x", "b/.a/x"], ["a/x"]),
        ("!(a)", ["!(a)"], ["b"]),
        ("a|b", ["a|b"], ["a", "b"]),
        ("~", ["~"], ["a"]),
    ],
)
def test_the_meaning_of_globs(pattern: str, yes: list[str], no: list[str]) -> None:
    """A star matches within one name, two stars match folders, and the rest is as in a shell."""
    compiled = compile_glob(pattern)
    assert [p for p in yes + no if compiled.matches(p)] == yes


HOSTILE = [
    ("*a" * 60 + "*b", "a" * 250),
    ("?*" * 60 + "b", "a" * 250),
    ("[!b]*" * 60 + "b", "a" * 250),
    ("**/a/" * 50 + "b", "a/" * 99 + "c"),
    ("**/a/" * 6 + "b", "a/" * 99 + "c"),
    ("**/*a*a*a*a*/" * 20 + "b", ("a" * 200 + "/") * 19 + "c"),
    ("{a,aa}" * 6 + "*" * 200 + "b", "a" * 250),
    ("[" * 990 + "b", "a" * 250),
    ("[[:alpha:]" * 90, "a" * 250),
    ("{" * 20 + "b", "a" * 250),
]


@pytest.mark.parametrize(("pattern", "path"), HOSTILE)
def test_no_pattern_takes_forever(pattern: str, path: str) -> None:
    """A glob or a rule made for endless backtracking is matched at once: a match cannot be interrupted."""
    began = time.process_time()
    assert not compile_glob(pattern).matches(path)
    ignore = read_ignore(pattern)
    assert ignore is not None
    assert ignore.judge(path, is_folder=True) is None
    assert time.process_time() - began < 2


@pytest.mark.parametrize("line", ["[" * 990, "[a" * 490, "*a" * 490, "[[:alpha:]" * 90, "x", "**/a*/"])
def test_no_gitignore_takes_forever(bench: Bench, line: str) -> None:
    """The .gitignore of a cloned project is read in bounded time, whatever its rules."""
    bench.file(".gitignore", "".join(f"{line}{n}\n" for n in range(1_000_000 // (len(line) + 6))))
    bench.file("a")
    began = time.process_time()
    assert bench.use(glob, pattern="*").content == "a"
    assert time.process_time() - began < 10


def test_too_many_braces_are_refused(bench: Bench) -> None:
    """Braces that expand to thousands of patterns are refused."""
    for pattern in ("{a,b}" * 20, "{1..999999999}", "{a," * 200 + "}" * 200):
        result = bench.use(glob, pattern=pattern)
        assert (result.ok, "more than 100 patterns" in result.content) == (False, True)


def test_braces_too_deep_are_refused(bench: Bench) -> None:
    """Endlessly nested braces give a message to the model, not an exception."""
    result = bench.use(glob, pattern="{" * 1000)
    assert (result.ok, result.content.endswith("is not a valid glob.")) == (False, True)


RULES: dict[str, dict[str, str]] = {
    "names": {"": "*.o\nbuild\n"},
    "folders only": {"": "build/\nx.o/\n"},
    "from here": {"": "/a\n/b/build\n"},
    "with a slash in the middle": {"": "b/build\na/*.o\n"},
    "negation": {"": "*.o\n!keep.o\n"},
    "negation does not open a folder": {"": "b/\n!b/keep.o\n"},
    "negation inside an open folder": {"": "b/*\n!b/keep.o\n"},
    "nested": {"": "*.o\n", "b": "!*.o\nkeep.o\n"},
    "nested, from there": {"b": "/x.o\nbuild/x.o\n"},
    "nested negation of a folder": {"": "build\n", "b": "!build\n"},
    "two stars": {"": "**/build\na/**\n"},
    "two stars in the middle": {"": "b/**/x.o\n"},
    "two stars at the end": {"": "b/build/**\n"},
    "comments and blanks": {"": "# *.o\n\n  \n\\#x\n*.o   \n"},
    "escapes": {"": "\\!x\nsp\\ ace\ntrail\\ \n"},
    "classes": {"": "[ab]\n[!k]eep.o\nx.[[:alpha:]]\n"},
    "question marks": {"": "?.o\n"},
    "carriage returns": {"": "*.o\r\nbuild\r\n"},
    "later wins": {"": "!x.o\nx.o\nkeep.o\n!keep.o\n"},
    "odd ones": {"": "/\n//\n!\n[\n\\\nb/***\n"},
    "stars inside": {"": "b**d\nk*p.o\n"},
}


@pytest.mark.parametrize("case", RULES)
def test_gitignore_works_as_in_git(bench: Bench, case: str) -> None:
    """For each rule, the found files are those that git would list."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git here to compare with")
    for path in ("x.o", "keep.o", "a/x.o", "a/keep.o", "b/x.o", "b/keep.o", "b/build/x.o", "build/y", "b/c/x.o",
                 "b/c/build/z", "#x", "!x", "sp ace", "trail ", "trail", "d/a", "d/x.o/in", "bd", "b/d/bxd", "c.o"):  # fmt: skip
        bench.file(path, "x")
    for folder, text in RULES[case].items():
        bench.file(f"{folder}/.gitignore".lstrip("/"), text)
    run = [git, "-c", "core.quotePath=off", "-c", f"core.excludesFile={os.devnull}", "-C", str(bench.root)]
    subprocess.run([*run, "init", "-q"], check=True, capture_output=True)
    listed = subprocess.run(
        [*run, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout
    expected = sorted(path for path in listed.split("\0") if path)
    found = bench.use(glob, pattern="**", hidden=True, limit=1000).content.split("\n")
    assert sorted(found) == expected


def test_unreadable_folders_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be opened is counted in the result."""
    bench.file("a/x")
    real = listing.Walk._enter

    def swap(self: listing.Walk, *args: object) -> object:
        shutil.rmtree(bench.root / "a")
        return real(self, *args)  # pyright: ignore[reportArgumentType] - passed on

    monkeypatch.setattr(listing.Walk, "_enter", swap)
    assert bench.use(ls, depth=2).content == "a/\n(.: 1 folder, 1 folder could not be opened.)"


def test_deep_trees_end(bench: Bench) -> None:
    """Folders nested beyond the limit are not opened, and all descriptors are closed."""
    place = bench.root
    for _ in range(150):
        place /= "d"
    place.mkdir(parents=True)
    (place / "x").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert bench.use(glob, pattern="**/x").content.startswith("No file matches")
    assert bench.use(glob, pattern="**", path="d/" * 100).content == "d/" * 150 + "x"
    assert len(list(Path("/proc/self/fd").iterdir())) == before
