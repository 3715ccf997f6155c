"""The tools that a definition asks for: built-in tools, the caller's tools, MCP servers, delegation."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import remit.tools
from remit.definitions.agent_files.definition import Definition, WrittenWord, is_pattern
from remit.definitions.agent_files.formats import FOREIGN, Format
from remit.definitions.agent_files.permissions import removes
from remit.definitions.agent_files.tool_names import ToolWord, known_words, read_word
from remit.definitions.project_trust.untrusted_agents import CONSENT
from remit.definitions.syntax.nodes import Cause, Hints, Level, quoted, split_list, to_json
from remit.errors import UsageError
from remit.tools.policy_rules import parse
from remit.tools.source import ToolSource
from remit.tools.tool import Tool, is_reserved
from remit.types.spelling import slip_of


class Tell(Protocol):
    """Reports a problem in the definition."""

    def __call__(self, level: Level, line: int, text: str, cause: Cause | None = None) -> None: ...


_LIST_ALL: tuple[Format, ...] = ("copilot", "kiro")

MOST_HINTS = 200
"""Unknown words for which a suggestion is looked up, over all definitions that are built together."""


class Shelf:
    """The tools and servers to choose from."""

    def __init__(
        self,
        own: Mapping[str, Tool],
        servers: Mapping[str, ToolSource],
        withheld: Mapping[str, str],
    ) -> None:
        self.own = own
        self.servers = servers
        self.withheld = withheld
        self._hints = Hints(MOST_HINTS)

    @cached_property
    def built_in(self) -> tuple[str, ...]:
        return tuple(remit.tools.built_in())

    def suggest(self, name: str) -> str:
        """A question with the tool that was probably meant; empty if no name is near."""
        return self._hints.suggest(name, (*self.built_in, *self.own, *known_words()))


@dataclass(slots=True)
class Kit:
    """The tools of one agent."""

    tools: list[Tool | str | ToolSource] = field(default_factory=list["Tool | str | ToolSource"])
    only: list[ToolWord] = field(default_factory=list[ToolWord])
    """Tools that may be used only for calls that match their pattern."""
    agents: list[WrittenWord] = field(default_factory=list[WrittenWord])
    """Agents named in the list of tools."""
    delegates: bool = False
    """Whether the agent may delegate to any agent."""
    may_delegate: bool = True


def choose_tools(definition: Definition, shelf: Shelf, tell: Tell) -> Kit:
    """The tools that a definition asks for; problems are reported to `tell`."""
    chooser = _Chooser(definition, shelf, tell)
    return chooser.choose()


class _Chooser:
    def __init__(self, definition: Definition, shelf: Shelf, tell: Tell) -> None:
        self.definition = definition
        self.shelf = shelf
        self.tell = tell
        self.kit = Kit()
        self._hints = Hints()
        """For servers. Separate for each file, because a file may describe servers of its own."""
        self._names: dict[str, list[ToolWord]] = {}
        """Tool names in order, each with the entries that ask for it."""
        self._takes_all = definition.tools is None
        self._servers: dict[str, list[str] | None] = {}
        """The servers, each with the tools that are wanted; None for all tools."""

    def choose(self) -> Kit:
        words = self.definition.tools
        if words is None:
            words = tuple(ToolWord("tool", name) for name in (*self.shelf.built_in, *self.shelf.own))
        for word in words:
            self._take(word)
        self.kit.delegates = self.kit.delegates or any(map(is_pattern, self.definition.subagents))
        for said in self.definition.servers:
            self._take_server(said.text, None, said.line, must_exist=True)
        without = self.definition.without
        if any(word.kind in ("delegate", "all") for word in without):
            self.kit.may_delegate = self.kit.delegates = False
        for name, asked in self._names.items():
            if not any(removes(word, name) for word in without):
                self._give(name, asked)
        self._give_servers()
        self._check_denials()
        return self.kit

    def _check_denials(self) -> None:
        """Report removed tools and rules that name no existing tool: otherwise a denial would silently deny nothing."""
        named = [(word.name, word.line) for word in self.definition.without if word.kind == "other"]
        for rule in self.definition.rules:
            # An unparsable rule is reported when the agent is built.
            with suppress(UsageError):
                named.append((parse(rule.text, "policy").name, rule.line))
        for name, line in named:
            # Other programs' tool names and patterns are not misspellings.
            if read_word(name, line).kind == "other" and not (set(name) & set("*?[") or is_reserved(name)):
                self._check_denial(name, line)

    def _check_denial(self, name: str, line: int) -> None:
        if name in self.shelf.own or self._server_of(name):
            return
        hint, ours = self.shelf.suggest(name), self.definition.is_ours
        tools = (*self.shelf.built_in, *self.shelf.own)
        # A tool of another program, or of an absent server, may have a name close to one of ours: `sql_read`.
        is_slip = slip_of(name.lower(), tools) or (ours and any(_is_near(name, tool) for tool in tools))
        if hint or ours:
            self.tell(
                "error" if hint and is_slip else "warning", line, f"No tool named {quoted(name)}.{hint}"
            )

    def _take(self, word: ToolWord) -> None:
        if word.kind == "all":
            for name in (*self.shelf.built_in, *self.shelf.own):
                self._names.setdefault(name, []).append(ToolWord("tool", name))
            self._takes_all = True
        elif word.kind == "delegate":
            self._take_delegation(word)
        elif word.kind == "server":
            self._take_server(word.name, word.tool, word.line, must_exist=False)
        elif word.kind == "missing":
            text = f"remit does not have the tool {quoted(word.name)}; the agent does not get it."
            self.tell("warning", word.line, text, Cause("use tools that remit does not have", word.name))
        elif word.name in self.shelf.own or word.kind == "tool":
            self._take_tool(word)
        else:
            self._take_other(word)

    def _take_tool(self, word: ToolWord) -> None:
        if word.name in self.shelf.built_in or word.name in self.shelf.own:
            self._names.setdefault(word.name, []).append(word)
        else:
            self.tell(
                "warning",
                word.line,
                f"This installation of remit has no tool {word.name!r}; the agent does not get it.",
            )

    def _take_other(self, word: ToolWord) -> None:
        """An unknown name: a server, a server's tools in opencode's notation, or a mistake."""
        server = self._server_of(word.name)
        if server is not None:
            self._take_server(server, word.name[len(server) + 1 :].strip("*"), word.line, must_exist=False)
            return
        hint, ours = self.shelf.suggest(word.name), self.definition.is_ours
        tools = (*self.shelf.built_in, *self.shelf.own)
        # A tool of another program is not a mistake in a file that was written for that program.
        level: Level = "error" if ours or slip_of(word.name.lower(), (*tools, *known_words())) else "warning"
        more = hint or (f" Tools: {', '.join(tools)}." if ours else " The agent does not get it.")
        cause = None if level == "error" else Cause("use tools that do not exist here", word.written)
        self.tell(level, word.line, f"No tool named {quoted(word.written)}.{more}", cause)

    def _server_of(self, name: str) -> str | None:
        """The server whose name begins this name; opencode names a server's tools this way."""
        servers = (*self.shelf.servers, *self.definition.own_servers, *self.shelf.withheld)
        return next((one for one in servers if name == one or name.startswith(f"{one}_")), None)

    def _take_delegation(self, word: ToolWord) -> None:
        if word.within:
            self.kit.agents += [WrittenWord(name, word.line) for name in split_list(word.within)]
        else:
            self.kit.delegates = True

    def _take_server(self, name: str, tool: str | None, line: int, *, must_exist: bool) -> None:
        own, shelf = self.definition.own_servers, self.shelf
        if name == "*":
            for each in (*shelf.servers, *own):
                self._servers[each] = None
        elif name in shelf.servers or name in own:
            wanted = self._servers.setdefault(name, [])
            if not tool:
                self._servers[name] = None
            elif wanted is not None:
                wanted.append(tool)
        elif name in shelf.withheld:
            self.tell("warning", line, f"The MCP server {quoted(name)} is not used: {shelf.withheld[name]}")
        else:
            near = self._hints.suggest(name, (*shelf.servers, *own))
            hint = near or " Describe it under [mcp.servers] in remit.toml."
            level: Level = "error" if must_exist and self.definition.format not in FOREIGN else "warning"
            cause = None if level == "error" else Cause("name MCP servers that do not exist here", name)
            self.tell(level, line, f"No MCP server named {quoted(name)}.{hint}", cause)

    def _give(self, name: str, asked: list[ToolWord]) -> None:
        self.kit.tools.append(self.shelf.own.get(name, name))
        also = [word for word in self.definition.only if word.name == name]
        if also or all(word.within for word in asked):
            patterns = also + [word for word in asked if word.within]
            self.kit.only += [_part(word, text) for word in patterns for text in _patterns(word)]

    def _give_servers(self) -> None:
        found = {**self._own_servers(), **self.shelf.servers}
        without = dict[str, list[str]]()
        for word in self.definition.without:
            if word.kind == "server":
                without.setdefault(word.name, []).append(word.tool or "*")
        for name, wanted in self._servers.items():
            server, less = found.get(name), without.get(name, [])
            if server is None or "*" in less:
                continue
            narrowed = getattr(server, "with_tools", None)
            if callable(narrowed) and (wanted is not None or less):
                only, without_too = getattr(server, "only", None), getattr(server, "without", ())
                server = narrowed(only=_both(wanted, only), without=[*without_too, *less])
            self.kit.tools.append(server)  # pyright: ignore[reportArgumentType]  # the same server with fewer tools

    def _own_servers(self) -> dict[str, ToolSource]:
        """The servers that the file itself describes."""
        own, definition = self.definition.own_servers, self.definition
        if not own:
            return {}
        line = definition.line("mcpServers")
        for name in own:
            # In these systems the file must also list the server's tools among its tools.
            if self._takes_all or definition.format not in _LIST_ALL:
                self._servers.setdefault(name, None)
        if not definition.trusted:
            text = f"The MCP servers {', '.join(own)} were not started: the file is not trusted; {CONSENT}."
            cause = Cause(
                f"describe MCP servers, which untrusted files may not start ({CONSENT})", ", ".join(own)
            )
            self.tell("warning", line, text, cause)
            return {}
        from remit.tools.mcp import read_servers  # noqa: PLC0415 - few files describe servers

        where = definition.where(line)
        found = read_servers({name: to_json(node) for name, node in own.items()}, where, os.environ)
        level: Level = "warning" if definition.format in FOREIGN else "error"
        for problem in found.problems:
            self.tell(level, line, problem.removeprefix(f"{where}."))
        for warning in found.warnings:
            self.tell("warning", line, warning.removeprefix(f"{where}."))
        return dict(found.servers)


def _both(wanted: list[str] | None, given: Sequence[str] | None) -> list[str] | None:
    """The intersection of two lists of tools; both may have patterns, and None means all tools."""
    if wanted is None or given is None:
        return wanted if given is None else list(given)
    narrow = [one for one in wanted if any(fnmatch.fnmatchcase(one, pattern) for pattern in given)]
    return narrow + [one for one in given if any(fnmatch.fnmatchcase(one, pattern) for pattern in wanted)]


def _is_near(name: str, tool: str) -> bool:
    """Whether the names have nearly the same length and the same first two letters."""
    name = name.lower()
    return abs(len(name) - len(tool)) <= 1 and name[:2] == tool[:2]


def _patterns(word: ToolWord) -> list[str]:
    """`Bash(git add, git commit)` has two patterns; a leading ./ of a path is removed."""
    return [text.removeprefix("./") for text in split_list(word.within)]


def _part(word: ToolWord, text: str) -> ToolWord:
    return replace(word, kind="tool", within=text)
