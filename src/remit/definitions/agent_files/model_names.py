"""Model names of agent files, in remit's form: `provider:name`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from remit.errors import UsageError

INHERIT = frozenset({"inherit", "inherited", "default", "parent", "auto", ""})
"""Words that mean: inherit the parent's model."""

ALIASES = {
    "sonnet": "anthropic:claude-sonnet-5",
    "opus": "anthropic:claude-opus-5",
    "haiku": "anthropic:claude-haiku-4-5",
}
"""The models behind Claude Code's aliases, unless the user defines aliases with these names."""

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
"""The suffix that VS Code adds to a model: `Claude Sonnet 4.5 (Preview) (copilot)`."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_address(name: str) -> bool:
    """Whether the name is an address, so that the file would choose where conversations are sent."""
    return _ADDRESS.match(name) is not None


class Meant(NamedTuple):
    """A model's name in remit's form."""

    name: str
    by_alias: bool = False
    """Whether one of the user's aliases chose the model."""


class Unusable(NamedTuple):
    """Why a model cannot be used here."""

    why: str
    """In a few words: `ANTHROPIC_API_KEY is not set`."""
    cause: str
    """Which models are affected, and what to do: `models of Anthropic: set ANTHROPIC_API_KEY`."""
    message: str = ""
    """A full sentence, for a person who asked for exactly this model."""


def read_model(written: str, aliases: Mapping[str, str]) -> Meant | None:
    """The model that a word means; None for the parent's model. A name in no known form is returned unchanged.

    Raises UsageError for aliases that form a cycle.
    """
    name = written.strip()
    if name not in aliases:
        name = _VENDOR.sub("", name)
    found = _by_alias(name, aliases) or _by_alias(_SUFFIX.sub("", name).lower(), aliases)
    if found is not None:
        return Meant(found, by_alias=True)
    return None if name.lower() in INHERIT else Meant(_in_form(name))


def means_something(name: str) -> bool:
    """Whether a name means a model, or the parent's model, without any alias."""
    name = _SUFFIX.sub("", name.strip())
    return ":" in name or name.lower() in (*INHERIT, "offline") or _in_form(name) != name


def _by_alias(name: str, aliases: Mapping[str, str]) -> str | None:
    if name not in aliases:
        return None
    seen = [name]
    while (target := aliases.get(seen[-1])) is not None:
        if target in seen:
            raise UsageError(f"The model alias {name!r} refers to itself: {' -> '.join([*seen, target])}.")
        seen.append(target)
    return _in_form(seen[-1])


def _in_form(name: str) -> str:
    if is_address(name) or name == "offline":
        return name
    # Claude Code's notation for a long context: sonnet[1m].
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
