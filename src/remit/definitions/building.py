"""Turns definitions into agents: resolves names, finds tools and servers, reports cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

from remit.agent import Agent
from remit.definitions.agent_files.definition import Definition, WrittenWord, is_pattern
from remit.definitions.agent_files.formats import FOREIGN
from remit.definitions.agent_files.loading import Loaded
from remit.definitions.agent_files.model_names import Unusable, is_address, read_model
from remit.definitions.project_trust.untrusted_agents import (
    CONSENT,
    Only,
    narrow_limits,
    narrow_rules,
    narrow_settings,
    why_not_output,
)
from remit.definitions.syntax.nodes import MOST_TOLD, Cause, Hints, Level, Problem, note_down, quoted
from remit.definitions.tool_choice import MOST_HINTS, Kit, Shelf, choose_tools
from remit.errors import UsageError
from remit.tools.policy import Policy
from remit.tools.source import ToolSource
from remit.tools.tool import Tool
from remit.types.limits import Limits
from remit.types.messages import Json, unforge
from remit.types.ports import ModelChoice

MOST_LEVELS = 50
"""Nesting of agents; deeper than any tree may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The tools, servers and models that definitions are built with. Everything has a default."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The caller's own tools by name, besides the built-in ones."""
    servers: Mapping[str, ToolSource] = field(default_factory=dict[str, ToolSource])
    """MCP servers by name."""
    withheld: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers that exist but may not be used, with the reason; agents do not get them."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Model aliases."""
    usable: Callable[[str], Unusable | None] = lambda name: None  # noqa: ARG005 - every model is taken to be
    """Returns why a model cannot be used; an agent that names it inherits its parent's model."""


NOWHERE = Surroundings()


def build(
    definition: Definition,
    loaded: Loaded,
    *,
    surroundings: Surroundings = NOWHERE,
    model: ModelChoice | None = None,
    problems: list[Problem] | None = None,
) -> Agent:
    """The agent and its subagents. `model` replaces the agent's own.

    Warnings are added to `problems`. Raises UsageError with every error, each with file and line.
    """
    builder = _Builder(loaded, surroundings)
    agent = builder.make(definition, is_root=True, model=model)
    if problems is not None:
        problems += dict.fromkeys(builder.problems)
    if agent is None:
        raise UsageError("\n".join(str(problem) for problem in builder.problems if problem.level == "error"))
    return agent


def build_all(
    loaded: Loaded, *, surroundings: Surroundings = NOWHERE, problems: list[Problem] | None = None
) -> list[Agent]:
    """Every agent that others may delegate to. Agents that cannot be built are left out, with the reasons in
    `problems`.
    """
    builder = _Builder(loaded, surroundings)
    made = [builder.make(one) for one in loaded.agents.values() if not one.is_primary]
    if problems is not None:
        problems += dict.fromkeys(builder.problems)
    return [agent for agent in made if agent is not None]


def check(loaded: Loaded, *, surroundings: Surroundings = NOWHERE) -> list[Problem]:
    """Every problem with the agents: in their files, and in building them."""
    builder = _Builder(loaded, surroundings)
    for definition in loaded.agents.values():
        builder.make(definition)
    return list(dict.fromkeys([*loaded.problems, *builder.problems]))


class _Builder:
    def __init__(self, loaded: Loaded, surroundings: Surroundings) -> None:
        self.loaded = loaded
        self.around = surroundings
        self.problems: list[Problem] = []
        self.hints = Hints(MOST_HINTS)
        self.shelf = Shelf(surroundings.tools, surroundings.servers, surroundings.withheld)
        self._told: dict[str, list[Problem]] = {}
        self._made: dict[str, Agent | None] = {}
        self._path: list[str] = []

    def make(
        self, definition: Definition, *, is_root: bool = False, model: ModelChoice | None = None
    ) -> Agent | None:
        """None if the agent cannot be built; the errors are reported once."""
        name = definition.name
        if name not in self._made or is_root:
            self._path.append(name)
            self._made[name] = self._new(definition, is_root=is_root, model=model)
            self._path.pop()
        return self._made[name]

    def tell(
        self, definition: Definition, level: Level, line: int, text: str, cause: Cause | None = None
    ) -> None:
        told = self._told.setdefault(definition.name, [])
        before = len(told)
        note_down(told, Problem(level, definition.file, line, text, cause, definition.name))
        self.problems += told[before:]

    def _new(self, definition: Definition, *, is_root: bool, model: ModelChoice | None) -> Agent | None:
        before = len(self.problems)
        self._told[definition.name] = []
        kit = choose_tools(definition, self.shelf, partial(self.tell, definition))
        children = self._children(definition, kit, is_root=is_root)
        if any(problem.level == "error" for problem in self.problems[before:]):
            return None
        try:
            return Agent(
                definition.name,
                nickname=self._words(definition, definition.nickname or "") or None,
                description=self._words(definition, definition.description),
                instructions=definition.instructions,
                model=model if model is not None else self._models(definition),
                settings=self._settings(definition),
                tools=kit.tools,
                subagents=children,
                limits=self._limits(definition),
                surface=definition.surface,
                adhoc=definition.adhoc or kit.delegates,
                summary=definition.summary,
                output=self._output(definition),
                policy=self._policy(definition, kit),
                sandbox=definition.sandbox,
            )
        except UsageError as error:
            self.tell(definition, "error", 0, str(error))
            return None

    # --- Subagents --------------------------------------------------------------------------------

    def _children(self, definition: Definition, kit: Kit, *, is_root: bool) -> list[Agent]:
        said = [*definition.subagents, *kit.agents] if kit.may_delegate else []
        patterns = [one.text for one in said if is_pattern(one)]
        found = dict[str, Agent]()
        for one in said:
            if self._is_hopeless(definition):
                break
            child = None if is_pattern(one) else self._child(definition, one)
            if child is not None:
                found.setdefault(child.name, child)
        if is_root and kit.delegates and (patterns or not said):
            # Below the root this would form cycles, so agents there that may delegate to any agent create ad-hoc
            # children instead.
            found |= {agent.name: agent for agent in self._everybody(definition, patterns or ["*"])}
        return list(found.values())

    def _is_hopeless(self, definition: Definition) -> bool:
        """Whether the agent cannot be built and the limit on reported problems is reached."""
        told = self._told[definition.name]
        return len(told) > MOST_TOLD and any(problem.level == "error" for problem in told)

    def _child(self, definition: Definition, said: WrittenWord) -> Agent | None:
        target = self.loaded.find(said.text)
        if target is None:
            text = f"No agent named {quoted(said.text)}.{self.loaded.suggest(said.text, self.hints)}"
            # Files of other systems may name those systems' built-in agents.
            level: Level = "warning" if definition.format in FOREIGN else "error"
            self.tell(
                definition, level, said.line, text, Cause("name agents that do not exist here", said.text)
            )
            return None
        if target.name in self._path:
            circle = " -> ".join([*self._path[self._path.index(target.name) :], target.name])
            text = f"Subagents form a cycle: {circle}. Remove one of them; to allow children of any kind write `adhoc: true`."
            self.tell(definition, "error", said.line, text)
            return None
        if len(self._path) >= MOST_LEVELS:
            self.tell(
                definition, "error", said.line, f"Agents are nested more than {MOST_LEVELS} levels deep."
            )
            return None
        known = target.name in self._made
        child = self.make(target)
        if child is None:
            where = f" (see {target.file})" if known else ""
            self.tell(definition, "error", said.line, f"The agent {target.name!r} cannot be used{where}.")
        return child

    def _everybody(self, definition: Definition, patterns: Sequence[str]) -> Iterable[Agent]:
        """The subagents of an agent that may delegate to any agent. Agents that cannot be built are left out."""
        apart = _Builder(self.loaded, self.around)
        apart._path = list(self._path)
        for other in self.loaded.agents.values():
            is_wanted = any(fnmatchcase(other.name, pattern) for pattern in patterns)
            if other is definition or other.is_primary or not is_wanted:
                continue
            child = apart.make(other)
            if child is not None:
                yield child
        for problem in apart.problems:
            level: Level = "warning" if problem.level == "error" else problem.level
            self.problems.append(replace(problem, level=level))

    # --- Model, settings, limits, policy ----------------------------------------------------------

    def _words(self, definition: Definition, text: str) -> str:
        """Text that other agents' models read. An untrusted file cannot imitate the runtime's own notes."""
        return text if definition.trusted else unforge(text)

    def _models(self, definition: Definition) -> ModelChoice | None:
        names, unusable = list[str](), list[tuple[str, Unusable]]()
        for written in definition.models:
            meant = read_model(written, self.around.aliases)
            if meant is None:
                continue
            name = meant.name
            if is_address(name) and not (definition.trusted or meant.by_alias):
                text = f"The model {quoted(name)} is an address, which an untrusted file may not choose; {CONSENT}."
                self.tell(definition, "warning", definition.line("model"), text)
            elif (why := self.around.usable(name)) is not None:
                unusable.append((name, why))
            else:
                names.append(name)
        self._tell_unusable(definition, unusable, names)
        return names[0] if len(names) == 1 else names or None

    def _tell_unusable(
        self, definition: Definition, unusable: Iterable[tuple[str, Unusable]], others: Sequence[str]
    ) -> None:
        """An agent with a list of models uses the next one, so this is only a note."""
        instead = f"using {others[0]!r}" if others else "using the parent's model"
        for name, why in unusable:
            text = f"The model {quoted(name)} is unavailable ({why.why}); {instead}."
            cause = Cause(f"name {why.cause}", topic="model")
            self.tell(definition, "note" if others else "warning", definition.line("model"), text, cause)

    def _settings(self, definition: Definition) -> Mapping[str, Json] | None:
        if definition.trusted:
            return definition.settings or None
        kept, others = narrow_settings(definition.settings)
        if others:
            text = f"settings: an untrusted file may not set {', '.join(others)}; {CONSENT}."
            self.tell(definition, "warning", definition.line("settings"), text)
        return kept or None

    def _limits(self, definition: Definition) -> Limits | None:
        if definition.limits is None or definition.trusted:
            return definition.limits
        limits, wider = narrow_limits(definition.limits)
        if wider:
            text = f"limits: an untrusted file may not raise {', '.join(wider)} above the default; {CONSENT}."
            self.tell(definition, "warning", definition.line("limits"), text)
        return limits

    def _output(self, definition: Definition) -> Json:
        why = "" if definition.trusted or definition.output is None else why_not_output(definition.output)
        if why:
            text = f"output was ignored, so the answer is plain text: {why}; {CONSENT}."
            self.tell(definition, "warning", definition.line("output"), text)
        return None if why else definition.output

    def _policy(self, definition: Definition, kit: Kit) -> Policy | None:
        rules = list(definition.rules)
        if not definition.trusted:
            rules, allowing = narrow_rules(rules)
            for rule in allowing:
                text = (
                    f"The rule {quoted(rule.text)} was ignored: an untrusted file may not allow; {CONSENT}."
                )
                cause = Cause(
                    f"ask for rules that allow, which untrusted files may not have ({CONSENT})", rule.text
                )
                self.tell(definition, "warning", rule.line, text, cause)
        texts = [rule.text for rule in rules]
        if kit.only:
            where = f"Agent {definition.name!r}"
            return Only(texts, kit.only, allows=definition.trusted, where=where)
        return texts or None
