"""The files that remit reads as settings, agents, servers or trust, from any folder of a workspace.

Used by sandboxed commands (`tools/builtin/sandbox/protected_files.py`) and by `write` and `edit`
(`tools/builtin/files/read_write_edit.py`). The readers in `remit.definitions` take the file names from here.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import cast

from remit.tools.bounded_toml import TooLarge, parse
from remit.tools.secret_places import homes

FILE = "remit.toml"
SERVERS_FILE = ".mcp.json"
TABLE_FILE = "pyproject.toml"
"""A settings file only if it mentions the table."""
TABLE = "tool.remit"
AGENT_FOLDERS = (
    ".remit/agents",
    ".claude/agents",
    ".agents/agents",
    ".opencode/agents",
    ".opencode/agent",
    ".qwen/agents",
    ".gemini/agents",
    ".codex/agents",
    ".github/agents",
    ".cursor/agents",
    ".kiro/agents",
)
"""In order of precedence: for each agent name, the first folder that has it wins."""
USER_AGENT_FOLDERS = ("remit/agents", "opencode/agents", "opencode/agent")
"""The same, relative to the user's configuration folder."""
OPENCODE_FILES = ("opencode.json", "opencode.jsonc")
ROO_FILE = ".roomodes"
AGENT_FILES = (*(f"{folder}{name}" for folder in ("", ".opencode/") for name in OPENCODE_FILES), ROO_FILE)
"""Files with several agents each; read after the folders."""
USER_AGENT_FILES = tuple(f"opencode/{name}" for name in OPENCODE_FILES)
KIRO_FOLDER = ".kiro/agents"
KIRO_NAME = "file://"
"""The prefix of a file name in Kiro's agents, for instructions read from a file."""

MOST_BYTES = 1_000_000
"""The largest agent or settings file."""
MOST_IN_FOLDERS = 10_000
"""The most entries of agent folders that are searched for symlinks."""

Parts = tuple[str, ...]

_FILES = frozenset({FILE, SERVERS_FILE, *OPENCODE_FILES, ROO_FILE})
_INNER = {
    outer: frozenset(name.split("/")[1] for name in AGENT_FOLDERS if name.startswith(f"{outer}/"))
    for outer in (name.split("/")[0] for name in AGENT_FOLDERS)
}
NAMES = frozenset({*_FILES, TABLE_FILE, *_INNER})
"""Names, in lower case, of files and folders that may hold settings. Some file systems ignore case."""

_STRING = re.compile(r'"(?:[^"\\\n]++|\\.)*+"')
_OPENCODE_NAME = re.compile(r"\{file:([^{}\n]+)\}")

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_remembered: dict[Path, None] = {}


def remember(path: Path) -> None:
    """Record a file or folder that the user named as a source of agents."""
    with suppress(OSError, RuntimeError):
        _remembered[path.resolve()] = None


def config_folder(home: Path, environ: Mapping[str, str]) -> Path:
    """The user's configuration folder: $XDG_CONFIG_HOME, else ~/.config."""
    given = environ.get("XDG_CONFIG_HOME", "")
    # The XDG standard says to ignore a relative path.
    return Path(given) if Path(given).is_absolute() else home / ".config"


def by_name(path: Path) -> bool:
    """Whether an absolute path is a settings file by its name alone."""
    parts = [part.casefold() for part in path.parts]
    inside = any(inner in _INNER.get(outer, ()) for outer, inner in pairwise(parts))
    return inside or not _FILES.isdisjoint(parts)


def mentions_us(data: bytes) -> bool:
    """Whether a pyproject.toml mentions remit's table, in any encoding that remit reads."""
    return any(TABLE.encode(encoding) in data for encoding in ("utf-8", *_MARKS.values()))


class SettingsFiles:
    """The settings files that remit would read if started in a workspace or in any folder below it."""

    def __init__(self, top: Path, listed: Iterable[tuple[Parts, str]]) -> None:
        """`listed` holds folders, each with an entry of it whose name is in `NAMES`."""
        self.top = top
        self.found: set[Parts] = set()
        """Existing paths that are settings by their names."""
        self.tables: dict[Parts, bytes] = {}
        """Every pyproject.toml without remit's table, and its content."""
        for parts, name in listed:
            self._look(parts, name)

    def _look(self, parts: Parts, name: str) -> None:
        path, lower = self.top.joinpath(*parts, name), name.casefold()
        if lower in _INNER:
            self.found |= {(*parts, name, inner) for inner in _names_in(path, _INNER[lower])}
        elif lower == TABLE_FILE and not mentions_us(data := read_small(path)):
            self.tables[*parts, name] = data
        else:
            self.found.add((*parts, name))

    @cached_property
    def named(self) -> frozenset[Path]:
        """Paths that are settings because something refers to them: agent paths, server programs, symlink targets."""
        files = [self.top.joinpath(*parts) for parts in self.found]
        named = {*_remembered, *_users(self.top), *(path.resolve() for path in files if path.is_symlink())}
        above = _above(self.top)
        # A symlink above the workspace may point into it, and remit follows that symlink when it starts here.
        named |= {place for path in above for place in _place(path.parent, path.name)}
        for path in (*files, *above):
            named |= {*_named_by(path, self.top)}
        folders = [path for path in (*files, *named) if path.is_dir()]
        return frozenset(named.union(_targets(folders)))

    def covers(self, path: Path) -> bool:
        """Whether an absolute path, with symlinks resolved, is a settings file whatever its content."""
        key = _key(path)
        return by_name(path) or any(key[: len(place)] == place for place in map(_key, self.named))

    def is_change(self, path: Path, old: bytes | None, new: bytes) -> bool:
        """Whether writing `new` to a file would change settings; `old` is None for a new file."""
        if self.covers(path):
            return True
        targets = (self.top.joinpath(*parts).resolve() for parts in (*self.tables, *self.found))
        is_table = path.name.casefold() == TABLE_FILE or path in targets
        return is_table and _table(old) != _table(new)


def _key(path: Path) -> Parts:
    return tuple(part.casefold() for part in path.parts)


def _names_in(folder: Path, names: frozenset[str]) -> list[str]:
    """The names that exist in a folder. For a symlink, all of them: its target may change."""
    if folder.is_symlink():
        return list(names)
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.name.casefold() in names]
    return []


def read_small(path: Path) -> bytes:
    """The content of a settings file, truncated after `MOST_BYTES` + 1; empty if it is not a regular file. Never blocks."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return file.read(MOST_BYTES + 1)
    return b""


# --- Paths that settings refer to ------------------------------------------------------------------


def _users(top: Path) -> Iterator[Path]:
    """The user's own settings, agents and trust, and the paths that they and the environment refer to."""
    for home in homes():
        config = config_folder(home, os.environ)
        for name in ("remit", *USER_AGENT_FOLDERS, *USER_AGENT_FILES):
            yield from _place(config, name)
        # People symlink these to a repository with their settings, which may be the workspace.
        for name in AGENT_FOLDERS:
            yield from _place(home, name)
        for name in ("remit/config.toml", *USER_AGENT_FILES):
            yield from _named_by(config / name, top)
        yield from _prompts(home / KIRO_FOLDER)
    for name in os.environ.get("REMIT_AGENTS", "").split(os.pathsep):
        for place in _place(Path.cwd(), name) if name else ():
            yield place
            yield from _prompts_in(place)


def _above(top: Path) -> list[Path]:
    """Settings files and agent folders in the folders above, up to the top of the repository."""
    found: list[Path] = []
    for folder in (top, *top.parents):
        if folder != top:
            names = (FILE, TABLE_FILE, SERVERS_FILE, *AGENT_FOLDERS, *AGENT_FILES)
            found += (folder / name for name in names)
        if (folder / ".git").exists():
            return found
    return []


def _named_by(path: Path, top: Path) -> Iterator[Path]:
    """Agents, prompts and programs that a settings file refers to."""
    yield from _prompts(path)
    if not path.name.casefold().endswith((".toml", ".json")):
        return
    table = _values(path.name.casefold(), read_small(path))
    agents = table.get("agents")
    paths = cast("dict[str, object]", agents).get("paths") if isinstance(agents, dict) else agents
    for name in cast("list[object]", paths) if isinstance(paths, list) else [paths]:
        for place in _place(path.parent, name):
            yield place
            yield from _prompts_in(place)
    for server in _tables(table.get("mcpServers"), _mapping(table.get("mcp")).get("servers")):
        for folder in (top, path.parent):
            yield from _programs(server, folder)


def _prompts(path: Path) -> Iterator[Path]:
    """Files with an agent's instructions that an opencode.json or a Kiro agent refers to."""
    if path.name.casefold() in OPENCODE_FILES or "/".join(path.parts[-2:]).casefold() == KIRO_FOLDER:
        yield from _prompts_in(path)


def _prompts_in(path: Path) -> Iterator[Path]:
    """The same for one JSON file, or for every JSON file in a folder."""
    for file in islice(path.rglob("*.json*"), MOST_IN_FOLDERS) if path.is_dir() else (path,):
        if file.suffix.casefold() in (".json", ".jsonc"):
            for word in named_files(_text(read_small(file))):
                yield from (place for place in _place(file.parent, word) if not by_name(place))


def named_files(text: str) -> Iterator[str]:
    """The files that strings of a JSON document refer to: `{file:./prompt.txt}`, `file://./prompt.md`."""
    for found in _STRING.finditer(text):
        with suppress(ValueError):
            value = str(cast(object, json.loads(found[0], strict=False)))
            yield from _OPENCODE_NAME.findall(value)
            if value.startswith(KIRO_NAME):
                yield value.removeprefix(KIRO_NAME)


def _values(name: str, data: bytes) -> dict[str, object]:
    with suppress(ValueError, RecursionError, TooLarge):
        if name.endswith(".json"):
            return _mapping(cast(object, json.loads(data.decode("utf-8-sig"))))
        found = parse(_text(data))
        return _mapping(_mapping(found.get("tool")).get("remit")) if name == TABLE_FILE else found
    return {}


def _table(data: bytes | None) -> object:
    """remit's table in a pyproject.toml; None if it has none, the raw content if it cannot be parsed."""
    if data is None or not mentions_us(data):
        return None
    with suppress(ValueError, RecursionError, TooLarge):
        return _mapping(_mapping(parse(_text(data)).get("tool")).get("remit"))
    return data


def _text(data: bytes) -> str:
    encoding = _MARKS.get(data[:2])
    return data[2:].decode(encoding, "replace") if encoding else data.decode("utf-8-sig", "replace")


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _tables(*values: object) -> list[dict[str, object]]:
    return [_mapping(inner) for value in values for inner in _mapping(value).values()]


def _programs(server: dict[str, object], folder: Path) -> Iterator[Path]:
    """Files in a server's command line: a command that changed them would change a program run outside the sandbox."""
    args = server.get("args")
    words = [server.get("command"), *(cast("list[object]", args) if isinstance(args, list) else [])]
    for base in _place(folder, server.get("cwd") or "."):
        yield from (path for word in words for path in _place(base, word) if path.is_file())


def _place(folder: Path, name: object) -> list[Path]:
    with suppress(OSError, RuntimeError, ValueError):
        if isinstance(name, str) and name and "\0" not in name:
            return [(folder / Path(name).expanduser()).resolve()]
    return []


def _targets(folders: Iterable[Path]) -> Iterator[Path]:
    """The targets of symlinks in agent folders, and in the folders that these symlinks point to."""
    todo, seen, left = list(folders), set[Path](), MOST_IN_FOLDERS
    while todo and left > 0:
        folder = todo.pop()
        with suppress(OSError, RuntimeError):
            real = folder.resolve()
            if real in seen:
                continue
            seen.add(real)
            with os.scandir(real) as found:
                entries = list(found)
            left -= len(entries)
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path).resolve()
                todo += [Path(entry.path)] if entry.is_dir() else []


def shared_files(places: Iterable[Path]) -> dict[Path, bytes]:
    """Settings files with a second hard link, through which their content can change; and that content."""
    todo, found, left = list(places), dict[Path, bytes](), MOST_IN_FOLDERS
    while todo and left > 0:
        path = todo.pop()
        left -= 1
        with suppress(OSError):
            info = path.lstat()
            if stat.S_ISDIR(info.st_mode):
                todo += [Path(entry) for entry in path.iterdir()]
            elif stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
                found[path] = read_small(path)
    return found
