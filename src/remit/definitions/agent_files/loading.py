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
"""Files that lie beside agents and are none, unless they have front matter."""

_TELLING = frozenset(map(plain_key, ("description", "instructions", "prompt", "developerInstructions")))
"""Keys of which a TOML file has one if it describes an agent."""

_SEVERAL = (*OPENCODE_FILES, ROO_FILE)
"""Files with several agents, none of which is called after the file."""

MOST_ALL = 10_000_000
"""Bytes of all agent files of a project, and as many of the user's; no collection of agents has more."""
MOST_FILES_ALL = 5_000


class Given(NamedTuple):
    """A file or folder of agents that somebody names."""

    path: Path
    trusted: bool = True
    place: Place = "given"
    """`user` for those of the user's own settings, which come after the project's."""
    root: Path | None = None
    """The project whose settings name it."""


@dataclass(slots=True)
class Loaded:
    """The agents of a workspace by name, and everything there is to tell about their files."""

    agents: dict[str, Definition] = field(default_factory=dict[str, Definition])
    problems: list[Problem] = field(default_factory=list[Problem])
    """Errors (such a file was not used), warnings and notes, in the order of files."""
    hidden: list[Definition] = field(default_factory=list[Definition])
    """Agents whose name a nearer one has."""
    _loose: dict[str, Definition] = field(default_factory=dict[str, Definition], repr=False, compare=False)
    _in_loose: int = field(default=0, repr=False, compare=False)

    def find(self, name: str) -> Definition | None:
        """By its name, whatever the case, or by what its file calls it."""
        if name in self.agents:
            return self.agents[name]
        if self._in_loose != len(self.agents):
            self._in_loose = len(self.agents)
            for found in self.agents.values():
                for called in (found.name, found.nickname or found.name):
                    self._loose.setdefault(_loosely(called), found)
        return self._loose.get(_loosely(name))

    def suggest(self, name: str, hints: Hints | None = None) -> str:
        """What was probably meant, as a sentence with a blank in front."""
        near = (hints or Hints()).suggest(as_name(name), self.agents)
        return near or (
            f" There are: {', '.join(sorted(self.agents)[:12])}." if self.agents else " There are none."
        )

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]

    def add(self, found: Definition) -> None:
        """The first of a name has it."""
        first = self.agents.setdefault(found.name, found)
        self.problems += found.problems
        if first is found:
            return
        self.hidden.append(found)
        same = first.file.parent == found.file.parent
        # Who calls for an agent of their own should know that a stranger's answers.
        matters = same or (found.trusted and not first.trusted)
        self.problems.append(
            Problem(
                "warning" if matters else "note",
                found.file,
                found.line("name"),
                f"The agent {found.name!r} of {first.file} comes first; this one is not used."
                + (" Rename one of them." if same else ""),
                Cause("are not used, because another one of their name comes first", found.name),
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
    environ: Mapping[str, str] = os.environ,
    inline: Iterable[Definition] = (),
    trusted: bool = False,
) -> Loaded:
    """Every agent that a workspace has. Never raises over a file: what is wrong is told in `problems`.

    `extra` are files and folders that the caller names; they come first, and are trusted. `inline` are those of
    remit.toml; they come next, then the project's files, then all that is the user's. `trusted` says whether the
    project's files may widen what they say.
    """
    loaded = Loaded()
    given = [one if isinstance(one, Given) else Given(Path(one)) for one in extra]
    described = list(inline)
    own = Path.home() if home is None else Path(home)
    folders = list(agent_folders(Path(workspace).resolve(), own.resolve(), environ))
    for is_users in (False, True):
        # What a project may take up is its own: it leaves the user's files theirs.
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
    """The agents of one file, or of one folder and those below it. Raises UsageError when there is no such thing."""
    path = Path(path)
    if not path.exists():
        raise UsageError(f"There is no file or folder {str(path)!r} to read agents from.")
    loaded = Loaded()
    _add_all(loaded, _given(Given(path, trusted), loaded.problems), _Room(), trusted=trusted)
    return loaded


def _given(given: Given, problems: list[Problem]) -> Iterator[tuple[Path, Folder]]:
    path = given.path
    remember(path)
    inside = None if given.trusted else path.resolve() if path.is_dir() else path.resolve().parent
    folder = Folder(path, given.place, inside, endings_of(path), is_named=True, root=given.root)
    if not path.exists():
        problems.append(Problem("error", path, 0, "There is no such file or folder."))
    yield from _found(folder, problems)


def _found(folder: Folder, problems: list[Problem]) -> Iterator[tuple[Path, Folder]]:
    """The files of a folder; a file is itself. A link is looked at, so that it can be told where it leads."""
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
    """Files of opencode, which many agents ask for."""

    def config(self, path: Path, inside: Path | None) -> Config | None:
        """None for what is not there and what cannot be read, which is told where its own agents are read."""
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
        # A file that is too large costs nothing: it is not read.
        self.size -= size if size <= MOST_BYTES else 0
        return self.files >= 0 and self.size >= 0


def _add_all(loaded: Loaded, files: Iterable[tuple[Path, Folder]], room: _Room, *, trusted: bool) -> None:
    for path, folder in files:
        if not room.take(path):
            if not room.told:
                text = (
                    f"There are more than {MOST_FILES_ALL:,} agent files, or {MOST_ALL:,} bytes of them;"
                    " this one and those behind it were not read."
                )
                loaded.problems.append(Problem("warning", path, 0, text))
            room.told = True
            return
        for found in _File(path, folder, room, trusted=trusted).read(loaded.problems):
            loaded.add(found)


@dataclass(frozen=True, slots=True)
class _File:
    """One file, which has an agent, or several, or none."""

    path: Path
    folder: Folder
    room: _Room
    trusted: bool

    def read(self, problems: list[Problem]) -> list[Definition]:
        """The agents that can be used; what is wrong with the others is told."""
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
            # In Kiro, an agent that lists no tools has none.
            draft.tools = []
            read_table(draft, read_object(found.text))
        elif suffix == ".toml":
            self._read_toml(draft, found.text)
        else:
            self._read_page(draft, found.text)
        return [draft]

    def _is_prompt(self, draft: Draft) -> bool:
        """Whether a page without front matter is a text for another agent: Kiro's lie beside the JSON files that name them."""
        return draft.format == "kiro" and any(self.path.parent.glob("*.json"))

    def _has_page(self, name: str) -> bool:
        """Whether an agent of an opencode.json has a Markdown file beside it."""
        folder = self.path.parent
        homes = (folder,) if folder.name in (".opencode", "opencode") else (folder / ".opencode",)
        inner = (home / kind / f"{as_name(name)}.md" for home in homes for kind in ("agents", "agent"))
        return any(path.is_file() for path in inner)

    def _with_config(self, entries: Mapping[str, Node]) -> Mapping[str, Node]:
        """What an agent's Markdown file says, above what an opencode.json beside it says."""
        for place in places(self.path):
            config = self.room.config(place, None if self.trusted else self.folder.inside)
            entries = entries if config is None else config.under(name_of(self.path), entries)
        return entries

    def _read_toml(self, draft: Draft, text: str) -> None:
        entries = read_toml(text)
        if self.folder.is_named and self.folder.path != self.path and not _describes_an_agent(entries):
            draft.tell("note", 0, "This is no agent: it has neither instructions nor a description.")
            draft.is_off = True
            return
        read_table(draft, entries)

    def _read_page(self, draft: Draft, text: str) -> None:
        page = take_apart(text, VOCABULARY)
        if not page.has_header and (draft.file.stem.lower() in _PAPERS or self._is_prompt(draft)):
            draft.tell("note", 0, "There is no front matter, so that this is not taken for an agent.")
            draft.is_off = True
            return
        if "on" in page.entries:
            draft.tell(
                "note", page.entries["on"].line, "This is a workflow, not an agent; it was passed over."
            )
            draft.is_off = True
            return
        for level, line, said in page.told:
            draft.tell(level, line, said)
        if not page.has_header and not page.told:
            draft.tell(
                "warning",
                1,
                "There is no front matter; all of it was read as instructions. Begin with --- and `name:`.",
                Cause("have no front matter: all of the file was read as instructions"),
            )
        if not page.has_header and not page.body:
            draft.tell(
                "error",
                0,
                "The file is empty. Write `name` and `description` between --- lines, and instructions below.",
            )
        read_keys(draft, self._with_config(page.entries) if draft.format == "opencode" else page.entries)
        draft.instructions.append(page.body)
        draft.check()


def _describes_an_agent(entries: Mapping[str, Node]) -> bool:
    keys = set(map(plain_key, entries))
    return bool(keys & _TELLING)


def read_table(draft: Draft, entries: Mapping[str, Node], *, unknown: Level = "warning") -> None:
    """A table of TOML or JSON that describes an agent."""
    read_keys(draft, entries, unknown=unknown)
    draft.check()
