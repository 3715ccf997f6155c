"""`.roomodes`: the modes of Roo Code, each an agent. The file is YAML or JSON."""

from __future__ import annotations

from collections.abc import Callable

import remit.definitions.syntax.nodes as nodes
from remit.definitions.agent_files.definition import Draft, WrittenWord
from remit.definitions.agent_files.keys import read_keys
from remit.definitions.agent_files.opencode_config import MOST_AGENTS
from remit.definitions.agent_files.regex_globs import as_globs
from remit.definitions.agent_files.tool_names import ToolWord
from remit.definitions.syntax.json_lines import read_json
from remit.definitions.syntax.nodes import Node, Wrong, quoted
from remit.definitions.syntax.yaml_nodes import Told, Unreadable, read_yaml

_GROUPS = {
    "read": ("read", "ls", "glob", "grep"),
    "edit": ("write", "edit"),
    "command": ("terminal",),
}


def read_modes(text: str, new: Callable[[], Draft]) -> list[Draft]:
    """A draft for each mode. Raises Wrong."""
    told = list[Told]()
    root = _read(text, told)
    modes = nodes.fields(root).get("customModes")
    if modes is None or not isinstance(modes.value, list):
        raise Wrong("must have a list `customModes`", root.line)
    drafts = list[Draft]()
    for mode in modes.value:
        draft = new()
        drafts.append(draft)
        if len(drafts) > MOST_AGENTS:
            draft.tell(
                "warning", mode.line, f"The file has more than {MOST_AGENTS} modes; the rest was not read."
            )
            draft.is_off = True
            break
        _read_mode(draft, mode)
    for level, line, said in told:
        drafts[0].tell(level, line, said) if drafts else None
    return drafts


def _read(text: str, told: list[Told]) -> Node:
    if text.lstrip().startswith("{"):
        return read_json(text)
    try:
        return read_yaml(text, told)
    except Unreadable as error:
        raise Wrong(f"is not valid YAML: {error.text}", error.line) from None


def _read_mode(draft: Draft, mode: Node) -> None:
    if not isinstance(mode.value, dict):
        draft.tell("error", mode.line, f"A mode must be a mapping, not {nodes.kind(mode)}.")
        return
    entries = dict(mode.value)
    slug, title, groups = entries.pop("slug", None), entries.pop("name", None), entries.pop("groups", None)
    if slug is None:
        draft.tell("error", mode.line, "A mode needs a `slug`.")
        return
    try:
        draft.name = WrittenWord(nodes.text(slug).strip(), slug.line)
        draft.lines["name"] = slug.line
        if title is not None:
            read_keys(draft, {"nickname": title})
        read_keys(draft, entries)
        _read_groups(draft, groups)
    except Wrong as wrong:
        draft.tell("error", wrong.line, f"groups {wrong.text}.")
    draft.check()


def _read_groups(draft: Draft, groups: Node | None) -> None:
    """The tools of a mode: groups, some for certain files only. Every mode may start others."""
    line = 0 if groups is None else groups.line
    draft.lines["tools"] = line
    draft.tools = [ToolWord("delegate", "new_task", line=line, written="new_task")]
    if groups is None or groups.value is None:
        return
    if not isinstance(groups.value, list):
        raise Wrong(f"must be a list, not {nodes.kind(groups)}", groups.line)
    for group in groups.value:
        name, options = group, Node(None, group.line)
        if isinstance(group.value, list):
            name, options = (*group.value, options, options)[:2]
        _read_group(draft, nodes.text(name).strip(), nodes.fields(options), group.line)


def _read_group(draft: Draft, name: str, options: dict[str, Node], line: int) -> None:
    assert draft.tools is not None
    if name == "mcp":
        draft.tools.append(ToolWord("server", "*", line=line, written=name))
    elif name == "modes":
        return
    elif name not in _GROUPS:
        draft.tools.append(ToolWord("missing", name, line=line, written=name))
    elif "fileRegex" not in options:
        draft.tools += [ToolWord("tool", tool, line=line, written=name) for tool in _GROUPS[name]]
    else:
        _read_files(draft, name, nodes.text(options["fileRegex"]), line)


def _read_files(draft: Draft, name: str, regex: str, line: int) -> None:
    """A group for certain files. Without a matching pattern the agent could change any file, so it does not get the
    tools.
    """
    globs = as_globs(regex)
    if globs is None:
        text = f"{name} is limited to files that match {quoted(regex)}, which is not a simple expression; the agent does not get it."
        draft.tell("warning", line, text)
        return
    assert draft.tools is not None
    for tool in _GROUPS[name]:
        draft.tools.append(ToolWord("tool", tool, ", ".join(globs), line=line, written=name, asks=True))
