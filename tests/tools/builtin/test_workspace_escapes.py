"""Attempts to leave the workspace with a path: each is refused or stays inside."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from workbench import Bench

import remit.tools.builtin.folders as folders
from remit.tools import built_in

TOOLS = built_in()
HOME = Path.home()


def _no_setup(bench: Bench) -> None:
    """The path alone, without symlinks or files."""


def _links(**links: str) -> Callable[[Bench], None]:
    def make(bench: Bench) -> None:
        names = {"BASE": str(bench.base), "ROOT": str(bench.root), "OUT": str(bench.outside)}
        for name, target in links.items():
            (bench.root / name).symlink_to(
                functools.reduce(lambda t, n: t.replace(*n), names.items(), target)
            )

    return make


def _chain(bench: Bench) -> None:
    (bench.root / "l0").symlink_to("../outside/secret.txt")
    for i in range(1, 60):
        (bench.root / f"l{i}").symlink_to(f"l{i - 1}")


def _inner(bench: Bench) -> None:
    (bench.root / "in" / "deep").mkdir(parents=True)
    (bench.root / "in" / "deep" / "up").symlink_to("../../..")


def _twin(bench: Bench) -> None:
    twin = bench.base / "ws-twin"
    twin.mkdir()
    (twin / "secret.txt").write_text("s3cret-outside")


def _folder(bench: Bench) -> None:
    (bench.root / "a").mkdir()


ATTEMPTS: dict[str, tuple[Callable[[Bench], None], str]] = {
    "up": (_no_setup, "../outside/secret.txt"),
    "up twice": (_no_setup, "../../outside/secret.txt"),
    "far up": (_no_setup, "../" * 60 + "etc/passwd"),
    "up after down": (_folder, "a/../../outside/secret.txt"),
    "up with slashes": (_folder, "a/..//..///outside/secret.txt"),
    "up with dots": (_folder, "./a/./.././../outside/./secret.txt"),
    "up and a dot at the end": (_no_setup, "../outside/secret.txt/."),
    "up and back in": (_no_setup, "../ws/../outside/secret.txt"),
    "up through what is missing": (_no_setup, "none/../../outside/secret.txt"),
    "absolute": (_no_setup, "OUT/secret.txt"),
    "absolute with two slashes": (_no_setup, "/OUT/secret.txt"),
    "absolute, through the root": (_no_setup, "ROOT/../outside/secret.txt"),
    "absolute, a name that begins like the root": (_twin, "ROOT-twin/secret.txt"),
    "up, a name that begins like the root": (_twin, "../ws-twin/secret.txt"),
    "the root in capitals": (_no_setup, "ROOT/../OUTSIDE/secret.txt"),
    "system file": (_no_setup, "/etc/passwd"),
    "home": (_no_setup, "~/secret.txt"),
    "home of root": (_no_setup, "~root/.profile"),
    "home alone": (_no_setup, "~"),
    "home and up": (_no_setup, "~/../outside/secret.txt"),
    "file URL": (_no_setup, "file://OUT/secret.txt"),
    "file URL with one slash": (_no_setup, "file:OUT/secret.txt"),
    "file URL in capitals": (_no_setup, "FILE://localhostOUT/secret.txt"),
    "percent": (_no_setup, "%2e%2e/outside/secret.txt"),
    "backslashes": (_no_setup, "..\\outside\\secret.txt"),
    "wide dots": (_no_setup, "．．/outside/secret.txt"),
    "a leader instead of dots": (_no_setup, "‥/outside/secret.txt"),
    "space before": (_no_setup, " ../outside/secret.txt"),
    "space after": (_no_setup, ".. /outside/secret.txt"),
    "line break": (_no_setup, "..\n/outside/secret.txt"),
    "NUL": (_no_setup, "a\0/../../outside/secret.txt"),
    "NUL at the end": (_no_setup, "../outside/secret.txt\0.md"),
    "link to a file": (_links(x="OUT/secret.txt"), "x"),
    "relative link to a file": (_links(x="../outside/secret.txt"), "x"),
    "link with a slash at the end": (_links(x="OUT/secret.txt"), "x/"),
    "link to a folder": (_links(d="OUT"), "d/secret.txt"),
    "relative link to a folder": (_links(d="../outside"), "d/secret.txt"),
    "link to the folder above": (_links(d=".."), "d/outside/secret.txt"),
    "link to the top": (_links(d="/"), "d/etc/passwd"),
    "link to a link": (_links(a="b", b="OUT/secret.txt"), "a"),
    "link to a folder link": (_links(a="b", b="OUT"), "a/secret.txt"),
    "link through the root and up": (_links(x="ROOT/../outside/secret.txt"), "x"),
    "link that climbs in the middle": (_inner, "in/deep/up/outside/secret.txt"),
    "up after a link": (_links(d="OUT"), "d/../secret.txt"),
    "up after a link inside": (_inner, "in/deep/up/../outside/secret.txt"),
    "link to nothing outside": (_links(x="OUT/new.txt"), "x"),
    "link to nothing in a folder outside": (_links(d="OUT/none"), "d/new.txt"),
    "circle": (_links(a="b", b="a"), "a"),
    "circle of one": (_links(a="a"), "a/secret.txt"),
    "circle of folders": (_links(a="a/a/a"), "a"),
    "long chain": (_chain, "l59"),
    "link to /proc": (_links(p="/proc/self"), "p/environ"),
    "link to the process's root": (_links(p="/proc/self/root"), "p/etc/passwd"),
    "link to a descriptor": (_links(p="/proc/self/fd"), "p/0"),
    "/proc": (_no_setup, "/proc/self/environ"),
    "/proc, the current directory": (_no_setup, "/proc/self/cwd/../outside/secret.txt"),
    "/dev/stdin": (_no_setup, "/dev/stdin"),
    "a descriptor": (_no_setup, "/dev/fd/0"),
    "link to a device": (_links(z="/dev/zero"), "z"),
    "long name": (_no_setup, "n" * 300),
    "long path": (_folder, "a/../" * 1000 + "../outside/secret.txt"),
    "many folders": (_no_setup, "n/" * 250 + "x"),
}
CALLS: dict[str, dict[str, object]] = {
    "read": {},
    "write": {"content": "overwritten", "make_folders": True},
    "edit": {"old_text": "s3cret-outside", "new_text": "overwritten"},
    "ls": {},
    "glob": {"pattern": "**"},
    "grep": {"pattern": "."},
}
STAY_INSIDE = {
    "percent", "backslashes", "wide dots", "a leader instead of dots", "space before", "space after", "line break",
}  # fmt: skip
"""Names that only look like escapes: a file with such a name inside is allowed."""


def _path(bench: Bench, path: str) -> str:
    return path.replace("ROOT", str(bench.root)).replace("OUT", str(bench.outside))


@pytest.mark.real_time
@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_path_leads_outside(bench: Bench, attempt: str, tool: str) -> None:
    """Every such path is refused with a message, and nothing outside is read, listed or changed."""
    setup, path = ATTEMPTS[attempt]
    setup(bench)
    result = bench.use(TOOLS[tool], path=_path(bench, path), **CALLS[tool])
    bench.assert_contained(result)
    assert "Error" not in result.content, "an exception is not an answer"
    if not (tool == "write" and attempt in STAY_INSIDE):
        assert not result.ok


@pytest.mark.real_time
@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("folder", ["d", "d/", "d/.", "./d", "d/sub/.."])
def test_folders_that_are_symlinks_are_not_listed(bench: Bench, tool: str, folder: str) -> None:
    """A symlink to a folder outside cannot be used as a folder of the workspace."""
    (bench.outside / "sub").mkdir()
    bench.before = bench.snapshot()
    (bench.root / "d").symlink_to(bench.outside)
    result = bench.use(TOOLS[tool], path=folder, **CALLS[tool])
    bench.assert_contained(result)
    assert not result.ok
    assert "outside the workspace" in result.content


@pytest.mark.real_time
@pytest.mark.parametrize(
    "pattern",
    ["../*", "../../**", "/etc/*", "OUT/*", "d/*", "**/secret*", "{../outside/*,x}", "d/../../outside/*"],
)
def test_no_glob_leads_outside(bench: Bench, pattern: str) -> None:
    """A pattern finds only files of the workspace; symlinks to folders are not followed."""
    (bench.root / "d").symlink_to(bench.outside)
    bench.file("in.txt", "in")
    found = bench.use(TOOLS["glob"], pattern=_path(bench, pattern))
    bench.assert_contained(found)
    assert not found.ok or "No file" in found.content
    bench.assert_contained(bench.use(TOOLS["grep"], pattern=".", glob=_path(bench, pattern)))


@pytest.mark.real_time
def test_walks_do_not_follow_symlinks(bench: Bench) -> None:
    """grep, glob and ls do not open the files or folders that symlinks point to."""
    bench.file("a/in.txt", "inside")
    (bench.root / "a" / "f").symlink_to(bench.outside / "secret.txt")
    (bench.root / "a" / "d").symlink_to(bench.outside)
    (bench.root / ".gitignore").symlink_to(bench.outside / "secret.txt")
    lines = bench.use(TOOLS["grep"], pattern=".", hidden=True)
    paths = bench.use(TOOLS["glob"], pattern="**", hidden=True)
    tree = bench.use(TOOLS["ls"], depth=5, hidden=True)
    bench.assert_contained(lines, paths, tree)
    assert lines.content == "a/in.txt:1:inside"
    assert "d/secret" not in paths.content
    assert tree.content.count("secret.txt") == 2, "only as the words of the two links"


@pytest.mark.real_time
@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("what", ["fifo", "socket", "device"])
def test_special_files_never_block(bench: Bench, tool: str, what: str) -> None:
    """A FIFO, a socket or a device is refused at once, without blocking."""
    place = bench.root / "x"
    server = socket.socket(socket.AF_UNIX)
    if what == "fifo":
        os.mkfifo(place)
    elif what == "socket":
        before = Path.cwd()
        os.chdir(bench.root)  # Socket paths have a small maximum length.
        try:
            server.bind("x")
        finally:
            os.chdir(before)
    else:
        try:
            os.mknod(place, 0o600 | 0o020000, os.makedev(1, 5))
        except OSError:
            pytest.skip("only root makes devices")
    try:
        result = bench.use(TOOLS[tool], path="x", **CALLS[tool])
    finally:
        server.close()
    assert not result.ok
    assert {"fifo": "FIFO", "socket": "socket", "device": "device"}[what] in result.content
    assert bench.use(TOOLS["grep"], pattern=".").content.startswith("No line matches")


@pytest.mark.real_time
def test_symlinks_that_stay_inside_are_followed(bench: Bench) -> None:
    """A symlink that stays inside is followed, absolute or relative, also by writes, and remains a symlink."""
    bench.file("a/b/in.txt", "inside\n")
    (bench.root / "rel").symlink_to("a/b/in.txt")
    (bench.root / "abs").symlink_to(bench.root / "a" / "b" / "in.txt")
    (bench.root / "dir").symlink_to("a/b")
    (bench.root / "a" / "b" / "up").symlink_to("../../a")
    (bench.root / "new").symlink_to("a/made.txt")
    for path in (
        "rel",
        "abs",
        "dir/in.txt",
        "a/b/up/b/in.txt",
        str(bench.root / "rel"),
        "a/../dir/../b/in.txt",
    ):
        assert bench.use(TOOLS["read"], path=path).content == "     1\tinside", path
    assert bench.use(TOOLS["edit"], path="dir/in.txt", old_text="inside", new_text="changed").ok
    assert bench.use(TOOLS["write"], path="new", content="made").ok
    assert (bench.root / "a" / "b" / "in.txt").read_text() == "changed\n"
    assert (bench.root / "a" / "made.txt").read_text() == "made"
    assert (bench.root / "new").is_symlink()
    assert (bench.root / "rel").is_symlink()


@pytest.mark.real_time
def test_hard_links_are_broken_not_written_through(bench: Bench) -> None:
    """A hard link to a file outside can be read; writing replaces it with a new file."""
    (bench.root / "x").hardlink_to(bench.outside / "secret.txt")
    assert bench.use(TOOLS["read"], path="x").ok
    assert bench.use(TOOLS["write"], path="x", content="new").ok
    assert (bench.root / "x").read_text() == "new"
    assert bench.snapshot() == bench.before


@pytest.mark.real_time
@pytest.mark.parametrize(
    "name", ["ro\nbad\t", "-rf", "$(touch x)", "'\"", "*", "~tilde.txt", "a\\b", "é", "con:x", "..."]
)
def test_odd_names_are_ordinary_names(bench: Bench, name: str) -> None:
    """A file with an odd name can be written, read and found, and its name never breaks a line of output."""
    assert bench.use(TOOLS["write"], path=name, content="needle\n").ok
    assert (bench.root / name).read_text() == "needle\n"
    assert bench.use(TOOLS["read"], path=name).content == "     1\tneedle"
    hidden = name.startswith(".")
    assert len(bench.use(TOOLS["grep"], pattern="needle", hidden=hidden).content.splitlines()) == 1
    assert len(bench.use(TOOLS["glob"], pattern="*", hidden=hidden).content.splitlines()) == 1
    assert len(bench.use(TOOLS["ls"], hidden=hidden).content.splitlines()) == 2


@pytest.mark.real_time
@pytest.mark.parametrize("tool", ["read", "write"])
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_systems_without_folder_descriptors_refuse_escapes_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, attempt: str, tool: str
) -> None:
    """Without folder descriptors, every attempt that does not swap files meanwhile is still refused."""
    monkeypatch.setattr(folders, "HAS_DIR_FD", False)
    test_no_path_leads_outside(bench, attempt, tool)
