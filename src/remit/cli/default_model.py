"""Which model a run gets when nobody named one, and why a model that somebody named cannot be used."""

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
    """What is taken of a provider whose key is there."""

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
"""In this order."""

HOW = (
    "To choose a model: --model anthropic:claude-sonnet-5 (or openai:gpt-5, google:gemini-2.5-pro, ollama:llama3,\n"
    "http://localhost:8000/v1#model), or `model = ...` in remit.toml. It needs its package, pip install 'remit[anthropic]',\n"
    "and its key in the environment, ANTHROPIC_API_KEY. `remit doctor` says what is there."
)


class Choice(NamedTuple):
    """A model, and what there is to say about why it is that one."""

    model: str
    note: str


def choose(environ: Mapping[str, str]) -> Choice:
    """The model of the first provider whose key is there; otherwise the offline rules."""
    lacking = ""
    for provider in PROVIDERS:
        key = next((name for name in provider.keys if environ.get(name)), "")
        if key and is_installed(provider.package):
            return Choice(
                provider.model,
                f"The model is {provider.model}, because there is {key}; --model chooses another.",
            )
        if key and not lacking:
            lacking = (
                f" There is {key}, but its package is not installed: pip install 'remit[{provider.extra}]'."
            )
    note = (
        "No model was named and no key was found, so there are only the built-in offline rules. They are no language"
        f" model: they can survey this folder, and nothing else.{lacking}\n{HOW}"
    )
    return Choice(OFFLINE, note)


def is_installed(package: str) -> bool:
    """Whether it could be imported; only its parents are."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def why_not(name: str, environ: Mapping[str, str]) -> Unusable | None:
    """Why a model cannot be used here; None when it can. The one answer for a run, `agents --check` and `doctor`."""
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
    except Exception as error:  # noqa: BLE001 - libraries of providers raise what they like over what is missing
        said = shorten(one_line(str(error)), 200, 197)
        return Unusable(said.rstrip("."), f"the model {name!r}: {said}".rstrip("."), said)
    return None


def _check_quickly(named: Named, environ: Mapping[str, str]) -> None:
    """What can be known of the usual providers without an import, which takes a second. Raises Unavailable."""
    known = next((p for p in PROVIDERS if p.model.startswith(f"{named.provider}:")), None)
    if known is None:
        return
    if not any(environ.get(key) for key in known.keys):
        raise missing_key(named, f"`{key_variable(named.provider)}`")
    if not is_installed(known.package):
        raise missing_package(named, ImportError(known.extra))


@cache
def _shelf() -> Shelf:
    """One for all questions: it opens no connection."""
    return Shelf()
