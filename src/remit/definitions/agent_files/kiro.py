"""Keys with a special meaning in Kiro's agent files: tools allowed without approval, tool settings, rules by
capability.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import remit.definitions.syntax.nodes as nodes
from remit.definitions.agent_files.definition import Draft, WrittenWord
from remit.definitions.agent_files.regex_globs import as_globs
from remit.definitions.agent_files.tool_names import ToolWord, read_words
from remit.definitions.syntax.nodes import Cause, Node, Wrong, quoted

_TOOLS = ("read", "write", "shell", "web", "grep", "glob", "fs_read", "fs_write", "execute_bash", "web_fetch")
"""Kiro's names for tools that remit has, for patterns such as `fs_*`."""
_EFFECTS = ("allow", "ask", "deny")
_WRITING = ("write", "edit")
_CAPABILITIES = {
    **dict.fromkeys(("builtin", "*"), ("*",)),
    "shell": ("terminal",),
    "web": ("fetch",),
    **dict.fromkeys(("filesystem", "file", "fs"), ("read", "ls", "glob", "grep", *_WRITING)),
    **dict.fromkeys(("fs_read", "read", "filesystem_read"), ("read", "ls", "glob", "grep")),
    **dict.fromkeys(("fs_write", "write", "filesystem_write"), _WRITING),
    "mcp": ("mcp__*",),
}


def read_allowed(draft: Draft, node: Node) -> None:
    """`allowedTools`: tools that need no approval. Only a trusted file may allow them."""
    for word in nodes.words(node):
        written = nodes.text(word).strip()
        names = (
            fnmatch.filter(_TOOLS, written) if set(written) & set("*?") and "@" not in written else [written]
        )
        rules = [rule for name in names for rule in _allowing(name, word.line)]
        if not rules:
            text = f"allowedTools has {quoted(written)}, which is not a tool of remit."
            draft.tell("note", word.line, text, Cause("allow tools that remit does not have", written))
        draft.rules += rules


def _allowing(name: str, line: int) -> Iterable[WrittenWord]:
    for word in read_words(name, line, "kiro"):
        if word.kind == "tool":
            yield WrittenWord(f"allow {word.name}", line)
        elif word.kind == "server":
            yield WrittenWord(f"allow mcp__{word.name}__{word.tool or '*'}", line)


def read_tools_settings(draft: Draft, node: Node) -> None:
    """`toolsSettings`: commands and paths that are allowed or denied, and agents to delegate to."""
    for name, settings in nodes.fields(node).items():
        inner = nodes.fields(settings)
        tools = [word.name for word in read_words(name, settings.line, "kiro") if word.kind == "tool"]
        for key, answer in (("deniedCommands", "deny"), ("allowedCommands", "allow")):
            if key in inner:
                _read_commands(draft, key, answer, inner[key])
        for key, answer in (("deniedPaths", "deny"), ("allowedPaths", "allow")):
            if key in inner:
                _read_paths(draft, tools, answer, inner[key])
        if "availableAgents" in inner:
            words = nodes.words(inner["availableAgents"])
            draft.subagents += [WrittenWord(nodes.text(word), word.line) for word in words]


def _read_commands(draft: Draft, key: str, answer: str, node: Node) -> None:
    """Commands are regular expressions. A denied command that is not a simple expression makes every command need
    approval.
    """
    for word in nodes.words(node):
        written = nodes.text(word)
        globs = as_globs(f"^{written.removeprefix('^').removesuffix('$')}$") or []
        # Many people write `git push *` here and mean every push.
        if answer == "deny" and not globs and "*" in written and not set(written) & set("\\()[]{}+?^$|"):
            globs.append(written)
        draft.rules += [WrittenWord(f"{answer} terminal({glob})", word.line) for glob in globs]
        if not globs and answer == "deny":
            draft.rules.append(WrittenWord("ask terminal", word.line))
            text = f"{key} has {quoted(written)}, which is not a simple expression; every command needs approval."
            cause = Cause(
                f"have {key} that are not simple expressions; every command needs approval", written
            )
            draft.tell("warning", word.line, text, cause)
        elif not globs:
            text = f"{key} has {quoted(written)}, which is not a simple expression; it was ignored."
            draft.tell(
                "note",
                word.line,
                text,
                Cause(f"have {key} that are not simple expressions and were ignored", written),
            )


def _read_paths(draft: Draft, tools: list[str], answer: str, node: Node) -> None:
    for word in nodes.words(node):
        glob = nodes.text(word).removeprefix("./")
        draft.rules += [WrittenWord(f"{answer} {tool}({glob})", word.line) for tool in tools]


def read_rules(draft: Draft, node: Node) -> None:
    """`permissions`: a list of rules, each with a capability, an effect and optional patterns. Raises Wrong."""
    if not isinstance(node.value, list):
        raise Wrong(f"must be a list of rules, not {nodes.kind(node)}", node.line)
    for rule in node.value:
        entries = nodes.fields(rule)
        if "capability" not in entries or "effect" not in entries:
            raise Wrong("has a rule without `capability` or `effect`", rule.line)
        _read_rule(draft, entries, rule.line)


def _read_rule(draft: Draft, entries: dict[str, Node], line: int) -> None:
    capability = nodes.text(entries["capability"]).strip()
    effect = nodes.choice(entries["effect"], _EFFECTS)
    tools = _CAPABILITIES.get(capability.lower())
    if tools is None:
        draft.tell(
            "warning" if effect == "deny" else "note",
            line,
            f"remit does not have the capability {quoted(capability)}; the rule was ignored.",
        )
        return
    if "exclude" in entries and effect == "allow":
        draft.tell(
            "note", line, "A rule that allows with `exclude` was ignored: remit asks for approval instead."
        )
        return
    if "exclude" in entries:
        draft.tell("warning", line, "`exclude` was ignored: the rule applies to everything that matches.")
    match = entries.get("match")
    patterns = [""] if match is None else [f"({nodes.text(word)})" for word in nodes.words(match)]
    for tool in tools:
        if effect == "deny" and patterns == [""] and "*" not in tool:
            draft.without.append(ToolWord("tool", tool, line=line, written=capability))
        else:
            draft.rules += [WrittenWord(f"{effect} {tool}{pattern}", line) for pattern in patterns]
