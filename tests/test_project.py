"""The project's own rules: which room imports which, how long files are, and that documents are correct."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "remit"

# From the bottom up. A room imports from its own floor and the floors below, never from above. A room is a package or a
# module of the root; modules directly in `engine` or `tools` form the room of that name.
FLOORS = {
    "suggestions for misspelt names": "types.spelling",
    "errors": "errors",
    "data": "types events",
    "stopping": "tasks",
    "events to state, and tools": "history tools",
    "agents": "agent agent_checks agent_data patterns survey",
    "budgets": "engine.budget",
    "a live tree": "engine.tree",
    "one run": "engine.run",
    "a tree of runs": "engine.delegation",
    "entry points": "engine",
    "from outside": "remote",
    "many trees": "batches",
    "readers of events": "observe",
    "the page": "observe.page",
    "traces": "observe.otel",
    "the command line": "cli __main__",
}
# Adapters implement ports: only entry points import them, and they import neither the engine nor each other.
ADAPTERS = "stores models definitions testing tools.processes tools.builtin tools.mcp"
ADAPTERS_IMPORT = "errors types types.spelling history tools agent"
ADAPTERS_ALSO = "tasks.threads tasks.semaphore"  # for work that would block the event loop
# Exceptions, each with its reason.
ALSO = {
    "tools.builtin": "tools.processes",  # commands and searches are processes
    "tools.mcp": "tools.processes",  # a server over stdio is a process
    "definitions": "tools.mcp",  # agent files describe servers, and `load_settings()` takes no argument for them
    "types": "observe.display",  # an `Outcome` displays itself: Python looks for methods
    "engine": "stores models observe.display",  # `run(store="path", model="name", show=True)` opens these
    "remote": "stores",  # it reaches a tree through its store
    "batches": "stores",  # `batch(store="sqlite:///runs.db")` opens what it names
    "observe.page": "stores",  # `app("sqlite:///runs.db")` opens what it names
    "cli": "stores models definitions tools.builtin tools.mcp",  # it wires everything
}
FACADES = {"remit", "remit.tools"}
"""Modules that re-export names from floors above them, imported on demand."""


def _allowed() -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    below: set[str] = set()
    for rooms in FLOORS.values():
        below |= set(rooms.split())
        table |= {room: set(below) for room in rooms.split()}
    return table | {adapter: {adapter, *ADAPTERS_IMPORT.split()} for adapter in ADAPTERS.split()}


ALLOWED = _allowed()


def _module(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    """The longest prefix of a module's name that is a room."""
    parts = module.split(".")[1:]
    beginnings = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in beginnings if name in ALLOWED), parts[0] if parts else "")


def _may_import(room: str, target: str) -> bool:
    also = ALSO.get(room, "").split() + (ADAPTERS_ALSO.split() if room in ADAPTERS.split() else [])
    return _room(target) in ALLOWED[room] or f"{target}.".startswith(tuple(f"remit.{name}." for name in also))


MODULES = {_module(path): path for path in sorted(SRC.rglob("*.py"))}
ROOMS = sorted({_room(name) for name in MODULES} - {""})


def _types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _statements(node: ast.AST, *, inside_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if _types_only(child):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        yield child
        yield from _statements(child, inside_functions=inside_functions)


def _known(name: str) -> str:
    """The module that `name` is, or is inside of."""
    return name if name in MODULES else name.rpartition(".")[0]


def imports(source: str, *, inside_functions: bool) -> set[str]:
    """The modules of remit that `source` imports. Imports for types only do not count."""
    found: set[str] = set()
    for node in _statements(ast.parse(source), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {_known(f"{node.module}.{alias.name}") for alias in node.names}
    return {name for name in found if name.split(".")[0] == "remit"}


def _read(name: str) -> str:
    return MODULES[name].read_text(encoding="utf-8")


def test_imports_are_read_from_the_syntax_tree() -> None:
    """An import counts anywhere in a module, except for types only; at import time, imports inside functions do not count."""
    source = (
        "import remit.types.limits as limits\nif TYPE_CHECKING:\n    from remit.engine.run.loop import x\n"
        "def f():\n    import remit.stores.memory\nfrom remit.errors import UsageError\nimport asyncio\n"
    )
    at_import = {"remit.types.limits", "remit.errors"}
    assert imports(source, inside_functions=False) == at_import
    assert imports(source, inside_functions=True) == at_import | {"remit.stores.memory"}


@pytest.mark.parametrize("room", ROOMS)
def test_layers_hold(room: str) -> None:
    """A room imports only from its own floor or below; adapters import only ports and records."""
    assert room in ALLOWED, f"{room!r} is a new room: add it to FLOORS or ADAPTERS in tests/test_project.py"
    for module in (name for name in MODULES if _room(name) == room and name not in FACADES):
        for target in sorted(imports(_read(module), inside_functions=True)):
            assert _may_import(room, target), f"{module} may not import {target}"


def test_no_cycle_at_import_time() -> None:
    """No two modules import each other at import time."""
    graph = {name: imports(_read(name), inside_functions=False) - {name} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        pytest.fail(f"import cycle: {' -> '.join(reversed(cycle))}")


def test_files_are_short() -> None:
    """No file has more than 500 lines, and the loop has at most 300."""
    most = {SRC / "engine/run/loop.py": 300}
    files = (path for folder in ("src", "tests", "examples") for path in (ROOT / folder).rglob("*.py"))
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    too_long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > most.get(path, 500)}
    assert not too_long


def test_import_is_light() -> None:
    """`import remit` imports nothing that is needed only for the first tool, output type or provider."""
    heavy = (
        "pydantic",
        "jsonschema",
        "httpx",
        "hypothesis",
        "sqlite3",
        "psycopg",
        "pydantic_ai",
        "anthropic",
        "opentelemetry",
        "wcmatch",
        "bracex",
    )
    code = f"import sys, remit; print(*[name for name in {heavy!r} if name in sys.modules])"
    env = os.environ | {"PYTHONPATH": str(SRC.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def _makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md", "AGENTS.md"])
def test_make_commands_in_documents_exist(paper: str) -> None:
    """Every `make` command in a document is a target."""
    named = re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / paper).read_text(encoding="utf-8"), re.MULTILINE)
    assert named, f"{paper} has no make command"
    assert set(named) <= _makefile_targets()


def _links(paper: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:)([^)#]+)", paper.read_text(encoding="utf-8"))


def test_links_in_documents_exist() -> None:
    """A relative link in a document names a file that exists."""
    reference = ROOT / "docs" / "reference"  # `make docs` writes these pages and checks the links to them.
    papers = [p for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if reference not in p.parents]
    broken = [
        f"{p.relative_to(ROOT)}: {to}"
        for p in papers
        for to in _links(p)
        if not (p.parent / to).exists() and reference not in (p.parent / to).resolve().parents
    ]
    assert not broken


def test_map_names_what_exists() -> None:
    """Every file or folder that docs/map.md names exists."""
    page = ROOT / "docs" / "map.md"
    if not page.exists():
        pytest.skip("docs/map.md is not written yet")
    named = re.findall(r"`([\w./-]+(?:\.(?:py|md|toml)|/))`", page.read_text(encoding="utf-8"))
    places = (ROOT, SRC, ROOT / "tests", ROOT / "docs")
    assert named, "docs/map.md names no files"
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def _fenced(language: str) -> str:
    block = re.search(
        rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert block, f"README.md has no {language} block"
    return block[1]


def test_the_readme_example_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    """The README's Python runs unchanged and prints the text shown below it."""
    if not (SRC / "engine/handle.py").exists():
        pytest.skip("remit cannot run anything yet")
    exec(compile(_fenced("python"), "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == _fenced("text")


def test_the_ten_lines_of_the_readme_are_ten() -> None:
    """The Python block below the heading "Ten lines" has ten lines."""
    assert "\n## Ten lines\n\n```python\n" in (ROOT / "README.md").read_text("utf-8")
    assert len(_fenced("python").splitlines()) == 10


def test_nothing_names_a_machine() -> None:
    """No file names a package registry or a path of the machine it was written on."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split("\0")
    # Joined here, so that this file does not contain them.
    words = [f"/{folder}/" for folder in ("root", "work")] + [
        f"{host}.{top}" for host, top in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))
    ]
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files
        for word in words
        if word in path.read_text(encoding="utf-8", errors="ignore")
    ]
    assert files
    assert not found


def _make_with(tmp_path: Path, pythons: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    """Run `make test` in a folder where only `pythons` (name to shell script) can be found."""
    make = shutil.which("make")
    if make is None or os.name != "posix":
        pytest.skip("needs make and a POSIX shell")
    project, tools = tmp_path / "a project", tmp_path / "bin"
    project.mkdir()
    tools.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt"):
        shutil.copy(ROOT / name, project / name)
    for name, script in pythons.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    # A clean environment: otherwise MAKEFLAGS of an outer make applies.
    env = {"PATH": str(tools), "LC_ALL": "C"}
    return subprocess.run(
        [make, "test", *args], cwd=project, env=env, capture_output=True, text=True, check=False
    )


OLD = "exec false"
NO_ENSUREPIP = 'case "$2" in *ensurepip*) exit 1;; *print*) echo python3.12-venv;; esac'
GOOD = 'echo "$0 $*" >&2; [ "$1" = -c ]'


def test_make_reports_a_missing_python(tmp_path: Path) -> None:
    """Without a Python that is new enough, make stops and says what it tried and what to do."""
    done = _make_with(tmp_path, {"python3": OLD})
    assert done.returncode != 0
    assert "No Python 3.11 or newer found (tried: python3 " in done.stderr


def test_make_names_the_package_for_venv(tmp_path: Path) -> None:
    """For a Python without ensurepip, as on Debian, make names the missing package."""
    done = _make_with(tmp_path, {"python3": NO_ENSUREPIP})
    assert done.returncode != 0
    assert "apt install python3.12-venv" in done.stderr


def test_make_uses_the_first_suitable_python(tmp_path: Path) -> None:
    """A Python that is too old or cannot create environments is skipped."""
    done = _make_with(tmp_path, {"python3": OLD, "python3.13": NO_ENSUREPIP, "python3.12": GOOD})
    assert "python3.12 -m venv --clear .venv" in done.stderr
    assert "apt install" not in done.stderr


def test_make_uses_only_the_given_python(tmp_path: Path) -> None:
    """PYTHON= is the only one tried, and its path may contain spaces."""
    done = _make_with(tmp_path, {"python3": GOOD, "my python": OLD}, f"PYTHON={tmp_path}/bin/my python")
    assert done.returncode != 0
    assert f"(tried: {tmp_path}/bin/my python)" in done.stderr
