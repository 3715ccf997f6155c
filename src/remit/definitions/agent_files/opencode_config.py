"""opencode.json: its agents, and its settings for agents in files beside it.

As in opencode, the settings for all agents are defaults for each agent, and the settings for one agent are defaults for
its Markdown file. A permission that is denied there is denied here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from remit.definitions.agent_files.definition import Draft, WrittenWord
from remit.definitions.agent_files.keys import read_keys
from remit.definitions.syntax.json_lines import read_json
from remit.definitions.syntax.nodes import Node, Wrong, from_python, to_json
from remit.tools.settings_files import OPENCODE_FILES

MOST_AGENTS = 500
"""Agents of one file; more is a mistake or an attack."""

_FOR_ALL = ("permission", "tools")
_OWN = frozenset(("build", "plan", "general", "explore", "scout", "title", "summary", "compaction"))
"""opencode's built-in agents, which the file may configure."""


@dataclass(frozen=True, slots=True)
class Config:
    """The agents of an opencode.json, and its settings for all agents."""

    for_all: Mapping[str, Node]
    agents: Mapping[str, Node]

    def under(self, name: str, entries: Mapping[str, Node]) -> dict[str, Node]:
        """The entries of an agent's own file, with defaults from here. Line numbers belong to the agent's file, so the
        defaults have none.
        """
        said = self.agents.get(name)
        own = said.value if said is not None and isinstance(said.value, dict) else {}
        below = {key: from_python(to_json(node), 0) for key, node in _above(self.for_all, own).items()}
        return _above(below, entries)


def read_object(text: str) -> dict[str, Node]:
    """The entries of a JSON document. Raises Wrong."""
    found = read_json(text)
    if not isinstance(found.value, dict):
        raise Wrong("must be a JSON object", found.line)
    return found.value


def read_config(text: str) -> Config:
    """Raises Wrong."""
    entries = read_object(text)
    agents = dict[str, Node]()
    # `mode` is the older name of `agent`.
    for key in ("mode", "agent"):
        table = entries.get(key)
        agents |= table.value if table is not None and isinstance(table.value, dict) else {}
    return Config({key: entries[key] for key in _FOR_ALL if key in entries}, agents)


def places(path: Path) -> Iterator[Path]:
    """The files that may configure the agent of a Markdown file; later files take precedence."""
    home = next((folder for folder in path.parents if folder.name in (".opencode", "opencode")), None)
    if home is not None:
        for folder in (home.parent, home) if home.name == ".opencode" else (home,):
            yield from (folder / name for name in OPENCODE_FILES)


def read_agents(text: str, has_file: Callable[[str], bool], new: Callable[[], Draft]) -> list[Draft]:
    """A draft for each agent. `has_file` says which agents have a Markdown file; those are skipped. Raises Wrong."""
    config = read_config(text)
    drafts = list[Draft]()
    for name, node in config.agents.items():
        if has_file(name):
            continue
        draft = new()
        drafts.append(draft)
        if len(drafts) > MOST_AGENTS:
            draft.tell(
                "warning", node.line, f"The file has more than {MOST_AGENTS} agents; the rest was not read."
            )
            draft.is_off = True
            break
        _read_agent(draft, name, node, config)
    return drafts


def _read_agent(draft: Draft, name: str, node: Node, config: Config) -> None:
    draft.name = WrittenWord(name, node.line)
    draft.lines["name"] = node.line
    if not isinstance(node.value, dict):
        draft.tell("error", node.line, f"agent.{name} must be an object.")
    elif name in _OWN and "prompt" not in node.value:
        draft.tell(
            "note",
            node.line,
            f"This configures opencode's built-in agent {name!r}, which remit does not have.",
        )
        draft.is_off = True
    else:
        read_keys(draft, _above(config.for_all, node.value))
        draft.check()


def _above(below: Mapping[str, Node], entries: Mapping[str, Node]) -> dict[str, Node]:
    """`entries` merged over `below`: mappings are merged recursively, other values are replaced."""
    joined = dict(below)
    for key, node in entries.items():
        old = joined.pop(key, None)
        if old is not None and isinstance(old.value, dict) and isinstance(node.value, dict):
            joined[key] = Node(_above(old.value, node.value), node.line)
        else:
            joined[key] = node
    return joined
