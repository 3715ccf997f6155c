"""One layer of settings: a file, the environment or the command line, read into values with their origins."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import remit.definitions.syntax.nodes as nodes
from remit.definitions.agent_files.definition import Definition, Draft, Place, WrittenWord
from remit.definitions.agent_files.limit_values import NAMES, read_named, read_pairs
from remit.definitions.agent_files.loading import read_table
from remit.definitions.agent_files.permissions import policy_rules, sandbox_of
from remit.definitions.agent_files.tool_names import known_words
from remit.definitions.project_trust.trusted_content import server_as_written
from remit.definitions.syntax.nodes import (
    Hints,
    Level,
    Node,
    Problem,
    Wrong,
    from_python,
    note_down,
    quoted,
    to_json,
)
from remit.errors import UsageError
from remit.history.secret_patterns import SecretPattern
from remit.tools.policy_rules import parse
from remit.types.limits import HIGHEST
from remit.types.ports import Price
from remit.types.spelling import slip_of, suggest

if TYPE_CHECKING:
    from remit.tools.mcp.config import Servers

KEYS = (
    *("model", "models", "agent", "agents", "limits", "policy", "sandbox", "journal", "workspace", "mcp"),
    "secrets",
)
"""Top-level keys of a file."""

PRICE = ".price"
"""The suffix of price keys: `models.ollama:llama3.price`."""

MOST_SECRETS = 100
_SECRET_KEYS = ("prefix", "least", "chars", "exact", "random")

_VARIABLES = {
    "REMIT_MODEL": "model",
    "REMIT_AGENT": "agent",
    "REMIT_SANDBOX": "sandbox",
    "REMIT_JOURNAL": "journal",
    "REMIT_WORKSPACE": "workspace",
    "REMIT_LIMITS": "limits",
    "REMIT_AGENTS": "agents.paths",
}
_ELSEWHERE = ("REMIT_HOME", "REMIT_DEBUG", "REMIT_TRUST")
"""Variables of remit that are not settings."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its origin, for people: `remit.toml:12`, `REMIT_MODEL`, `the command line`."""

    value: object
    origin: str
    line: int = 0


@dataclass(slots=True)
class Layer:
    """The settings of one source. Keys are dotted: `limits.usd`, `models.fast`, `mcp.servers.github`."""

    name: str
    """For people."""
    folder: Path
    """The folder that paths are relative to."""
    file: Path | None = None
    trusted: bool = True
    place: Place = "given"
    values: dict[str, Setting] = field(default_factory=dict[str, Setting])
    rules: list[tuple[str, Setting]] = field(default_factory=list["tuple[str, Setting]"])
    """Policy rules in order, each with its origin."""
    written: dict[str, object] = field(default_factory=dict[str, object])
    """For servers: the entries of the file, before environment variables are expanded."""
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: Hints = field(default_factory=Hints)

    def origin(self, line: int) -> str:
        return f"{self.name}:{line}" if line else self.name

    def tell(self, level: Level, line: int, text: str) -> None:
        note_down(self.problems, Problem(level, self.name, line, text))

    def put(self, key: str, value: object, line: int) -> None:
        self.values[key] = Setting(value, self.origin(line), line)

    def read(self, entries: Mapping[str, Node]) -> None:
        """Read the entries of a document. Bad entries are reported; the others are used."""
        for key, node in entries.items():
            if key not in KEYS:
                known = (*KEYS, *(f"limits.{name}" for name in NAMES))
                self.tell(
                    "error", node.line, f"Unknown setting {quoted(key)}.{self.hints.suggest(key, known)}"
                )
                continue
            self._attempt(key, node, partial(self._read, key, node))

    def _attempt(self, key: str, node: Node, read: Callable[[], None]) -> None:
        try:
            read()
        except Wrong as wrong:
            self.tell("error", wrong.line or node.line, f"{key} {wrong.text}.")

    def _read(self, key: str, node: Node) -> None:
        if key == "limits":
            self._read_limits(node)
        elif key == "models":
            for name, inner in _table(node).items():
                self._attempt(f"models.{name}", inner, partial(self._read_alias, name, inner))
        elif key == "policy":
            for rule in policy_rules(node):
                self._check_rule(rule)
                self.rules.append((rule.text, Setting(rule.text, self.origin(rule.line), rule.line)))
        elif key == "agents":
            self._read_agents(node)
        elif key == "mcp":
            self._read_mcp(node)
        elif key == "secrets":
            self._read_secrets(node)
        else:
            self.put(key, _READERS[key](node, self), node.line)

    def _check_rule(self, rule: WrittenWord) -> None:
        """Report a rule with a misspelled tool: a denial would deny nothing. The command line checks its own rules."""
        meant = slip_of(parse(rule.text, "policy").name, known_words()) if self.file else None
        if meant:
            text = f"policy: {quoted(rule.text)} names no tool. Did you mean {meant!r}?"
            self.tell("error", rule.line, text)

    def _read_limits(self, node: Node) -> None:
        if not isinstance(node.value, dict):
            for name, value in read_pairs(node).items():
                self.put(f"limits.{name}", value, node.line)
            return
        for name, inner in node.value.items():
            self._attempt("limits", inner, partial(self._read_limit, name, inner))

    def _read_limit(self, name: str, node: Node) -> None:
        self.put(f"limits.{name}", read_named(name, node), node.line)

    def _read_alias(self, name: str, node: Node) -> None:
        """`fast = "provider:model"`, or `[models."provider:model"]` with the price of a model whose price is unknown."""
        if not isinstance(node.value, dict):
            self.put(f"models.{name}", _string(node), node.line)
            return
        for key, inner in node.value.items():
            if key != "price":
                raise Wrong(f"has an unknown key {quoted(key)}; valid keys: price", inner.line)
            whole = f"models.{name}{PRICE}"
            self._attempt(whole, inner, partial(self._read_price, whole, inner))

    def _read_price(self, key: str, node: Node) -> None:
        self.put(key, _price(node), node.line)

    def _read_agents(self, node: Node) -> None:
        """`agents = [paths]`, or tables that describe agents, with `paths` among them."""
        if not isinstance(node.value, dict):
            self.put("agents.paths", _paths(node, self), node.line)
            return
        for name, inner in node.value.items():
            read = self._read_paths if name == "paths" else self._read_agent
            self._attempt(f"agents.{name}", inner, partial(read, name, inner))

    def _read_paths(self, name: str, node: Node) -> None:
        self.put(f"agents.{name}", _paths(node, self), node.line)

    def _read_agent(self, name: str, node: Node) -> None:
        draft = Draft(self.file or Path(self.name))
        draft.name = WrittenWord(name, node.line)
        read_table(draft, _table(node), unknown="error")
        found = draft.finish(name, self.place, trusted=self.trusted)
        errors = [problem for problem in draft.problems if problem.level == "error"]
        for problem in errors:
            self.tell("error", problem.line, f"agents.{name}: {problem.text}")
        if not errors and not draft.is_off:
            self.put(f"agents.{name}", found, node.line)

    def _read_secrets(self, node: Node) -> None:
        """`[secrets.acme]`: a pattern for secrets that the journal leaves out."""
        table = _table(node)
        if len(table) > MOST_SECRETS:
            raise Wrong(f"has {len(table):,} patterns; at most {MOST_SECRETS} are allowed", node.line)
        for name, inner in table.items():
            self._attempt(f"secrets.{name}", inner, partial(self._read_secret, name, inner))

    def _read_secret(self, name: str, node: Node) -> None:
        table = _table(node)
        for key in table:
            if key not in _SECRET_KEYS:
                raise Wrong(
                    f"has an unknown key {quoted(key)}; valid keys: {', '.join(_SECRET_KEYS)}",
                    table[key].line,
                )
        if "prefix" not in table:
            raise Wrong("needs a prefix", node.line)
        try:
            # SecretPattern validates its arguments.
            made = SecretPattern(
                **cast("dict[str, Any]", {key: to_json(inner) for key, inner in table.items()})
            )
        except UsageError as error:
            raise Wrong(f"cannot be used: {str(error).rstrip('.')}", node.line) from None
        self.put(f"secrets.{name}", made, node.line)

    def _read_mcp(self, node: Node) -> None:
        for key, inner in _table(node).items():
            if key != "servers":
                self.tell(
                    "error",
                    inner.line,
                    f"Unknown setting {quoted(f'mcp.{key}')}. Did you mean 'mcp.servers'?",
                )
                continue
            for name, server in _table(inner).items():
                self._read_server(name, server)

    def _read_server(self, name: str, node: Node) -> None:
        from remit.tools.mcp import read_servers  # noqa: PLC0415 - only settings with servers need it

        where = "mcp.servers"
        found = read_servers({name: to_json(node)}, where)
        for problem in found.problems:
            self.tell("error", node.line, problem)
        for warning in found.warnings:
            self.tell("warning", node.line, warning)
        self.put_servers(found, node.line)

    def put_servers(self, found: Servers, line: int, known: Container[str] = ()) -> None:
        """Add servers, except those with a known key."""
        for name, server in found.servers.items():
            key = f"mcp.servers.{name}"
            if key not in known:
                self.put(key, server, line)
                self.written[key] = server_as_written(found.written[name])


def _string(node: Node) -> str:
    if isinstance(node.value, str) and node.value.strip():
        return node.value.strip()
    raise Wrong(f"must be text, not {nodes.kind(node)}", node.line)


def _table(node: Node) -> dict[str, Node]:
    if isinstance(node.value, dict):
        return node.value
    raise Wrong(f"must be a table, not {nodes.kind(node)}", node.line)


def _price(node: Node) -> Price:
    names = Price.__struct_fields__
    found = {key: inner.value for key, inner in node.value.items()} if isinstance(node.value, dict) else {}
    if set(found) != set(names) or not all(map(_is_amount, found.values())):
        form = "{input = 0.5, output = 1.5}, in US dollars per million tokens"
        raise Wrong(
            f"must have a number of at least 0 for each of {' and '.join(names)}: price = {form}", node.line
        )
    return Price(**{name: float(cast(float, found[name])) for name in names})


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= HIGHEST


def _model(node: Node, layer: Layer) -> object:
    del layer
    if isinstance(node.value, list):
        names = tuple(_string(item) for item in node.value)
        if not names:
            raise Wrong("is an empty list; name at least one model", node.line)
        return names[0] if len(names) == 1 else names
    return _string(node)


def _word(node: Node, layer: Layer) -> object:
    del layer
    return _string(node)


def _sandbox(node: Node, layer: Layer) -> object:
    del layer
    return sandbox_of(node)


def _journal(node: Node, layer: Layer) -> object:
    if node.value is False or (
        isinstance(node.value, str) and node.value.lower() in ("false", "none", "off")
    ):
        return "memory"
    url = _string(node)
    beginning = "sqlite:///"
    if layer.file is not None and url.startswith(beginning):
        path = _path(unquote(url.removeprefix(beginning)), layer, node)
        return f"{beginning}{quote(path.as_posix())}"
    return url


def _workspace(node: Node, layer: Layer) -> object:
    return _path(_string(node), layer, node)


def _path(written: str, layer: Layer, node: Node) -> Path:
    if "\0" in written:
        raise Wrong("has a NUL character", node.line)
    try:
        return layer.folder / Path(written).expanduser()
    except RuntimeError:
        raise Wrong(f"names an unknown home folder: {quoted(written)}", node.line) from None


def _paths(node: Node, layer: Layer) -> tuple[Path, ...]:
    items = node.value if isinstance(node.value, list) else [node]
    return tuple(_path(_string(item), layer, item) for item in items)


_READERS: dict[str, Callable[[Node, Layer], object]] = {
    "model": _model,
    "agent": _word,
    "sandbox": _sandbox,
    "journal": _journal,
    "workspace": _workspace,
}


def from_environment(environ: Mapping[str, str], folder: Path) -> Layer:
    """REMIT_MODEL, REMIT_LIMITS_USD and so on; an empty variable is ignored."""
    layer = Layer("the environment", folder)
    for variable in sorted(name for name in environ if name.startswith("REMIT_")):
        value = environ[variable].strip()
        key = _VARIABLES.get(variable)
        if key is None and variable.startswith("REMIT_LIMITS_"):
            key = f"limits.{variable.removeprefix('REMIT_LIMITS_').lower()}"
        if key is not None and value:
            part = Layer(variable, folder)
            _read_dotted(
                part, key, Node(_split_paths(value) if key == "agents.paths" else value, 0, plain=True)
            )
            layer.values |= part.values
            layer.problems += part.problems
        elif key is None and variable not in _ELSEWHERE and (hint := suggest(variable, _VARIABLES)):
            layer.problems.append(Problem("warning", variable, 0, f"Unknown variable.{hint}"))
    return layer


def _split_paths(value: str) -> list[Node]:
    return [Node(part, 0) for part in value.split(os.pathsep) if part]


def from_flags(flags: Mapping[str, object], folder: Path) -> Layer:
    """Values by dotted key (`limits.usd`, `policy.allow`) or in tables; None is ignored."""
    layer = Layer("the command line", folder)
    for key, value in flags.items():
        if value is not None:
            _read_dotted(layer, key, _from_flag(value))
    return layer


def _from_flag(value: object) -> Node:
    if isinstance(value, (list, tuple)):
        return Node([_from_flag(item) for item in cast("Iterable[object]", value)], 0)
    if isinstance(value, os.PathLike):
        return Node(os.fspath(cast("os.PathLike[str]", value)), 0)
    return from_python(value, 0)


def _read_dotted(layer: Layer, key: str, node: Node) -> None:
    first, _, rest = key.partition(".")
    layer.read({first: Node({rest: node}, 0) if rest else node})


def definitions_of(values: Mapping[str, Setting]) -> tuple[Definition, ...]:
    """The agents that the settings describe."""
    return tuple(setting.value for setting in values.values() if isinstance(setting.value, Definition))
