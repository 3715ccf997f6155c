"""Tools and permissions of agent files, in remit's terms: tools to add, tools to remove, rules, sandboxes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import remit.definitions.syntax.nodes as nodes
from remit.definitions.agent_files.definition import Draft, WrittenWord
from remit.definitions.agent_files.tool_names import ALSO, ToolWord, read_word, read_words
from remit.definitions.syntax.nodes import Node, Wrong, quoted
from remit.errors import UsageError
from remit.tools.policy_rules import parse
from remit.types.sandbox import OPEN, Sandbox, read_sandbox

READ_ONLY = Sandbox("read-only", network=True)
_MODES = {
    "plan": "read-only",
    "readonly": "read-only",
    "read-only": "read-only",
    **dict.fromkeys(("default", "manual", "ask", "prompt", "delegate"), ""),
    **dict.fromkeys(("acceptedits", "auto-edit", "autoedit", "auto_edit"), "wide"),
    **dict.fromkeys(("bypasspermissions", "dontask", "auto", "yolo", "full-auto"), "wide"),
}
_VERDICTS = ("allow", "ask", "deny")


def read_tools(draft: Draft, node: Node) -> None:
    """`tools`: a list, text with commas, opencode's mapping of names to true or false, or true or false."""
    if isinstance(node.value, dict):
        _read_switches(draft, node.value)
        return
    value = node.value.strip().lower() if isinstance(node.value, str) else node.value
    if value in (True, "true"):
        draft.tools = None
    elif value in (False, None, "false", "none", ""):
        draft.tools = []
    else:
        words = [
            word
            for item in nodes.words(node)
            for word in read_words(nodes.text(item), item.line, draft.format)
        ]
        draft.tools = None if any(word.kind == "all" for word in words) and len(words) == 1 else words


def _read_switches(draft: Draft, switches: dict[str, Node]) -> None:
    chosen, refused = list[ToolWord](), list[ToolWord]()
    for name, node in switches.items():
        (chosen if nodes.flag(node) else refused).append(read_word(name, node.line))
    if any(word.kind == "all" for word in refused):
        draft.tools = chosen
    else:
        draft.tools = None
        draft.without += refused


def read_without(draft: Draft, node: Node) -> None:
    for word in nodes.words(node):
        for found in read_words(nodes.text(word), word.line, draft.format):
            if found.within and found.kind == "tool":
                draft.rules.append(WrittenWord(f"deny {found.name}({found.within})", word.line))
            else:
                draft.without.append(found)


def read_mode(draft: Draft, node: Node) -> None:
    """`permissionMode`. Modes that widen permissions are ignored: files cannot grant themselves permissions."""
    word = nodes.text(node).strip()
    meant = _MODES.get(word.lower())
    if meant == "read-only":
        draft.narrow(READ_ONLY)
    elif meant == "wide":
        draft.tell(
            "note",
            node.line,
            f"The permission mode {quoted(word)} was ignored, because a file cannot widen permissions; allow tools with --allow, --yes or your own policy.",
        )
    elif meant is None:
        draft.tell("warning", node.line, f"Unknown permission mode {quoted(word)}; it was ignored.")


def read_permission(draft: Draft, node: Node) -> None:
    """opencode's `permission`: one verdict for everything, one for each tool, or several by pattern."""
    if not isinstance(node.value, dict):
        draft.rules.append(WrittenWord(f"{nodes.choice(node, _VERDICTS)} *", node.line))
        return
    for name, inner in _after_star(draft, node.value):
        word = read_word(name, inner.line)
        if word.kind == "delegate":
            _read_task_permission(draft, inner)
        elif word.kind in ("tool", "all", "server"):
            for tool in _tools_of(word):
                _read_verdicts(draft, tool, inner)
        elif word.kind == "other":
            draft.tell(
                "note",
                inner.line,
                f"The permission for {quoted(name)} is about a tool that remit does not have.",
            )


def _after_star(draft: Draft, entries: dict[str, Node]) -> Iterable[tuple[str, Node]]:
    """The entries that apply. In opencode the last match decides, so only entries after `"*": deny` apply."""
    star = entries.get("*")
    if star is None or star.value != "deny":
        return entries.items()
    names = list(entries)
    left = [(name, entries[name]) for name in names[names.index("*") + 1 :]]
    draft.ceiling = [
        ToolWord(word.kind, tool, word.within, word.tool, node.line, name)
        for name, node in left
        if node.value != "deny"
        for word in read_words(name, node.line, draft.format)
        for tool in ((word.name, *ALSO.get(word.name, ())) if word.kind == "tool" else (word.name,))
    ]
    return left


def _tools_of(word: ToolWord) -> Iterable[str]:
    if word.kind == "server":
        return (f"mcp__{word.name}__{word.tool or '*'}",)
    return (word.name, *ALSO.get(word.name, ()))


def _read_verdicts(draft: Draft, tool: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        verdict = nodes.choice(node, _VERDICTS)
        if verdict == "deny" and "*" not in tool:
            draft.without.append(ToolWord("tool", tool, line=node.line, written=tool))
        else:
            draft.rules.append(WrittenWord(f"{verdict} {tool}", node.line))
        return
    by_pattern = {pattern: nodes.choice(inner, _VERDICTS) for pattern, inner in node.value.items()}
    for pattern, verdict in by_pattern.items():
        line = node.value[pattern].line
        if verdict == "allow" and by_pattern.get("*") == "deny":
            # In opencode the last match decides, so only calls that match these patterns are allowed.
            draft.only.append(ToolWord("tool", tool, pattern, line=line, written=pattern))
        elif pattern != "*" or verdict != "deny" or "allow" not in by_pattern.values():
            draft.rules.append(WrittenWord(f"{verdict} {tool}({pattern})", line))


def _read_task_permission(draft: Draft, node: Node) -> None:
    if not isinstance(node.value, dict):
        verdict = nodes.choice(node, _VERDICTS)
        if verdict == "deny":
            draft.without.append(ToolWord("delegate", "task", line=node.line, written="task"))
        elif draft.tools is not None:
            draft.tools.append(ToolWord("delegate", "task", line=node.line, written="task"))
        return
    allowed = [
        WrittenWord(name, inner.line)
        for name, inner in node.value.items()
        if nodes.choice(inner, _VERDICTS) != "deny" and not any(char in name for char in "*?[")
    ]
    draft.subagents += allowed


def read_policy(draft: Draft, node: Node) -> None:
    """remit's `policy`: a list of rules, or lists of tools by answer."""
    draft.rules += policy_rules(node)


def policy_rules(node: Node) -> list[WrittenWord]:
    """Rules such as `ask terminal(git push*)`. Raises Wrong."""
    found = list[WrittenWord]()
    if isinstance(node.value, dict):
        for answer, inner in node.value.items():
            if answer not in _VERDICTS:
                raise Wrong(
                    f"has {quoted(answer)}; it may have allow, ask and deny, each a list of tools", inner.line
                )
            found += [
                WrittenWord(f"{answer} {_tool_rule(nodes.text(word))}", word.line)
                for word in nodes.words(inner)
            ]
    else:
        found += [WrittenWord(_renamed(nodes.text(word)), word.line) for word in nodes.words(node)]
    return [_checked(rule) for rule in found]


def _checked(rule: WrittenWord) -> WrittenWord:
    """The rule in normal form, so that its spelling does not matter."""
    try:
        return rule._replace(text=str(parse(rule.text, "policy")))
    except UsageError as error:
        raise Wrong(str(error).removeprefix("policy: policy ").rstrip("."), rule.line) from None


def _renamed(rule: str) -> str:
    answer, *rest = rule.split(None, 1) or [""]
    return f"{answer} {_tool_rule(rest[0])}" if rest else rule


def _tool_rule(written: str) -> str:
    """`Bash(git *)` as `terminal(git *)`; unknown names and patterns are unchanged."""
    word = read_word(written, 0)
    if word.kind != "tool":
        return written.strip()
    return f"{word.name}({word.within})" if word.within else word.name


def read_sandbox_key(draft: Draft, node: Node) -> None:
    draft.narrow(sandbox_of(node))


def sandbox_of(node: Node) -> Sandbox:
    """A sandbox in remit's words or Codex's. Raises Wrong."""
    word = nodes.text(node).strip().lower().replace("_", "-")
    if word in ("danger-full-access", "full-access", "none", "off"):
        return OPEN
    try:
        found = read_sandbox(word, "sandbox")
    except UsageError as error:
        raise Wrong(str(error).removeprefix("sandbox: sandbox ").rstrip("."), node.line) from None
    assert found is not None
    return found


def read_only(draft: Draft, node: Node) -> None:
    if nodes.flag(node):
        draft.narrow(READ_ONLY)


def removes(word: ToolWord, name: str) -> bool:
    """Whether an entry of the removed tools covers this tool."""
    if word.kind == "all":
        return True
    if word.kind in ("tool", "other"):
        return fnmatch.fnmatchcase(name, word.name)
    return False
