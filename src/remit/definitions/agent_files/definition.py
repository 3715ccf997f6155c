"""`Definition`: the content of one agent file, before its names are resolved. `definitions/building.py` turns
definitions into agents.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from remit.agent import NAME
from remit.definitions.agent_files.formats import FOREIGN, Format
from remit.definitions.agent_files.limit_values import make_limits
from remit.definitions.agent_files.prompt_files import PromptFiles
from remit.definitions.agent_files.tool_names import ToolWord
from remit.definitions.syntax.nodes import Cause, Hints, Level, Node, Problem, note_down
from remit.errors import UsageError
from remit.types.limits import Limits
from remit.types.messages import Json
from remit.types.sandbox import Sandbox

Place = Literal["project", "user", "given"]
"""Where a file was found: in the project, in the user's own folders, or because the caller named it."""

MOST_NAME = 48


class WrittenWord(NamedTuple):
    """A word and its line."""

    text: str
    line: int


def is_pattern(said: WrittenWord) -> bool:
    """Whether the word matches several agents: `*`, `team-*`."""
    return any(char in said.text for char in "*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One agent as a file, or a table of remit.toml, describes it. No name in it is resolved yet."""

    name: str
    nickname: str | None
    """The name in the file, if it is not a valid agent name."""
    file: Path
    format: Format
    """The system that the file was written for."""
    place: Place
    trusted: bool
    """Whether the file may widen permissions: allow calls, start servers, choose a model's address."""
    description: str
    instructions: str
    models: tuple[str, ...]
    """In order of preference, as written; empty to inherit the parent's model."""
    settings: Mapping[str, Json]
    tools: tuple[ToolWord, ...] | None
    """None for every built-in tool."""
    without: tuple[ToolWord, ...]
    only: tuple[ToolWord, ...]
    """Tools that may be used only for calls that match their pattern."""
    subagents: tuple[WrittenWord, ...]
    servers: tuple[WrittenWord, ...]
    own_servers: Mapping[str, Node]
    """MCP servers that the file itself describes."""
    limits: Limits | None
    rules: tuple[WrittenWord, ...]
    """Policy rules, with remit's tool names."""
    sandbox: Sandbox | None
    surface: Literal["task", "subagent_<name>"]
    adhoc: bool
    summary: Literal["never", "auto", "always"]
    output: Json
    is_primary: bool
    """Whether only people may start the agent, not other agents."""
    lines: Mapping[str, int]
    """The line of each key."""
    problems: tuple[Problem, ...]
    """Warnings and notes from reading the file."""

    def line(self, key: str) -> int:
        return self.lines.get(key, 0)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.level == "warning")

    @property
    def is_ours(self) -> bool:
        """Whether the file was written for remit, not for another program."""
        return ".remit" in self.file.parts or self.file.name in (
            "remit.toml",
            "pyproject.toml",
            "config.toml",
        )

    def where(self, line: int = 0) -> str:
        return f"{self.file}:{line}" if line else str(self.file)


@dataclass(slots=True)
class Draft:
    """A definition under construction; its keys are read in order."""

    file: Path
    format: Format = "plain"
    prompts: PromptFiles | None = None
    """Reads the prompt files that the agent file names."""
    name: WrittenWord | None = None
    nickname: str | None = None
    description: str = ""
    instructions: list[str] = field(default_factory=list[str])
    models: list[str] = field(default_factory=list[str])
    settings: dict[str, Json] = field(default_factory=dict[str, Json])
    tools: list[ToolWord] | None = None
    ceiling: list[ToolWord] | None = None
    """The only tools left, if all others are denied."""
    without: list[ToolWord] = field(default_factory=list[ToolWord])
    only: list[ToolWord] = field(default_factory=list[ToolWord])
    subagents: list[WrittenWord] = field(default_factory=list[WrittenWord])
    servers: list[WrittenWord] = field(default_factory=list[WrittenWord])
    own_servers: dict[str, Node] = field(default_factory=dict[str, Node])
    limits: dict[str, int | float | str | None] = field(default_factory=dict[str, "int | float | str | None"])
    rules: list[WrittenWord] = field(default_factory=list[WrittenWord])
    sandbox: Sandbox | None = None
    surface: Literal["task", "subagent_<name>"] = "task"
    adhoc: bool = False
    summary: Literal["never", "auto", "always"] = "never"
    output: Json = None
    is_primary: bool = False
    is_off: bool = False
    lines: dict[str, int] = field(default_factory=dict[str, int])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: Hints = field(default_factory=Hints)

    def tell(self, level: Level, line: int, text: str, cause: Cause | None = None) -> None:
        note_down(self.problems, Problem(level, self.file, line, text, cause))

    @property
    def has_errors(self) -> bool:
        return any(problem.level == "error" for problem in self.problems)

    def check(self) -> None:
        """Report missing descriptions and instructions."""
        line = self.lines.get("name", 0)
        if self.is_off:
            return
        if not self.description and not self.has_errors:
            text = "The agent has no description, so other agents cannot tell what it is for."
            self.tell("warning", line, text, Cause("have no description"))
        if not any(self.instructions) and not self.has_errors:
            text = "The agent has no instructions: write them below the front matter."
            self.tell("warning", line, text, Cause("have no instructions"))

    def narrow(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox if self.sandbox is None else sandbox.within(self.sandbox)

    def finish(self, fallback: str, place: Place, *, trusted: bool) -> Definition:
        """`fallback` is the name if the file has none."""
        name = self._name(fallback)
        return Definition(
            name=name,
            nickname=self.nickname,
            file=self.file,
            format=self.format,
            place=place,
            trusted=trusted,
            description=self.description,
            instructions="\n\n".join(part for part in self.instructions if part),
            models=tuple(self.models),
            settings=self.settings,
            tools=self._tools(),
            without=tuple(self.without),
            only=tuple(self.only),
            subagents=tuple(dict.fromkeys(self.subagents)),
            servers=tuple(dict.fromkeys(self.servers)),
            own_servers=self.own_servers,
            limits=self._limits(),
            rules=tuple(self.rules),
            sandbox=self.sandbox,
            surface=self.surface,
            adhoc=self.adhoc,
            summary=self.summary,
            output=self.output,
            is_primary=self.is_primary,
            lines=self.lines,
            problems=tuple(replace(problem, agent=name) for problem in self.problems),
        )

    def _name(self, fallback: str) -> str:
        if self.name is None:
            name = as_name(fallback)
            if self.format not in FOREIGN:
                text = f"The file has no `name`; the agent is named {name!r} after the file."
                self.tell("warning", 0, text, Cause("have no name, and are named after their files"))
            return name
        written = self.name.text
        name = as_name(written) or as_name(fallback)
        if name == written:
            return name
        self.nickname = self.nickname or written
        if self.format in FOREIGN:
            # Other systems allow titles as names and identify agents by their files: `C# Expert`, `C++ Expert`.
            return name if _TITLE.fullmatch(written) else as_name(fallback)
        text = f"The name {written!r} has unsupported characters or is too long; the agent is named {name!r}."
        cause = Cause("have names with unsupported characters or too many of them", written)
        self.tell("warning", self.name.line, text, cause)
        return name

    def _tools(self) -> tuple[ToolWord, ...] | None:
        wanted, ceiling = self.tools, self.ceiling
        if wanted is None or ceiling is None:
            found = ceiling if wanted is None else wanted
            return None if found is None else tuple(found)
        left = {(word.kind, word.name) for word in ceiling}
        return tuple(word for word in wanted if (word.kind, word.name) in left)

    def _limits(self) -> Limits | None:
        try:
            return make_limits(self.limits) if self.limits else None
        except UsageError as error:
            self.tell("error", self.lines.get("limits", 0), str(error))
            return None


_BAD = re.compile(r"[^A-Za-z0-9_-]+")
_TITLE = re.compile(r"[A-Za-z0-9_ -]+")
"""A name that loses only its spaces."""


def as_name(written: str) -> str:
    """A valid agent name. If letters of other scripts are dropped, a short hash replaces them."""
    if NAME.fullmatch(written):
        return written
    kept = _BAD.sub("-", written.strip()).strip("-").lower()
    lost = any(char.isalnum() and not char.isascii() for char in written)
    if len(kept) > MOST_NAME or lost or not kept:
        digest = hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:6]
        kept = f"{kept[: MOST_NAME - 7].strip('-') or 'agent'}-{digest}"
    return kept
