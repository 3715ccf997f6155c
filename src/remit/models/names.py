"""Model names, and the messages about names that do not work. A name has one of these forms:

- `provider:model`, such as `anthropic:claude-sonnet-5`, `openai:gpt-5`, `google:gemini-2.5-pro`, `ollama:llama3`,
  `openrouter:...`: every provider that pydantic-ai knows. `openai:` uses the Responses API, `openai-chat:` Chat
  Completions. Keys and addresses come from the environment: `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`,
  `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `OLLAMA_BASE_URL` (defaults to this machine) and so on.
- `http://localhost:8000/v1#model`: a server with the Chat Completions API. If it needs a key, set
  `OPENAI_COMPATIBLE_API_KEY`; remit never sends it the key of OpenAI.
- an alias. Aliases are looked up first, and may refer to another alias.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from urllib.parse import urlsplit

from msgspec import Struct

from remit.errors import UsageError
from remit.types.text import one_line, shorten

SERVER_KEY = "OPENAI_COMPATIBLE_API_KEY"
"""The environment variable with the key of a server given by its address."""

OLLAMA_URL = "http://localhost:11434/v1"
"""The address of Ollama unless `OLLAMA_BASE_URL` is set."""

# The extra of remit that installs a provider; other providers have an extra with their own name.
_EXTRAS = dict.fromkeys(
    (
        "openai-chat",
        "openai-responses",
        "ollama",
        "openrouter",
        "azure",
        "azure-responses",
        "deepseek",
        "together",
        "fireworks",
        "moonshotai",
        "litellm",
        "vllm",
        "cerebras",
        "nebius",
        "vercel",
        "alibaba",
        "zai",
    ),
    "openai",
) | {"google-cloud": "google"}

_OWN_EXTRAS = ("anthropic", "openai", "google", "groq", "mistral", "cohere", "bedrock", "huggingface", "xai")

KNOWN = (*_OWN_EXTRAS, *_EXTRAS)
"""Providers to suggest for a misspelt one; pydantic-ai may know more."""

_FAMILIES = {
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "google",
}
"""Prefixes of model names, and their providers."""

_OTHER_NAMES = {
    "gemini": "google",
    "vertex": "google-cloud",
    "vertexai": "google-cloud",
    "grok": "xai",
    "claude": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
}
"""Other names that people use for a provider."""

_SHOWN = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "google": "Google",
    "openrouter": "OpenRouter",
    "deepseek": "DeepSeek",
    "github-copilot": "GitHub Copilot",
    "groq": "Groq",
    "mistral": "Mistral",
    "cohere": "Cohere",
    "xai": "xAI",
    "bedrock": "Amazon Bedrock",
    "moonshotai": "Moonshot AI",
}

OFFLINE = "offline"
"""The name of the rules that need no provider."""

EXAMPLE = '"anthropic:claude-sonnet-5"'


class Unavailable(UsageError):
    """Raised for a model that cannot be used. `why` and `fix` are short forms of the reason and the remedy, for lists."""

    def __init__(self, message: str, *, provider: str, why: str, fix: str = "") -> None:
        super().__init__(message)
        self.provider = provider
        """Empty if the name does not contain it."""
        self.why = why
        self.fix = fix


class Named(Struct, frozen=True):
    """A parsed name."""

    whole: str
    provider: str
    """Empty for an address."""
    address: str
    """Empty for a provider."""
    model: str

    def of(self, model: str) -> str:
        """The name of another model of the same provider or server."""
        return f"{self.address}#{model}" if self.address else f"{self.provider}:{model}"


def resolve(name: str, aliases: Mapping[str, str]) -> str:
    """Resolve an alias to a model name; other names are unchanged. Raises UsageError for a loop."""
    seen = [name]
    while (target := aliases.get(seen[-1])) is not None:
        if target in seen:
            raise UsageError(
                f"The model alias {name!r} refers to itself: {' -> '.join([*seen, target])}."
                " Let one of these aliases name a model."
            )
        seen.append(target)
    return seen[-1]


def check_aliases(aliases: Mapping[str, str]) -> None:
    """Raise UsageError for an invalid alias, and for a loop."""
    for name, target in aliases.items():
        if not isinstance(name, str) or not isinstance(target, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # from outside
            raise UsageError(f"A model alias must map a name to a name, not {name!r} to {target!r}.")
        resolve(name, aliases)


def take_apart(name: str, aliases: Mapping[str, str]) -> Named:
    """Parse a name. Raises UsageError unless it is `provider:model` or an address."""
    if re.match(r"[a-z]+://", name, re.IGNORECASE):
        return _address(name)
    provider, colon, model = name.partition(":")
    if colon and provider and model.strip():
        return Named(name, provider, "", model)
    if colon and provider:
        raise UsageError(f"The model name {name!r} lacks a model after the colon. Write {EXAMPLE}.")
    near = get_close_matches(name, [*aliases, OFFLINE], n=1)
    hint = _guess(name)
    if near:
        hint = f" Did you mean {'' if near[0] == OFFLINE else 'the alias '}{near[0]!r}?"
    raise Unavailable(
        f"The model name {name!r} lacks a provider. Write it as {EXAMPLE},"
        f' or as the address of a server: "http://localhost:8000/v1#model".{hint}',
        provider="",
        why=f"its name lacks a provider.{hint}".rstrip("."),
        fix="write provider:model",
    )


def _guess(name: str) -> str:
    """A suggestion for a name without a provider, or ""."""
    provider, slash, model = name.partition("/")
    if slash and model and provider in KNOWN:
        return f" Did you mean {f'{provider}:{model}'!r}?"
    if name in KNOWN:
        return f" Add the model of {name} after a colon."
    for beginning, owner in _FAMILIES.items():
        if name.lower().startswith(beginning):
            return f" Did you mean {f'{owner}:{name}'!r}?"
    return ""


def _address(name: str) -> Named:
    address, _, model = name.partition("#")
    check_address(address, f"The model name {name!r}")
    if not model.strip():
        raise UsageError(f'The address {name!r} lacks a model. Write it as "{address}#model".')
    return Named(name, "", address, model)


def check_address(address: str, where: str) -> None:
    """Raise UsageError unless it is an http or https address without a password."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{where} is not a valid address: {error}.") from None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(
            f'{where} is not a valid address: write it like "http://localhost:8000/v1", not {address!r}.'
        )
    if parts.username or parts.password:
        raise UsageError(f"{where} contains a password. Put the key into {SERVER_KEY} instead.")


def unknown_provider(named: Named) -> UsageError:
    provider = named.provider.lower()
    if provider in ("localhost", "127.0.0.1") or "." in provider:
        return UsageError(
            f'The model name {named.whole!r} looks like an address without http://. Write "http://{named.whole}".'
        )
    known = _OTHER_NAMES.get(provider)
    near = [known] if known else get_close_matches(provider, KNOWN, n=1)
    hint = (
        f'Did you mean "{near[0]}:{named.model}"?'
        if near
        else f"Known providers: {', '.join(KNOWN[:6])} and others."
    )
    return Unavailable(
        f"Unknown provider {named.provider!r} in the model name {named.whole!r}. {hint}",
        provider=named.provider,
        why=f"unknown provider {named.provider!r}",
    )


def missing_package(named: Named, error: ImportError) -> UsageError:
    found = re.search(r"pydantic-ai-slim\[([a-z-]+)\]", str(error))
    provider = (named.provider or "openai").lower()
    if found is None and provider not in KNOWN:
        return unknown_provider(named)
    extra = found[1] if found else _EXTRAS.get(provider, provider)
    package = "remit" if extra in (*_OWN_EXTRAS, "openrouter") else "pydantic-ai-slim"
    fix = f"pip install '{package}[{extra}]'"
    return Unavailable(
        f"The model {named.whole!r} needs a package that is not installed. Run: {fix}",
        provider=named.provider,
        why="its package is not installed",
        fix=fix,
    )


def missing_key(named: Named, said: str) -> UsageError:
    """The error about a missing environment variable, which the provider's message `said` names."""
    found = re.search(r"`([A-Z][A-Z0-9_]+)`", said)
    if found is None:
        return UsageError(f"The model {named.whole!r} cannot be used: {shorten(one_line(said), 300, 300)}")
    what = "the address of its server" if found[1].endswith(("_URL", "_ENDPOINT")) else "a key"
    return Unavailable(
        f"The model {named.whole!r} needs {what}: set the environment variable {found[1]}.",
        provider=named.provider,
        why=f"{found[1]} is not set",
        fix=f"set {found[1]}",
    )


def provider_shown(provider: str) -> str:
    """A provider's name for people."""
    return _SHOWN.get(provider) or repr(provider)


def key_variable(provider: str) -> str:
    """The environment variable with a provider's key."""
    known = {"": SERVER_KEY, "huggingface": "HF_TOKEN", "cohere": "CO_API_KEY"}
    return known.get(provider) or f"{_family(provider)}_API_KEY"


def url_variable(provider: str) -> str:
    """The environment variable with a provider's address."""
    return "GOOGLE_GEMINI_BASE_URL" if provider == "google" else f"{_family(provider)}_BASE_URL"


def _family(provider: str) -> str:
    """The prefix of a provider's variables: openai-chat and openai-responses use the variables of openai."""
    base = provider.partition("-")[0] if provider.startswith(("openai-", "azure-")) else provider
    return base.upper().replace("-", "_").replace("/", "_")
