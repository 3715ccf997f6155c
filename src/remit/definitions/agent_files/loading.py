"""Agent files -> definitions: `load_agents` for everything a workspace has, `load` for one file or folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from remit.definitions.agent_files.definition import Definition, Draft, Place, as_name
from remit.definitions.agent_files.formats import format_of, name_of
from remit.definitions.agent_files.keys import VOCABULARY, read_keys
from remit.definitions.agent_files.opencode_config import (
    Config,
    places,
    read_agents,
    read_config,
    read_object,
)
from remit.definitions.agent_files.prompt_files import PromptFiles
from remit.definitions.agent_files.roo_modes import read_modes
from remit.definitions.agent_files.search_paths import Folder, agent_folders, endings_of, files_in
from remit.definitions.syntax.frontmatter import take_apart
from remit.definitions.syntax.header_lines import plain_key
from remit.definitions.syntax.nodes import Cause, Hints, Level, Node, Problem, Wrong
from remit.definitions.syntax.text_files import Text, read_text
from remit.definitions.syntax.toml_lines import read_toml
from remit.errors import UsageError
from remit.tools.settings_files import MOST_BYTES, OPENCODE_FILES, ROO_FILE, remember

_PAPERS = frozenset(
    {"readme", "agents", "claude", "gemini", "qwen", "changelog", "contributing", "index", "license"}
)
"""Files beside agents that are agents only if they have front matter."""

_TELLING = frozenset(map(plain_key, ("description", "instructions", "prompt", "developerInstructions")))
"""A TOML file that describes an agent has at least one of these keys."""

_SEVERAL = (*OPENCODE_FILES, ROO_FILE)
"""Files that hold several agents. Such an agent is never named after its file."""

MOST_ALL = 10_000_000
"""Bytes of all agent files: the limit applies once to the project's files and once to the user's."""
MOST_FILES_ALL = 5_000


class Given(NamedTuple):
    """A file or folder of agents that the caller or a setting names."""

    path: Path
    trusted: bool = True
    place: Place = "given"
    """`user` for paths in the user's own settings: the project's agents take precedence over them."""
    root: Path | None = None
    """The project whose settings name the path."""


@dataclass(slots=True)
class Loaded:
    """The agents of a workspace by name, and every problem in their files."""

    agents: dict[str, Definition] = field(default_factory=dict[str, Definition])
    problems: list[Problem] = field(default_factory=list[Problem])
    """Errors (the file was not used), warnings and notes, in file order."""
    hidden: list[Definition] = field(default_factory=list[Definition])
    """Agents that are not used because another agent with the same name takes precedence."""
    _loose: dict[str, Definition] = field(default_factory=dict[str, Definition], repr=False, compare=False)
    _in_loose: int = field(default=0, repr=False, compare=False)

    def find(self, name: str) -> Definition | None:
        """Finds an agent by its name, ignoring case, or by its nickname."""
        if name in self.agents:
            return self.agents[name]
        if self._in_loose != len(self.agents):
            self._in_loose = len(self.agents)
            for found in self.agents.values():
                for called in (found.name, found.nickname or found.name):
                    self._loose.setdefault(_loosely(called), found)
        return self._loose.get(_loosely(name))

    def suggest(self, name: str, hints: Hints | None = None) -> str:
        """A sentence with the probable name, with a leading space."""
        near = (hints or Hints()).suggest(as_name(name), self.agents)
        return near or (
            f" Agents found: {', '.join(sorted(self.agents)[:12])}." if self.agents else " No agents found."
        )

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]

    def add(self, found: Definition) -> None:
        """Adds an agent. The first agent with a name takes precedence."""
        first = self.agents.setdefault(found.name, found)
        self.problems += found.problems
        if first is found:
            return
        self.hidden.append(found)
        same = first.file.parent == found.file.parent
        # A warning, because an untrusted agent replaces the user's own agent of the same name.
        matters = same or (found.trusted and not first.trusted)
        self.problems.append(
            Problem(
                "warning" if matters else "note",
                found.file,
                found.line("name"),
                f"The agent {found.name!r} in {first.file} takes precedence; this one is not used."
                + (" Rename one of them." if same else ""),
                Cause("are not used, because another agent with the same name takes precedence", found.name),
                found.name,
            )
        )


def _loosely(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def load_agents(
    workspace: str | Path,
    *,
    extra: Iterable[str | Path | Given] = (),
    home: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    inline: Iterable[Definition] = (),
    trusted: bool = False,
) -> Loaded:
    """Every agent of a workspace. Never raises for a bad file: `problems` lists the errors.

    `extra` are files and folders that the caller names; they take precedence and are trusted. `inline` are the agents
    of remit.toml; they come next, then the project's files, then the user's. `trusted` says whether the project's files
    may widen permissions.
    """
    environ = os.environ if environ is None else environ
    loaded = Loaded()
    given = [one if isinstance(one, Given) else Given(Path(one)) for one in extra]
    described = list(inline)
    own = Path.home() if home is None else Path(home)
    folders = list(agent_folders(Path(workspace).resolve(), own.resolve(), environ))
    for is_users in (False, True):
        # The project and the user have separate limits, so that a project cannot crowd out the user's files.
        room = _Room()
        for one in given:
            if (one.place == "user") is is_users:
                _add_all(
                    loaded,
                    _given(one, loaded.problems),
                    _Room() if one.trusted else room,
                    trusted=one.trusted,
                )
        for definition in described:
            if (definition.place == "user") is is_users:
                loaded.add(definition)
        for folder in folders:
            if (folder.place == "user") is is_users:
                _add_all(loaded, _found(folder, loaded.problems), room, trusted=trusted or is_users)
    return loaded


def load(path: str | Path, *, trusted: bool = True) -> Loaded:
    """The agents of one file, or of one folder and its subfolders. Raises UsageError if the path does not exist."""
    path = Path(path)
    if not path.exists():
        raise UsageError(f"No file or folder {str(path)!r} to read agents from.")
    loaded = Loaded()
    _add_all(loaded, _given(Given(path, trusted), loaded.problems), _Room(), trusted=trusted)
    return loaded


def _given(given: Given, problems: list[Problem]) -> Iterator[tuple[Path, Folder]]:
    path = given.path
    remember(path)
    inside = None if given.trusted else path.resolve() if path.is_dir() else path.resolve().parent
    folder = Folder(path, given.place, inside, endings_of(path), is_named=True, root=given.root)
    if not path.exists():
        problems.append(Problem("error", path, 0, "No such file or folder."))
    yield from _found(folder, problems)


def _found(folder: Folder, problems: list[Problem]) -> Iterator[tuple[Path, Folder]]:
    """The files of a folder; a file yields itself. Symlinks are included, so that a link out of the project is
    reported.
    """
    if folder.path.is_file() or (folder.is_named and folder.path.exists() and not folder.path.is_dir()):
        yield folder.path, folder
    elif folder.path.is_dir() or folder.path.is_symlink():
        yield from ((file, folder) for file in files_in(folder, problems))


@dataclass(slots=True)
class _Room:
    """How much may still be read."""

    size: int = MOST_ALL
    files: int = MOST_FILES_ALL
    told: bool = False

    configs: dict[Path, Config | None] = field(default_factory=dict["Path", "Config | None"])
    """opencode.json files, which many agents look up."""

    def config(self, path: Path, inside: Path | None) -> Config | None:
        """None if the file is missing or unreadable; the error is reported when the file's own agents are read."""
        if path not in self.configs:
            self.configs[path] = None
            with suppress(Wrong):
                if path.is_file() and self.take(path):
                    self.configs[path] = read_config(read_text(path, inside).text)
        return self.configs[path]

    def take(self, path: Path) -> bool:
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        self.files -= 1
        # A file above the size limit is not read, so it counts 0 bytes.
        self.size -= size if size <= MOST_BYTES else 0
        return self.files >= 0 and self.size >= 0


def _add_all(loaded: Loaded, files: Iterable[tuple[Path, Folder]], room: _Room, *, trusted: bool) -> None:
    for path, folder in files:
        if not room.take(path):
            if not room.told:
                text = (
                    f"There are more than {MOST_FILES_ALL:,} agent files, or more than {MOST_ALL:,} bytes of them;"
                    " this file and the files after it were not read."
                )
                loaded.problems.append(Problem("warning", path, 0, text))
            room.told = True
            return
        for found in _File(path, folder, room, trusted=trusted).read(loaded.problems):
            loaded.add(found)


@dataclass(frozen=True, slots=True)
class _File:
    """One file, with any number of agents."""

    path: Path
    folder: Folder
    room: _Room
    trusted: bool

    def read(self, problems: list[Problem]) -> list[Definition]:
        """The usable agents; errors in the others are added to `problems`."""
        try:
            found = read_text(self.path, None if self.trusted else self.folder.inside)
            drafts = self._drafts(found)
        except Wrong as wrong:
            problems.append(Problem("error", self.path, wrong.line, f"The file {wrong.text}."))
            return []
        made = list[Definition]()
        for draft in drafts:
            definition = None if draft.is_off else self._finished(draft)
            if definition is None or draft.has_errors:
                problems += draft.problems
            else:
                made.append(definition)
        return made

    def _finished(self, draft: Draft) -> Definition:
        is_one_of_several = self.path.name.lower() in _SEVERAL
        called = draft.name.text if draft.name and is_one_of_several else name_of(self.path)
        return draft.finish(called, self.folder.place, trusted=self.trusted)

    def _draft(self) -> Draft:
        prompts = PromptFiles(self.path.parent, self.folder.inside or self.folder.root, self.room.take)
        return Draft(self.path, format_of(self.path), prompts)

    def _drafts(self, found: Text) -> list[Draft]:
        draft, suffix = self._draft(), self.path.suffix.lower()
        for level, line, text in found.told:
            draft.tell(level, line, text)
        if draft.format == "roo":
            return read_modes(found.text, self._draft)
        if self.path.name.lower() in OPENCODE_FILES:
            return read_agents(found.text, self._has_page, self._draft)
        if suffix == ".json":
            # In Kiro, an agent without a list of tools has no tools.
            draft.tools = []
            read_table(draft, read_object(found.text))
        elif suffix == ".toml":
            self._read_toml(draft, found.text)
        else:
            self._read_page(draft, found.text)
        return [draft]

    def _is_prompt(self, draft: Draft) -> bool:
        """Whether a page without front matter is a prompt: Kiro keeps prompts beside the JSON files that name them."""
        return draft.format == "kiro" and any(self.path.parent.glob("*.json"))

    def _has_page(self, name: str) -> bool:
        """Whether an agent in opencode.json also has a Markdown file beside it."""
        folder = self.path.parent
        homes = (folder,) if folder.name in (".opencode", "opencode") else (folder / ".opencode",)
        inner = (home / kind / f"{as_name(name)}.md" for home in homes for kind in ("agents", "agent"))
        return any(path.is_file() for path in inner)

    def _with_config(self, entries: Mapping[str, Node]) -> Mapping[str, Node]:
        """The entries of an agent's Markdown file, with defaults from an opencode.json beside it."""
        for place in places(self.path):
            config = self.room.config(place, None if self.trusted else self.folder.inside)
            entries = entries if config is None else config.under(name_of(self.path), entries)
        return entries

    def _read_toml(self, draft: Draft, text: str) -> None:
        entries = read_toml(text)
        if self.folder.is_named and self.folder.path != self.path and not _describes_an_agent(entries):
            draft.tell("note", 0, "This is not an agent: it has neither instructions nor a description.")
            draft.is_off = True
            return
        read_table(draft, entries)

    def _read_page(self, draft: Draft, text: str) -> None:
        page = take_apart(text, VOCABULARY)
        if not page.has_header and (draft.file.stem.lower() in _PAPERS or self._is_prompt(draft)):
            draft.tell("note", 0, "The file has no front matter, so it was not read as an agent.")
            draft.is_off = True
            return
        if "on" in page.entries:
            draft.tell("note", page.entries["on"].line, "This is a workflow, not an agent; it was ignored.")
            draft.is_off = True
            return
        for level, line, said in page.told:
            draft.tell(level, line, said)
        if not page.has_header and not page.told:
            draft.tell(
                "warning",
                1,
                "The file has no front matter; all of it was read as instructions. Begin with --- and `name:`.",
                Cause("have no front matter: the whole file was read as instructions"),
            )
        if not page.has_header and not page.body:
            draft.tell(
                "error",
                0,
                "The file is empty. Write `name` and `description` between --- lines, and instructions below them.",
            )
        read_keys(draft, self._with_config(page.entries) if draft.format == "opencode" else page.entries)
        draft.instructions.append(page.body)
        draft.check()


def _describes_an_agent(entries: Mapping[str, Node]) -> bool:
    keys = set(map(plain_key, entries))
    return bool(keys & _TELLING)


def read_table(draft: Draft, entries: Mapping[str, Node], *, unknown: Level = "warning") -> None:
    """Read a TOML or JSON table that describes an agent."""
    read_keys(draft, entries, unknown=unknown)
    draft.check()
