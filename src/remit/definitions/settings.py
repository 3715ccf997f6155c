"""Settings, in rising precedence: defaults, the user's file, the project's file, the environment, the command line.

Each value keeps its origin. A project that is not trusted in its current version may only narrow
(`definitions/project_trust/trusted_versions.py`); `untrusted` lists the settings that were ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from remit.definitions.agent_files.definition import Definition, Place
from remit.definitions.agent_files.limit_values import make_limits
from remit.definitions.agent_files.loading import Given, Loaded, load_agents
from remit.definitions.agent_files.model_names import Unusable, read_model
from remit.definitions.agent_files.search_paths import repository, upwards
from remit.definitions.building import Surroundings
from remit.definitions.project_notes import NO_NOTES, ProjectNotes, read_notes
from remit.definitions.project_trust.trusted_content import agent_lines, setting_lines, tidy
from remit.definitions.project_trust.trusted_versions import add_version, nearest, trusted_versions
from remit.definitions.project_trust.untrusted_agents import CONSENT
from remit.definitions.project_trust.untrusted_settings import SetAside, set_aside
from remit.definitions.settings_layer import (
    PRICE,
    Layer,
    Setting,
    definitions_of,
    from_environment,
    from_flags,
)
from remit.definitions.syntax.nodes import Node, Problem, Wrong, fields, fit
from remit.definitions.syntax.text_files import read_text
from remit.definitions.syntax.toml_lines import read_toml
from remit.errors import UsageError
from remit.history.secret_patterns import SecretPattern
from remit.tools.settings_files import FILE, SERVERS_FILE, TABLE, TABLE_FILE, config_folder
from remit.tools.source import ToolSource
from remit.tools.tool import Tool
from remit.types.limits import Limits
from remit.types.ports import Price
from remit.types.sandbox import Sandbox
from remit.types.text import one_line, shorten

_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@/\s]*@")


class SettingsError(UsageError):
    """Raised for settings that cannot be used; `problems` has all of them."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(slots=True, kw_only=True)
class Settings:
    """The settings for a run from a workspace. `origin(key)` says where a value comes from."""

    workspace: Path
    project: Path
    """The root of the repository; the workspace if there is no repository."""
    trusted: bool
    home: Path
    environ: Mapping[str, str]
    values: dict[str, Setting] = field(default_factory=dict[str, Setting])
    policy: list[str] = field(default_factory=list[str])
    """Rules of the user, the project and the command line; a later rule replaces an earlier one for the same calls."""
    rule_origins: dict[str, str] = field(default_factory=dict[str, str])
    untrusted: list[SetAside] = field(default_factory=list[SetAside])
    problems: list[Problem] = field(default_factory=list[Problem])
    """Warnings: no setting was rejected for them."""
    files: list[Path] = field(default_factory=list[Path])
    """The files that were read."""
    asks: tuple[str, ...] = ()
    """The facts in the project's files that trust covers, one per line. Empty if no version is trusted."""
    trusted_before: tuple[str, ...] | None = None
    """The trusted version nearest to this one; None if this version is trusted, or no version is."""
    agents_ask: tuple[str, ...] | None = None
    """The facts of the project's agents in the trusted version; None if nothing is compared."""

    @property
    def model(self) -> str | tuple[str, ...] | None:
        return cast("str | tuple[str, ...] | None", self._value("model"))

    @property
    def models(self) -> dict[str, str]:
        """Model aliases."""
        return {name: value for name, value in self._below("models.") if isinstance(value, str)}

    @property
    def prices(self) -> dict[str, Price]:
        """Prices of models whose price is unknown, by model name in remit's form."""
        written = {
            name.removesuffix(PRICE): value
            for name, value in self._below("models.")
            if isinstance(value, Price)
        }
        meant = {name: read_model(name, self.models) for name in written}
        return {one.name: written[name] for name, one in meant.items() if one is not None}

    @property
    def limits(self) -> Limits:
        """The limits that were set; the others are unset."""
        return make_limits(cast("dict[str, int | float | str | None]", dict(self._below("limits."))))

    @property
    def sandbox(self) -> Sandbox | None:
        return cast("Sandbox | None", self._value("sandbox"))

    @property
    def secrets(self) -> tuple[SecretPattern, ...]:
        """Patterns for secrets that the journal leaves out."""
        return tuple(cast(SecretPattern, value) for _, value in self._below("secrets."))

    @property
    def agent(self) -> str | None:
        """The default agent."""
        return cast("str | None", self._value("agent"))

    @property
    def journal(self) -> str | None:
        """The store's address; None for the default store, `memory` for no store on disk."""
        return cast("str | None", self._value("journal"))

    @property
    def agents(self) -> tuple[Definition, ...]:
        """Agents that the settings themselves describe."""
        return definitions_of(self.values)

    @property
    def servers(self) -> dict[str, ToolSource]:
        """MCP servers by name."""
        return cast("dict[str, ToolSource]", dict(self._below("mcp.servers.")))

    @property
    def withheld(self) -> dict[str, str]:
        """MCP servers that were ignored, with the reason."""
        beginning = "mcp.servers."
        return {
            one.key.removeprefix(beginning): f"{one.why}; {CONSENT}."
            for one in self.untrusted
            if one.key.startswith(beginning)
        }

    @property
    def agent_paths(self) -> tuple[Given, ...]:
        return cast("tuple[Given, ...]", self._value("agents.paths") or ())

    def origin(self, key: str) -> str:
        """Where a value comes from: `remit.toml:12`, `REMIT_MODEL`, `the command line` or `default`."""
        found = self.values.get(key)
        return "default" if found is None else found.origin

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Every value that was set: key, value without passwords, origin."""
        for key, setting in self.values.items():
            yield fit(key), _shown(setting.value), fit(setting.origin)
        for rule in self.policy:
            yield "policy", fit(rule), fit(self.rule_origins[rule])

    def load_agents(self, extra: Iterable[str | Path] = ()) -> Loaded:
        """The agents of this workspace: of `extra`, the settings, the project and the user, in this order.

        Raises UsageError if the project's agents changed since they were compared with the trusted version.
        """
        loaded = load_agents(
            self.workspace,
            extra=[*extra, *self.agent_paths],
            inline=self.agents,
            home=self.home,
            environ=self.environ,
            trusted=self.trusted,
        )
        if self.agents_ask is not None and tidy(agent_lines(loaded)) != self.agents_ask:
            raise UsageError(f"The agents of {self.project} changed while remit was starting. Start again.")
        return loaded

    def surroundings(
        self,
        *,
        tools: Mapping[str, Tool] | None = None,
        usable: Callable[[str], Unusable | None] | None = None,
        notes: bool = True,
    ) -> Surroundings:
        """The tools, servers, aliases and project notes that agents of this workspace are built with."""
        made = Surroundings(
            tools=tools or {},
            servers=self.servers,
            withheld=self.withheld,
            aliases=self.models,
            notes=self.notes() if notes else NO_NOTES,
        )
        return made if usable is None else replace(made, usable=usable)

    def notes(self) -> ProjectNotes:
        """AGENTS.md or CLAUDE.md of a trusted project, the nearest first; nothing of a project that is not trusted."""
        return read_notes(self.workspace, self.project) if self.trusted else NO_NOTES

    def _value(self, key: str) -> object:
        found = self.values.get(key)
        return None if found is None else found.value

    def _below(self, beginning: str) -> Iterator[tuple[str, object]]:
        for key, setting in self.values.items():
            if key.startswith(beginning):
                yield key.removeprefix(beginning), setting.value


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_shown(part) for part in cast("tuple[object, ...]", value))
    if isinstance(value, Given):
        return fit(str(value.path))
    if isinstance(value, Price):
        return f"${value.input:g} input, ${value.output:g} output, per million tokens"
    if isinstance(value, Definition):
        return fit(value.description.partition("\n")[0] or value.name)
    return fit(_PASSWORD.sub(r"\1:***@", str(value)))


def load_settings(
    workspace: str | Path = ".",
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    home: str | Path | None = None,
) -> Settings:
    """The settings of a workspace. Raises SettingsError with every error in any layer.

    `flags` are values by dotted key: `{"model": ..., "limits.usd": 0.5, "policy.allow": [...], "trust": True}`.
    """
    environ = os.environ if environ is None else environ
    here = Path(workspace).resolve()
    own = Path.home().resolve() if home is None else Path(home).resolve()
    given = dict(flags or {})
    always = bool(given.pop("trust", None)) or environ.get("REMIT_TRUST", "") == "1"
    versions = [] if always else trusted_versions(repository(here, own), own, environ)
    if not versions:
        found = _load(here, given, environ, own, trusted=always)
        found.asks = ()
        return found
    # Read once as trusted, so that the compared files are the files that are used.
    found = _load(here, given, environ, own, trusted=True)
    agents = tidy(agent_lines(found.load_agents()))
    asks = tidy((*found.asks, *agents))
    if asks not in versions:
        found = _load(here, given, environ, own, trusted=False)
        found.trusted_before = nearest(versions, asks)
    else:
        found.agents_ask = agents
    found.asks = asks
    return found


def read_asks(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """The settings of a project as if it were trusted, with all facts that trust covers. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    own = (home or Path.home()).resolve()
    found = _load(Path(workspace).resolve(), {}, environ, own, trusted=True)
    found.asks = tidy((*found.asks, *agent_lines(found.load_agents())))
    return found


def trust(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """Trust the current version of the project that a folder belongs to; returns the project. Raises UsageError."""
    environ = os.environ if environ is None else environ
    found = read_asks(workspace, home=home, environ=environ)
    add_version(found.project, found.asks, found.home, environ)
    return found.project


def is_trusted(folder: Path, home: Path | None = None, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the user trusts the current version of the project that a folder belongs to. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    return load_settings(folder, home=home, environ=environ).trusted


def _load(
    here: Path, flags: Mapping[str, object], environ: Mapping[str, str], own: Path, *, trusted: bool
) -> Settings:
    project = repository(here, own)
    settings = Settings(workspace=here, project=project, trusted=trusted, home=own, environ=environ)
    problems = list[Problem]()
    for layer in _layers(settings, flags, environ, own):
        problems += layer.problems
        if layer.place == "project":
            settings.asks += tuple(setting_lines(layer, settings.values))
        if not layer.trusted:
            _set_prices_aside(layer, settings)
            set_aside(layer, settings)
        problems += _taken_over(layer, settings)
        _join(layer, settings)
    problems += _bad_aliases(settings)
    errors = [problem for problem in problems if problem.level == "error"]
    if errors:
        raise SettingsError(errors)
    settings.problems = problems
    if "workspace" in settings.values:
        settings.workspace = cast(Path, settings.values["workspace"].value).resolve()
    return settings


def _set_prices_aside(layer: Layer, settings: Settings) -> None:
    """Drop the prices of an untrusted layer: a price that is too low lets a run exceed its limit in dollars."""
    for key in [key for key, setting in layer.values.items() if isinstance(setting.value, Price)]:
        origin = layer.values.pop(key).origin
        settings.untrusted.append(SetAside(key, origin, "it changes how your limit in dollars is counted"))


def _taken_over(layer: Layer, settings: Settings) -> Iterator[Problem]:
    """Warnings about the user's agents that an untrusted project's agents replace."""
    for key, setting in layer.values.items():
        own = settings.values.get(key)
        if own is not None and isinstance(own.value, Definition) and not layer.trusted:
            text = f"The agent {own.value.name!r} in {setting.origin} takes precedence; this one is not used."
            yield Problem("warning", own.origin, 0, text)


def _bad_aliases(settings: Settings) -> Iterator[Problem]:
    aliases = settings.models
    for name in aliases:
        try:
            read_model(name, aliases)
        except UsageError as error:
            where = settings.values[f"models.{name}"]
            yield Problem("error", where.origin, 0, str(error))


def _layers(
    settings: Settings, flags: Mapping[str, object], environ: Mapping[str, str], home: Path
) -> Iterator[Layer]:
    user = config_folder(home, environ) / "remit" / "config.toml"
    if user.exists():
        yield _from_file(user, _short(user, settings, home), settings, "user")
    found = _project_file(settings.workspace, settings.project, home)
    if found is not None:
        yield _from_file(found, _short(found, settings, home), settings, "project")
    servers = _mcp_json(settings, home, environ)
    if servers is not None:
        yield servers
    yield from_environment(environ, Path.cwd())
    yield from_flags(flags, Path.cwd())


def _short(path: Path, settings: Settings, home: Path) -> str:
    for folder, beginning in ((settings.workspace, ""), (settings.project, ""), (home, "~/")):
        if path.is_relative_to(folder):
            return beginning + path.relative_to(folder).as_posix()
    return str(path)


def _project_file(workspace: Path, project: Path, home: Path) -> Path | None:
    """The nearest remit.toml, or pyproject.toml with [tool.remit]."""
    for folder in upwards(workspace, project):
        if folder == home and folder != workspace:
            return None
        if (folder / FILE).exists():
            return folder / FILE
        other = folder / TABLE_FILE
        if other.exists() and _mentions_us(other, project):
            return other
    return None


def _mentions_us(path: Path, project: Path) -> bool:
    try:
        return TABLE in read_text(path, project).text
    except Wrong:
        return False


def _from_file(path: Path, name: str, settings: Settings, place: Place) -> Layer:
    trusted = settings.trusted or place == "user"
    layer = Layer(name, path.parent, path, trusted, place)
    try:
        entries = read_toml(read_text(path, None if trusted else settings.project).text)
        if path.name == TABLE_FILE:
            tool = fields(entries.get("tool", Node(None, 0)))
            entries = fields(tool.get("remit", Node(None, 0)))
    except Wrong as wrong:
        layer.tell("error", wrong.line, f"The file {wrong.text}.")
        return layer
    settings.files.append(path)
    layer.read(entries)
    return layer


def _mcp_json(settings: Settings, home: Path, environ: Mapping[str, str]) -> Layer | None:
    """The servers of the project's .mcp.json. Read only if the project is trusted: its values contain variables to
    expand.
    """
    path = next(
        (
            f / SERVERS_FILE
            for f in upwards(settings.workspace, settings.project)
            if (f / SERVERS_FILE).exists()
        ),
        None,
    )
    if path is None:
        return None
    layer = Layer(_short(path, settings, home), path.parent, path, settings.trusted, "project")
    if not settings.trusted:
        for name in _server_names(path, settings.project):
            layer.put(f"mcp.servers.{name}", None, 0)
        return layer
    from remit.tools.mcp import read_mcp_json  # noqa: PLC0415 - few projects have one

    try:
        read_text(path, None)
        found = read_mcp_json(path, environ)
    except (Wrong, UsageError) as error:
        layer.tell("warning", 0, f"The file {error}." if isinstance(error, Wrong) else str(error))
        return layer
    settings.files.append(path)
    for problem in (*found.problems, *found.warnings):
        layer.tell("warning", 0, problem)
    # For servers with the same name, remit's own files take precedence.
    layer.put_servers(found, 0, settings.values)
    return layer


def _server_names(path: Path, project: Path) -> list[str]:
    try:
        found = cast(object, json.loads(read_text(path, project).text))
    except (Wrong, ValueError, RecursionError):
        return []
    table = cast("dict[str, object]", found).get("mcpServers") if isinstance(found, dict) else None
    return (
        [shorten(one_line(name), 60, 57) for name in cast("dict[str, object]", table)]
        if isinstance(table, dict)
        else []
    )


def _join(layer: Layer, settings: Settings) -> None:
    """Put a layer above the current settings."""
    for key, setting in layer.values.items():
        value = setting.value
        if key == "agents.paths":
            root = settings.project if layer.place == "project" else None
            paths = cast("tuple[Path, ...]", value)
            value = tuple(Given(path, layer.trusted, layer.place, root) for path in paths)
        settings.values[key] = Setting(value, setting.origin, setting.line)
    if layer.trusted:
        mentioned = {rule.partition(" ")[2] for rule, _ in layer.rules}
        settings.policy = [rule for rule in settings.policy if rule.partition(" ")[2] not in mentioned]
    known = set(settings.policy)
    for rule, setting in layer.rules:
        if rule not in known:
            settings.policy.append(rule)
        known.add(rule)
        settings.rule_origins[rule] = setting.origin
