"""Which tools a definition asks for: built-in ones, the caller's own, MCP servers, delegating."""

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
    """Notes a problem of the definition."""

    def __call__(self, level: Level, line: int, text: str, cause: Cause | None = None) -> None: ...


_LIST_ALL: tuple[Format, ...] = ("copilot", "kiro")

MOST_HINTS = 200
"""Different words for which what was meant is looked for, over all definitions that are built together."""


class Shelf:
    """What there is to choose from."""

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
        """What was probably meant by the name of a tool that there is none of."""
        return self._hints.suggest(name, (*self.built_in, *self.own, *known_words()))


@dataclass(slots=True)
class Kit:
    """What an agent gets."""

    tools: list[Tool | str | ToolSource] = field(default_factory=list["Tool | str | ToolSource"])
    only: list[ToolWord] = field(default_factory=list[ToolWord])
    """Tools that may be used only as their pattern says."""
    agents: list[WrittenWord] = field(default_factory=list[WrittenWord])
    """Agents that it names among its tools."""
    delegates: bool = False
    """Whether it may delegate to whom it likes."""
    may_delegate: bool = True


def choose_tools(definition: Definition, shelf: Shelf, tell: Tell) -> Kit:
    """What a definition asks for, as far as there is such a thing; the rest is told."""
    chooser = _Chooser(definition, shelf, tell)
    return chooser.choose()


class _Chooser:
    def __init__(self, definition: Definition, shelf: Shelf, tell: Tell) -> None:
        self.definition = definition
        self.shelf = shelf
        self.tell = tell
        self.kit = Kit()
        self._hints = Hints()
        """For servers: those that a file describes are its own."""
        self._names: dict[str, list[ToolWord]] = {}
        """Tools in order, each with the entries that ask for it."""
        self._takes_all = definition.tools is None
        self._servers: dict[str, list[str] | None] = {}
        """Servers, each with the tools of it that are wanted; None for all."""

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
        """Tell of tools to be without, and of rules, that are about no tool: nobody would notice that they deny nothing."""
        named = [(word.name, word.line) for word in self.definition.without if word.kind == "other"]
        for rule in self.definition.rules:
            # One that cannot be read is told when the agent is made.
            with suppress(UsageError):
                named.append((parse(rule.text, "policy").name, rule.line))
        for name, line in named:
            # Names of what other programs have, and patterns, are no slips.
            if read_word(name, line).kind == "other" and not (set(name) & set("*?[") or is_reserved(name)):
                self._check_denial(name, line)

    def _check_denial(self, name: str, line: int) -> None:
        if name in self.shelf.own or self._server_of(name):
            return
        hint, ours = self.shelf.suggest(name), self.definition.is_ours
        tools = (*self.shelf.built_in, *self.shelf.own)
        # A tool of another program, or of a server that is not here, may be called nearly as one of ours is: `sql_read`.
        is_slip = slip_of(name.lower(), tools) or (ours and any(_is_near(name, tool) for tool in tools))
        if hint or ours:
            self.tell(
                "error" if hint and is_slip else "warning", line, f"There is no tool {quoted(name)}.{hint}"
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
            text = f"remit has no tool {quoted(word.name)}; the agent goes without it."
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
                "warning", word.line, f"This remit has no tool {word.name!r}; the agent goes without it."
            )

    def _take_other(self, word: ToolWord) -> None:
        """A name that nobody knows: a server, its tools as opencode calls them, or a mistake."""
        server = self._server_of(word.name)
        if server is not None:
            self._take_server(server, word.name[len(server) + 1 :].strip("*"), word.line, must_exist=False)
            return
        hint, ours = self.shelf.suggest(word.name), self.definition.is_ours
        tools = (*self.shelf.built_in, *self.shelf.own)
        # A tool of another program is no mistake in a file that was written for it.
        level: Level = "error" if ours or slip_of(word.name.lower(), (*tools, *known_words())) else "warning"
        more = hint or (f" Tools are {', '.join(tools)}." if ours else " The agent goes without it.")
        cause = None if level == "error" else Cause("use tools that are not here", word.written)
        self.tell(level, word.line, f"There is no tool {quoted(word.written)}.{more}", cause)

    def _server_of(self, name: str) -> str | None:
        """Which server a name begins with, as opencode calls its tools."""
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
            cause = None if level == "error" else Cause("name MCP servers that are not here", name)
            self.tell(level, line, f"There is no MCP server {quoted(name)}.{hint}", cause)

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
        """Servers that the file itself describes."""
        own, definition = self.definition.own_servers, self.definition
        if not own:
            return {}
        line = definition.line("mcpServers")
        for name in own:
            # Some systems list tools of servers among the others, and give no more than that.
            if self._takes_all or definition.format not in _LIST_ALL:
                self._servers.setdefault(name, None)
        if not definition.trusted:
            text = f"The MCP servers {', '.join(own)} are not started: the file is not trusted; {CONSENT}."
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
    """The tools that an agent wants of those that its server gives; both may be patterns, and None is all."""
    if wanted is None or given is None:
        return wanted if given is None else list(given)
    narrow = [one for one in wanted if any(fnmatch.fnmatchcase(one, pattern) for pattern in given)]
    return narrow + [one for one in given if any(fnmatch.fnmatchcase(one, pattern) for pattern in wanted)]


def _is_near(name: str, tool: str) -> bool:
    """Whether it is about as long, and mostly the same from the beginning on."""
    name = name.lower()
    return abs(len(name) - len(tool)) <= 1 and name[:2] == tool[:2]


def _patterns(word: ToolWord) -> list[str]:
    """`Bash(git add, git commit)` has two; those of paths may begin with ./"""
    return [text.removeprefix("./") for text in split_list(word.within)]


def _part(word: ToolWord, text: str) -> ToolWord:
    return replace(word, kind="tool", within=text)
