"""What agent files call a model, in the form that remit's models have: `provider:name`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from remit.errors import UsageError

INHERIT = frozenset({"inherit", "inherited", "default", "parent", "auto", ""})
"""Words for: the model of whoever delegates."""

ALIASES = {
    "sonnet": "anthropic:claude-sonnet-5",
    "opus": "anthropic:claude-opus-5",
    "haiku": "anthropic:claude-haiku-4-5",
}
"""What Claude Code's aliases stand for, unless the user has aliases of these names."""

_FAMILIES = (
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt", "openai"),
    ("codex", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "google"),
    ("mistral", "mistral"),
    ("codestral", "mistral"),
    ("grok", "xai"),
    ("command-", "cohere"),
)
_SLASH = re.compile(r"([a-z][a-z0-9-]*)/([^\s/].*)")
_SUFFIX = re.compile(r"\[\d+m\]$")
_VENDOR = re.compile(r"(?:\s*\([^()]*\))+$")
"""What VS Code writes behind a model: `Claude Sonnet 4.5 (Preview) (copilot)`."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_address(name: str) -> bool:
    """Whether it says where a model is, so that whoever wrote it decides where conversations go."""
    return _ADDRESS.match(name) is not None


class Meant(NamedTuple):
    """A model's name in remit's form."""

    name: str
    by_alias: bool = False
    """Whether an alias of the user's chose it."""


class Unusable(NamedTuple):
    """Why a model cannot be used here."""

    why: str
    """In a few words: `ANTHROPIC_API_KEY is not set`."""
    cause: str
    """Which models that is true of, and what to do: `models of Anthropic: set ANTHROPIC_API_KEY`."""
    message: str = ""
    """In a sentence, for a person who asked for this very model."""


def read_model(written: str, aliases: Mapping[str, str]) -> Meant | None:
    """What a word means, None for the parent's model; what has no known form is left as it is.

    Raises UsageError for aliases that lead in a circle.
    """
    name = written.strip()
    if name not in aliases:
        name = _VENDOR.sub("", name)
    found = _by_alias(name, aliases) or _by_alias(_SUFFIX.sub("", name).lower(), aliases)
    if found is not None:
        return Meant(found, by_alias=True)
    return None if name.lower() in INHERIT else Meant(_in_form(name))


def means_something(name: str) -> bool:
    """Whether a name stands for a model, or for the parent's, without any alias."""
    name = _SUFFIX.sub("", name.strip())
    return ":" in name or name.lower() in (*INHERIT, "offline") or _in_form(name) != name


def _by_alias(name: str, aliases: Mapping[str, str]) -> str | None:
    if name not in aliases:
        return None
    seen = [name]
    while (target := aliases.get(seen[-1])) is not None:
        if target in seen:
            raise UsageError(f"The model alias {name!r} leads in a circle: {' -> '.join([*seen, target])}.")
        seen.append(target)
    return _in_form(seen[-1])


def _in_form(name: str) -> str:
    if is_address(name) or name == "offline":
        return name
    # Claude Code's way to ask for a long context: sonnet[1m].
    name = _SUFFIX.sub("", name)
    if name.lower() in ALIASES:
        return ALIASES[name.lower()]
    if found := _SLASH.fullmatch(name):
        return f"{found[1]}:{found[2]}"
    if ":" in name:
        return name
    plain = re.sub(r"\s+", "-", name.lower())
    for beginning, provider in _FAMILIES:
        if plain.startswith(beginning):
            # Anthropic writes versions with a hyphen, others write its names with a dot.
            return f"{provider}:{plain.replace('.', '-') if provider == 'anthropic' else plain}"
    return name
