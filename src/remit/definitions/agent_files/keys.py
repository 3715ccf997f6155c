"""The keys of agent files, including those of other systems, and the function that reads each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, cast

import remit.definitions.agent_files.kiro as kiro
import remit.definitions.agent_files.permissions as permissions
import remit.definitions.syntax.nodes as nodes
from remit.definitions.agent_files.definition import Draft, WrittenWord
from remit.definitions.agent_files.formats import Format
from remit.definitions.agent_files.limit_values import read_limit, read_named, read_pairs, seconds
from remit.definitions.agent_files.model_names import INHERIT
from remit.definitions.agent_files.tool_names import ToolWord
from remit.definitions.syntax.header_lines import Vocabulary, plain_key
from remit.definitions.syntax.nodes import Cause, Level, Node, Wrong, quoted
from remit.tools.bounded_toml import DEEPEST
from remit.types.messages import Json
from remit.types.text import clean

Setter = Callable[[Draft, Node], None]

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MOST_DESCRIPTION = 20_000
"""Characters. Every delegating model reads the description with every request."""


def _name(draft: Draft, node: Node) -> None:
    written = " ".join(shown(nodes.text(node)).split())
    if written:
        draft.name = WrittenWord(written, node.line)
    else:
        draft.tell("warning", node.line, "name is empty.")


def _description(draft: Draft, node: Node) -> None:
    written = shown(nodes.text(node)).strip()
    if len(written) > MOST_DESCRIPTION:
        draft.tell(
            "warning",
            node.line,
            f"description has {len(written):,} characters; only the first {MOST_DESCRIPTION:,} are used.",
        )
    before = draft.description if "when_to_use" in draft.lines else ""
    draft.description = f"{written[:MOST_DESCRIPTION]}\n\n{before}".strip()[:MOST_DESCRIPTION]


def _when_to_use(draft: Draft, node: Node) -> None:
    written = shown(nodes.text(node)).strip()
    draft.description = f"{draft.description}\n\n{written}".strip()[:MOST_DESCRIPTION]


_UNSEEN = dict.fromkeys(
    (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
)


def shown(written: str) -> str:
    """The text without control characters and without characters that change the reading direction."""
    return clean(written).translate(_UNSEEN)


def _instructions(draft: Draft, node: Node) -> None:
    written = nodes.text(node).strip()
    if draft.prompts is not None and draft.format == "kiro":
        written = draft.prompts.of_kiro(written, node.line)
    elif draft.prompts is not None and draft.format == "opencode":
        written = draft.prompts.of_opencode(written, node.line)
    draft.instructions.append(written)


def _model(draft: Draft, node: Node) -> None:
    if isinstance(node.value, dict):
        _apply(
            draft,
            node.value,
            "model",
            {
                "name": _model,
                "model": _model,
                "temp": _temperature,
                "temperature": _temperature,
                "top_p": _top_p,
            },
        )
        return
    words = nodes.words(node) if isinstance(node.value, list) else [node]
    # Some files list several models as `GPT-4.1 | 'gpt-5'`.
    written = [name.strip(" \t'\"") for word in words for name in nodes.text(word).split("|")]
    draft.models += [name for name in written if name.lower() not in INHERIT]


def _fallbacks(draft: Draft, node: Node) -> None:
    draft.models += [nodes.text(word) for word in nodes.words(node)]


def _temperature(draft: Draft, node: Node) -> None:
    _number(draft, "temperature", node)


def _top_p(draft: Draft, node: Node) -> None:
    _number(draft, "top_p", node)


def _number(draft: Draft, key: str, node: Node) -> None:
    value = nodes.number(node)
    if value is not None:
        draft.settings[key] = value


def _effort(draft: Draft, node: Node) -> None:
    if nodes.text(node).strip().lower() in INHERIT:
        return
    word = nodes.choice(node, EFFORTS)
    draft.settings["thinking"] = False if word == "none" else word


def _output_tokens(draft: Draft, node: Node) -> None:
    most = nodes.whole(node)
    if most is not None and most < 1:
        raise Wrong("must be at least 1", node.line)
    if most is not None:
        draft.settings["max_output_tokens"] = most


def _settings(draft: Draft, node: Node) -> None:
    draft.settings |= {key: nodes.to_json(inner) for key, inner in nodes.fields(node).items()}


def _limits(draft: Draft, node: Node) -> None:
    if isinstance(node.value, dict):
        draft.limits |= {name: read_named(name, inner) for name, inner in node.value.items()}
    else:
        draft.limits |= read_pairs(node)


def _limit(name: str) -> Setter:
    def set_limit(draft: Draft, node: Node) -> None:
        draft.limits[name] = read_limit(name, node)

    return set_limit


def _time(factor: float) -> Setter:
    def set_time(draft: Draft, node: Node) -> None:
        found = seconds(node)
        draft.limits["seconds"] = None if found is None else found * factor

    return set_time


def _servers(draft: Draft, node: Node) -> None:
    """Names of servers, server descriptions, or a list of both."""
    if isinstance(node.value, dict):
        draft.own_servers |= node.value
        return
    entries = node.value if isinstance(node.value, list) else nodes.words(node)
    for entry in entries:
        if isinstance(entry.value, dict):
            draft.own_servers |= entry.value
        else:
            draft.servers.append(WrittenWord(nodes.text(entry).strip(), entry.line))


def _subagents(draft: Draft, node: Node) -> None:
    """Names of agents; `*` for all agents. In Copilot files an empty list forbids delegation."""
    if draft.format == "copilot" and node.value == []:
        draft.without.append(ToolWord("delegate", "agent", line=node.line, written="agents"))
    if isinstance(node.value, dict):
        chosen = {name: inner for name, inner in node.value.items() if inner.value not in (False, "false")}
        draft.subagents += [WrittenWord(name, inner.line) for name, inner in chosen.items()]
        return
    draft.subagents += [WrittenWord(nodes.text(word).strip(), word.line) for word in nodes.words(node)]


def _mode(draft: Draft, node: Node) -> None:
    word = nodes.text(node).strip().lower()
    if word == "primary":
        draft.is_primary = True
    elif word not in ("subagent", "all", ""):
        draft.tell(
            "warning",
            node.line,
            f"mode must be subagent, primary or all, not {quoted(word)}; it was ignored.",
        )


def _by_people_only(draft: Draft, node: Node) -> None:
    draft.is_primary = nodes.flag(node)


def _by_models_too(draft: Draft, node: Node) -> None:
    draft.is_primary = not nodes.flag(node)


def _off(draft: Draft, node: Node) -> None:
    draft.is_off = nodes.flag(node)


def _on(draft: Draft, node: Node) -> None:
    draft.is_off = not nodes.flag(node)


def _surface(draft: Draft, node: Node) -> None:
    word = nodes.choice(node, ("task", "subagent_<name>", "subagent"))
    draft.surface = "task" if word == "task" else "subagent_<name>"


def _adhoc(draft: Draft, node: Node) -> None:
    draft.adhoc = nodes.flag(node)


def _summary(draft: Draft, node: Node) -> None:
    draft.summary = cast(
        'Literal["never", "auto", "always"]', nodes.choice(node, ("never", "auto", "always"))
    )


def _output(draft: Draft, node: Node) -> None:
    found = nodes.to_json(node)
    if isinstance(found, str):
        found = _from_text(found, node)
    if not isinstance(found, dict):
        raise Wrong("must be a JSON schema: a mapping with `type` and `properties`", node.line)
    draft.output = cast("dict[str, Json]", found)


def _from_text(written: str, node: Node) -> object:
    import json  # noqa: PLC0415 - few files have a schema as text

    try:
        found = cast(object, json.loads(written))
    except (ValueError, RecursionError):
        raise Wrong(f"must be a JSON schema, not {quoted(written)}", node.line) from None
    if _is_deep(found):
        raise Wrong(f"is nested more than {DEEPEST} levels deep", node.line)
    return found


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inner = [cast("dict[str, object]", each).values() for each in level if isinstance(each, dict)]
        inner += [cast("list[object]", each) for each in level if isinstance(each, list)]
        level = [each for values in inner for each in values]
    return bool(level)


def _nickname(draft: Draft, node: Node) -> None:
    draft.nickname = " ".join(shown(nodes.text(node)).split())[:100] or None


def _nicknames(draft: Draft, node: Node) -> None:
    names = nodes.words(node)
    if names:
        _nickname(draft, names[0])


def _run_config(draft: Draft, node: Node) -> None:
    _apply(
        draft, nodes.fields(node), "runConfig", {"max_turns": _limit("turns"), "max_time_minutes": _time(60)}
    )


def _ignored(draft: Draft, node: Node) -> None:
    """For keys that do not affect how an agent works."""
    del draft, node


def _unused(what: str) -> Setter:
    def tell(draft: Draft, node: Node) -> None:
        text = f"remit does not support {what}; this key has no effect."
        draft.tell("note", node.line, text, Cause("have keys that have no effect here", what))

    return tell


def _apply(draft: Draft, entries: Mapping[str, Node], where: str, setters: Mapping[str, Setter]) -> None:
    for key, node in entries.items():
        if key in setters:
            setters[key](draft, node)
        else:
            draft.tell("note", node.line, f"{where} has {quoted(key)}, which has no effect here.")


_SETTERS: dict[str, tuple[Setter, str]] = {
    "name": (_name, "name"),
    "description": (_description, "description"),
    "when_to_use": (_when_to_use, "whenToUse"),
    "instructions": (_instructions, "instructions prompt systemPrompt developerInstructions roleDefinition"),
    "model": (_model, "model modelConfig"),
    "fallback_models": (_fallbacks, "fallbackModels fallbackModel fallbacks"),
    "tools": (permissions.read_tools, "tools allowedTools toolNames builtinTools"),
    "disallowedTools": (permissions.read_without, "disallowedTools deniedTools excludeTools disabledTools"),
    "permissionMode": (permissions.read_mode, "permissionMode approvalMode approvalPolicy"),
    "permission": (permissions.read_permission, "permission permissions"),
    "policy": (permissions.read_policy, "policy"),
    "sandbox": (permissions.read_sandbox_key, "sandbox sandboxMode"),
    "readOnly": (permissions.read_only, "readOnly"),
    "mcpServers": (_servers, "mcpServers mcp"),
    "subagents": (_subagents, "subagents agents"),
    "limits": (_limits, "limits"),
    "maxTurns": (_limit("turns"), "maxTurns turns steps maxSteps maxIterations"),
    "timeout": (_time(1), "timeout timeoutSeconds timeoutSecs"),
    "timeout_mins": (_time(60), "timeoutMins timeoutMinutes maxTimeMinutes"),
    "timeout_ms": (_time(0.001), "timeoutMs"),
    "budget": (_limit("usd"), "budget budgetUsd maxBudgetUsd maxCostUsd"),
    "max_depth": (_limit("depth"), "maxDepth maxSubagentDepth"),
    "max_delegations": (_limit("delegations"), "maxDelegations maxSubagentDelegations"),
    "max_tool_calls": (_limit("calls"), "maxToolCalls"),
    "runConfig": (_run_config, "runConfig"),
    "temperature": (_temperature, "temperature"),
    "top_p": (_top_p, "topP"),
    "effort": (_effort, "effort reasoningEffort modelReasoningEffort thinkingLevel"),
    "max_output_tokens": (_output_tokens, "maxOutputTokens maxTokens"),
    "settings": (_settings, "settings modelSettings"),
    "nickname": (_nickname, "nickname displayName title"),
    "nickname_candidates": (_nicknames, "nicknameCandidates"),
    "mode": (_mode, "mode"),
    "disable": (_off, "disable disabled"),
    "enabled": (_on, "enabled"),
    "surface": (_surface, "surface"),
    "adhoc": (_adhoc, "adhoc"),
    "summary": (_summary, "summary"),
    "output": (_output, "output outputSchema outputType responseFormat"),
    "hooks": (_unused("hooks"), "hooks"),
    "skills": (_unused("skills"), "skills skillsConfig"),
    "memory": (_unused("memory between runs"), "memory"),
    "isolation": (_unused("worktrees"), "isolation worktree"),
    "background": (_unused("background runs"), "background runInBackground"),
    "initialPrompt": (_unused("first prompts"), "initialPrompt"),
    "features": (_unused("feature switches"), "features"),
    "handoffs": (_unused("handoffs"), "handoffs"),
    "resources": (_unused("resources"), "resources"),
}
_OF_FORMAT: dict[Format, dict[str, Setter]] = {
    "kiro": {
        "allowedTools": kiro.read_allowed,
        "toolsSettings": kiro.read_tools_settings,
        "permissions": kiro.read_rules,
        **dict.fromkeys(("toolAliases", "includeMcpJson", "useLegacyMcpJson"), _ignored),
        **dict.fromkeys(("welcomeMessage", "keyboardShortcut", "$schema"), _ignored),
    },
    "copilot": {"disableModelInvocation": _by_people_only, "infer": _by_models_too},
    "cursor": {"isBackground": _unused("background runs")},
    "roo": {
        "customInstructions": _instructions,
        **dict.fromkeys(("source", "rulesFiles", "iconName"), _ignored),
    },
}
"""Keys with another meaning in one system's files, or with a meaning only there."""
_SILENT = (
    "color colour icon emoji avatar kind version author tags tag category categories license metadata hidden priority"
    " argumentHint userInvocable disableModelInvocation tier id date created updated createdAt updatedAt lastUpdated"
    " proactive infer variant theme compatibility maxTokensPerTurn cacheControl thinking modelVerbosity"
    " modelReasoningSummary modelProvider personality webSearch"
)
_HEADINGS = (
    "examples example triggers trigger domain role capabilities expertise language languages inputs level type target"
    " group order specialties"
)
"""Keys of some files that are more often headings in a description. They do not end a text value."""

_FORGIVING = (
    "temperature",
    "top_p",
    "effort",
    "max_output_tokens",
    "nickname",
    "nickname_candidates",
    "memory",
)
"""Keys whose bad value is a warning, not an error: none of them restricts an agent."""

_BY_KEY: dict[str, tuple[str, Setter]] = {
    plain_key(key): (key, _ignored) for key in f"{_SILENT} {_HEADINGS}".split()
} | {
    plain_key(spelling): (key, setter)
    for key, (setter, spellings) in _SETTERS.items()
    for spelling in spellings.split()
}

_BY_FORMAT = {
    form: {plain_key(key): (key, setter) for key, setter in setters.items()}
    for form, setters in _OF_FORMAT.items()
}

VOCABULARY = Vocabulary(
    known=frozenset(_BY_KEY).union(*_BY_FORMAT.values()) - frozenset(_HEADINGS.split()),
    texts=frozenset(map(plain_key, ["description", "whenToUse", "instructions", "prompt", "systemPrompt"])),
)


def read_keys(draft: Draft, entries: Mapping[str, Node], *, unknown: Level = "warning") -> None:
    """Set the value of each entry in the draft, and report the entries that cannot be used."""
    for written, node in entries.items():
        plain = plain_key(written)
        found = _BY_FORMAT.get(draft.format, {}).get(plain) or _BY_KEY.get(plain)
        if found is None:
            near = draft.hints.nearest(written, (key for key, _ in _BY_KEY.values()))
            hint, about = "", quoted(written)
            if near is not None:
                hint, about = f" Did you mean {near!r}?", f"{about} (did you mean {near!r}?)"
            passed = "; it was ignored" if unknown == "warning" else ""
            cause = Cause("have keys that remit does not know", about) if passed else None
            draft.tell(unknown, node.line, f"Unknown key {quoted(written)}{passed}.{hint}", cause)
            continue
        key, setter = found
        if key in draft.lines:
            draft.tell(
                "warning",
                node.line,
                f"{written} repeats line {draft.lines[key]}; this line is used.",
            )
        draft.lines[key] = node.line
        try:
            setter(draft, node)
        except Wrong as wrong:
            level = "warning" if key in _FORGIVING else "error"
            draft.tell(level, wrong.line or node.line, f"{written} {wrong.text}.")
