"""`read`, `write` and `edit` on ordinary files."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from workbench import Bench

import remit.tools.builtin.files.file_contents as file_contents
import remit.tools.builtin.files.files_read as files_read
import remit.tools.builtin.files.read_write_edit as files
import remit.tools.builtin.folders as folders
from remit.types.messages import ImagePart

pytestmark = pytest.mark.real_time

read, write, edit = files.read, files.write, files.edit
PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)


# --- read ----------------------------------------------------------------------------------------


def test_lines_come_with_numbers(bench: Bench) -> None:
    """Lines are numbered as by `cat -n`, and a final line break does not start another line."""
    bench.file("a.txt", "one\n\n  three\n")
    assert bench.use(read, path="a.txt").content == "     1\tone\n     2\t\n     3\t  three"


def test_a_part_can_be_read(bench: Bench) -> None:
    """offset and limit select lines, and the result says which lines it has and how to continue."""
    bench.file("a.txt", "".join(f"line {i}\n" for i in range(1, 11)))
    assert bench.use(read, path="a.txt", offset=4, limit=2).content == (
        "     4\tline 4\n     5\tline 5\n(Lines 4 to 5 of 10. Continue with offset=6.)"
    )
    assert bench.use(read, path="a.txt", offset=10).content == "    10\tline 10\n(Lines 10 to 10 of 10.)"
    past = bench.use(read, path="a.txt", offset=11)
    assert (past.ok, past.content) == (False, "a.txt has only 10 lines; offset 11 is past the end.")


def test_long_lines_and_long_files_are_truncated_with_a_note(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long lines and long files are truncated, and the result says so."""
    monkeypatch.setattr(files, "MOST_CHARS", 5000)
    bench.file("a.txt", "x" * 3000 + "\n" + "short\n" * 3000)
    text = bench.use(read, path="a.txt").content
    assert "x... (line truncated: it has 3,000 characters)" in text
    assert len(text) < 6000
    assert text.endswith(" of 3001. Continue with offset=" + str(text.count("\n") + 1) + ".)")


def test_an_empty_file_says_so(bench: Bench) -> None:
    """Reading an empty file returns a message, not an empty result."""
    bench.file("a.txt")
    assert bench.use(read, path="a.txt").content == "a.txt is empty."


def test_images_are_shown(bench: Bench) -> None:
    """An image is returned as a part for the model, whatever the file's name."""
    bench.file("pic.dat", PNG)
    result = bench.use(read, path="pic.dat")
    assert result.parts == (ImagePart("image/png", PNG),)
    assert result.content == "pic.dat: an image (image/png, 58 bytes)."


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"%PDF-1.7 text", "a PDF document"),
        (b"PK\x03\x04\0\0", "a ZIP archive or an office document"),
        (b"\x7fELF\0\0", "a program (ELF)"),
        (b"abc\0def", "binary data"),
    ],
)
def test_binary_files_are_refused_by_kind(bench: Bench, data: bytes, what: str) -> None:
    """A binary file is refused with a message that names its kind."""
    bench.file("x", data)
    result = bench.use(read, path="x")
    assert not result.ok
    assert result.content.startswith(f"x is {what} (")


def test_large_files_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file above the limit is refused with both sizes, without being read, even if /proc reports size zero."""
    bench.file("x", "")
    os.truncate(bench.root / "x", 10**12)
    result = bench.use(read, path="x")
    assert result.content == "x is too large: 1.0 TB, and the limit is 10 MB. Use grep to find parts of it."
    monkeypatch.setattr(files, "MOST_IMAGE", 20)
    bench.file("p", PNG)
    assert "is too large" in bench.use(read, path="p").content


def test_text_in_other_encodings(bench: Bench) -> None:
    """Byte order marks, UTF-16, carriage returns and invalid bytes are read, and invalid bytes are reported."""
    for name, data in {
        "bom": b"\xef\xbb\xbfhi\r\n",
        "wide": "hi\n".encode("utf-16"),
        "crlf": b"hi\r\n",
    }.items():
        bench.file(name, data)
        assert bench.use(read, path=name).content == "     1\thi", name
    bench.file("broken", b"caf\xe9\n")
    assert bench.use(read, path="broken").content == (
        "     1\tcaf�\n(The file is not valid UTF-8: invalid bytes are shown as �.)"
    )


def test_a_missing_file_suggests_similar_names(bench: Bench) -> None:
    """The message about a missing path contains similar paths."""
    bench.file("src/Engine.py")
    assert bench.use(read, path="src/engine.py").content == (
        "src/engine.py does not exist. Similar names: src/Engine.py."
    )
    assert (
        bench.use(read, path="scr/Engine.py").content == "The folder scr does not exist. Similar names: src."
    )
    assert bench.use(read, path="src").content == "src is a folder. Use ls to list it."
    assert bench.use(read, path="src/Engine.py/x").content == "src/Engine.py is a file, not a folder."


def test_without_a_workspace_it_is_the_current_directory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a workspace, the current directory is the workspace, and paths cannot leave it."""
    bench.workspace = None
    bench.file("a.txt", "hi\n")
    monkeypatch.chdir(bench.root)
    assert bench.use(read, path="a.txt").ok
    bench.assert_contained(result := bench.use(read, path="../outside/secret.txt"))
    assert not result.ok


# --- write ---------------------------------------------------------------------------------------


def test_a_new_file_is_created(bench: Bench) -> None:
    """A missing file is created; missing folders only with make_folders."""
    assert bench.use(write, path="a.txt", content="hi\n").content == "Created a.txt: 1 line, 3 bytes."
    missing = bench.use(write, path="x/y/a.txt", content="hi")
    assert (missing.ok, missing.content) == (False, "The folder x does not exist.")
    assert bench.use(write, path="x/y/a.txt", content="hi", make_folders=True).ok
    assert (bench.root / "x/y/a.txt").read_text() == "hi"
    assert bench.use(write, path="x", content="hi").content == "x is a folder."


def test_a_file_must_be_read_before_it_is_replaced(bench: Bench) -> None:
    """A run may replace a file only after it has read or written it."""
    bench.file("a.txt", "old\n")
    refused = bench.use(write, path="a.txt", content="new\n")
    assert (refused.ok, refused.content) == (
        False,
        "Not changed: a.txt exists, but you have not read it. Read it first.",
    )
    assert (bench.root / "a.txt").read_text() == "old\n"
    bench.use(read, path="a.txt")
    result = bench.use(write, path="a.txt", content="new\n")
    assert (
        result.content
        == "Replaced a.txt: 1 line, 4 bytes.\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new"
    )
    assert bench.use(write, path="a.txt", content="newer\n").ok


def test_the_mode_is_kept(bench: Bench) -> None:
    """A replaced file keeps its mode, a new file follows the umask, and no temporary file is left."""
    script = bench.file("run.sh", "old")
    script.chmod(0o750)
    bench.use(read, path="run.sh")
    assert bench.use(edit, path="run.sh", old_text="old", new_text="new").ok
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    bench.use(write, path="new", content="x")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((bench.root / "new").stat().st_mode) == 0o666 & ~mask
    assert sorted(p.name for p in bench.root.iterdir()) == ["new", "run.sh"]


def test_a_failed_write_leaves_the_old_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails midway changes nothing and leaves no temporary file."""
    bench.file("a.txt", "old")
    bench.use(read, path="a.txt")

    def full(fd: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "write", full)
    result = bench.use(write, path="a.txt", content="new")
    assert (result.ok, result.content) == (False, "The disk is full; a.txt was not written.")
    assert [(p.name, p.read_text()) for p in bench.root.iterdir()] == [("a.txt", "old")]


def test_readers_never_see_half_a_file(bench: Bench) -> None:
    """A reader during a replacement sees the whole old content or the whole new content."""
    bench.file("a.txt", "a" * 100_000)
    bench.use(read, path="a.txt")
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(
            lambda: [bench.use(write, path="a.txt", content=c * 100_000).ok for c in "bcdefghij" * 3]
        )
        sizes: set[tuple[int, int]] = set()
        while not job.done():
            text = (bench.root / "a.txt").read_text()
            sizes.add((len(text), len(set(text))))
        assert all(job.result())
    assert sizes == {(100_000, 1)}


def test_a_new_file_does_not_replace_one_made_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another process creates between the check and the write is not overwritten."""
    real = folders.FdFolder.open

    def open_late(self: folders.FdFolder, name: str, flags: int, mode: int = 0o600) -> int:
        bench.file("a.txt", "theirs")
        return real(self, name, flags, mode)

    monkeypatch.setattr(folders.FdFolder, "open", open_late)
    result = bench.use(write, path="a.txt", content="mine")
    assert not result.ok
    assert "was created meanwhile" in result.content
    assert [(p.name, p.read_text()) for p in bench.root.iterdir()] == [("a.txt", "theirs")]


def test_file_systems_without_hard_links(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files can be created on file systems without hard links."""

    def unknown(self: folders.FdFolder, old: str, new: str) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(folders.FdFolder, "link", unknown)
    assert bench.use(write, path="a.txt", content="hi").ok
    assert [p.name for p in bench.root.iterdir()] == ["a.txt"]


def test_too_much_is_not_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes and edits have a size limit, checked before anything is written."""
    monkeypatch.setattr(files, "MOST_WRITTEN", 10)
    assert "too large" in bench.use(write, path="a", content="x" * 11).content
    bench.file("b", "0123456789")
    bench.use(read, path="b")
    assert "too large" in bench.use(edit, path="b", old_text="0", new_text="00").content
    assert (bench.root / "b").read_text() == "0123456789"
    assert not (bench.root / "a").exists()


# --- edit ----------------------------------------------------------------------------------------


def test_an_edit_shows_what_changed(bench: Bench) -> None:
    """A unique text is replaced, and the result contains the diff."""
    bench.file("a.py", "one\ntwo\nthree\n")
    bench.use(read, path="a.py")
    result = bench.use(edit, path="a.py", old_text="two", new_text="2")
    assert result.content == "Edited a.py.\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    assert (bench.root / "a.py").read_text() == "one\n2\nthree\n"


def test_an_anchor_must_be_unique(bench: Bench) -> None:
    """Text that occurs more than once is replaced only with replace_all; the message lists the lines."""
    bench.file("a.py", "x = 1\ny = 1\nx = 1\n")
    bench.use(read, path="a.py")
    result = bench.use(edit, path="a.py", old_text="x = 1", new_text="x = 2")
    assert result.content == (
        "Not changed: old_text occurs 2 times in a.py (lines 1, 3). Pass more of the surrounding text, or replace_all."
    )
    result = bench.use(edit, path="a.py", old_text="x = 1", new_text="x = 2", replace_all=True)
    assert result.content.startswith("Edited a.py in 2 places.")
    assert (bench.root / "a.py").read_text() == "x = 2\ny = 1\nx = 2\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("def  f():", "Line 1 is similar, but not the same:\n     1\tdef f():"),
        ("return 1\n", "Line 2 is similar, but the spaces differ"),
        ("zzzzqqqq", "No line resembles its first line"),
    ],
)
def test_text_that_is_not_found_suggests_a_similar_line(bench: Bench, old: str, said: str) -> None:
    """If old_text is not in the file, the message shows the most similar line."""
    bench.file("a.py", "def f():\n    return 1 \n")
    bench.use(read, path="a.py")
    result = bench.use(edit, path="a.py", old_text=old, new_text="x")
    assert not result.ok
    assert said in result.content


def test_edits_keep_bytes_they_do_not_touch(bench: Bench) -> None:
    """Carriage returns, byte order marks and invalid bytes outside the edited text are kept."""
    bench.file("a", b"\xef\xbb\xbfone\r\ntwo\r\ncaf\xe9\r\n")
    bench.use(read, path="a")
    assert bench.use(edit, path="a", old_text="one\ntwo", new_text="1\n2").ok
    assert (bench.root / "a").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\ncaf\xe9\r\n"
    assert "are the same" in bench.use(edit, path="a", old_text="1", new_text="1").content
    assert "is empty" in bench.use(edit, path="a", old_text="", new_text="1").content


def test_large_changes_omit_the_diff(bench: Bench) -> None:
    """A change whose diff would take too long is made, and the result says that it has no diff."""
    lines = [str(i % 320) for i in range(4000)]
    bench.file("a", "\n".join(lines))
    bench.use(read, path="a")
    result = bench.use(write, path="a", content="\n".join(reversed(lines)))
    assert result.ok
    assert result.content.endswith("(No diff: 4,000 lines are too many to compare.)")
    bench.file("b", "\n".join(f"value {i}" for i in range(2000)))
    bench.use(read, path="b")
    result = bench.use(edit, path="b", old_text="value", new_text="x", replace_all=True)
    assert result.content.startswith("Edited b in 2000 places.")
    assert result.content.endswith("more lines of the diff)")


# --- several runs --------------------------------------------------------------------------------


def test_the_second_of_two_writers_is_refused(bench: Bench) -> None:
    """If two runs read a file and both change it, the second is refused, and the message names the first."""
    bench.file("a.txt", "one\ntwo\n")
    for run in ("r.1", "r.2"):
        bench.use_as(run, read, path="a.txt")
    assert bench.use_as("r.1", edit, path="a.txt", old_text="one", new_text="1").ok
    for tool, args in ((edit, {"old_text": "two", "new_text": "2"}), (write, {"content": "mine"})):
        refused = bench.use_as("r.2", tool, path="a.txt", **args)
        assert refused.content == (
            "Not changed: a.txt was changed by lead › r.1 since you read it. Read it again, then decide."
        )
    assert (bench.root / "a.txt").read_text() == "1\ntwo\n"
    bench.use_as("r.2", read, path="a.txt")
    assert bench.use_as("r.2", edit, path="a.txt", old_text="two", new_text="2").ok


def test_a_change_from_elsewhere_is_noticed(bench: Bench) -> None:
    """A change with the same size and time is noticed; a file that was only touched counts as unchanged."""
    place = bench.file("a.txt", "one")
    bench.use(read, path="a.txt")
    times = place.stat()
    place.write_text("two")
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "was changed since you read it" in bench.use(write, path="a.txt", content="x").content
    bench.use(read, path="a.txt")
    place.touch()
    assert bench.use(write, path="a.txt", content="x").ok


def test_one_file_by_two_names_is_one_file(bench: Bench) -> None:
    """A file read through a symlink, `..` or an absolute path may be changed by any of its names."""
    bench.file("d/a.txt", "one")
    (bench.root / "l").symlink_to("d/a.txt")
    bench.use(read, path="l")
    assert bench.use(edit, path=str(Path(bench.root, "d/../d/a.txt")), old_text="one", new_text="1").ok


def test_many_runs_edit_one_file_at_once(bench: Bench) -> None:
    """If many runs change one file at the same time, no change that was reported as made is lost."""
    bench.file("a.txt", "start\n")

    def work(number: int) -> int:
        run, made = f"r.{number}", 0
        for _ in range(200):
            bench.use_as(run, read, path="a.txt")
            line = f"start\n{number}-{made}"
            made += bench.use_as(run, edit, path="a.txt", old_text="start", new_text=line).ok
            if made == 5:
                return made
        return made

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [5, 5, 5, 5]
    lines = (bench.root / "a.txt").read_text().split()
    assert sorted(lines[1:]) == sorted(f"{n}-{m}" for n in range(4) for m in range(5))


def test_a_dropped_entry_requires_another_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of read files is bounded; a run must read a file again after its entry was dropped."""
    monkeypatch.setattr(files_read, "MOST_KEPT", 2)
    for name in "abc":
        bench.file(name, "x")
        bench.use(read, path=name)
    assert "have not read it" in bench.use(write, path="a", content="y").content
    assert bench.use(write, path="c", content="y").ok


def test_the_limit_holds_for_files_that_grow(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows after its size was checked is refused too."""
    bench.file("x", "x" * 100)
    monkeypatch.setattr(file_contents, "read_bytes", lambda fd, most: b"x" * (most + 1))
    assert "too large" in bench.use(read, path="x").content
