"""The model of a run that names none, and the reason why a named model is unavailable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from remit.definitions.agent_files.model_names import Unusable
from remit.models import Shelf
from remit.models.names import (
    OFFLINE,
    Named,
    Unavailable,
    key_variable,
    missing_key,
    missing_package,
    provider_shown,
    take_apart,
)
from remit.types.text import one_line, shorten


class Provider(NamedTuple):
    """A provider and the model that remit uses if its key is set."""

    keys: tuple[str, ...]
    package: str
    model: str
    extra: str


PROVIDERS = (
    Provider(("ANTHROPIC_API_KEY",), "anthropic", "anthropic:claude-sonnet-5", "anthropic"),
    Provider(("OPENAI_API_KEY",), "openai", "openai:gpt-5", "openai"),
    Provider(("GOOGLE_API_KEY", "GEMINI_API_KEY"), "google.genai", "google:gemini-2.5-pro", "google"),
    Provider(("OPENROUTER_API_KEY",), "openai", "openrouter:anthropic/claude-sonnet-5", "openrouter"),
)
"""In order of preference."""

HOW = (
    "Set an API key, such as ANTHROPIC_API_KEY, and install its package: pip install 'remit[anthropic]'. To choose the"
    " model: --model anthropic:claude-sonnet-5, ollama:llama3 or http://localhost:8000/v1#model, or `model = ...` in"
    " remit.toml. `remit doctor` checks your setup."
)

ONLY_SURVEY = "Without a model, remit can only survey this folder."


class Choice(NamedTuple):
    """A model, and a note on why it was chosen."""

    model: str
    note: str


def choose(environ: Mapping[str, str]) -> Choice:
    """The model of the first provider whose key is set; otherwise the offline rules."""
    lacking = ""
    for provider in PROVIDERS:
        key = next((name for name in provider.keys if environ.get(name)), "")
        if key and is_installed(provider.package):
            return Choice(
                provider.model,
                f"Using the model {provider.model}, because {key} is set. --model chooses another.",
            )
        if key and not lacking:
            lacking = f" {key} is set, but the package for it is not installed: pip install 'remit[{provider.extra}]'."
    note = f"No model was named and no API key is set. {ONLY_SURVEY}{lacking}\n{HOW}"
    return Choice(OFFLINE, note)


def is_installed(package: str) -> bool:
    """Whether a package can be imported. Imports only its parent packages."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def why_not(name: str, environ: Mapping[str, str]) -> Unusable | None:
    """Why a model is unavailable here; None if it is available. Used by runs, `agents --check` and `doctor`."""
    if name == OFFLINE:
        return None
    try:
        named = take_apart(name, {})
        _check_quickly(named, environ)
        _shelf().find(name)
    except Unavailable as error:
        whose = (
            f"models of {provider_shown(error.provider)}" if error.provider else "models without a provider"
        )
        return Unusable(error.why, f"{whose}: {error.fix or error.why}", str(error))
    except Exception as error:  # noqa: BLE001 - provider libraries raise exceptions of many types
        text = shorten(one_line(str(error)), 200, 197).rstrip(".")
        return Unusable(text, f"the model {name!r}: {text}", f"The model {name!r} is unavailable: {text}.")
    return None


def _check_quickly(named: Named, environ: Mapping[str, str]) -> None:
    """Check key and package of the usual providers without an import, which takes a second. Raises Unavailable."""
    known = next((p for p in PROVIDERS if p.model.startswith(f"{named.provider}:")), None)
    if known is None:
        return
    if not any(environ.get(key) for key in known.keys):
        raise missing_key(named, f"`{key_variable(named.provider)}`")
    if not is_installed(known.package):
        raise missing_package(named, ImportError(known.extra))


@cache
def _shelf() -> Shelf:
    """One shared shelf: looking up a model opens no connection."""
    return Shelf()
