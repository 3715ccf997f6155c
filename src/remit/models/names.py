"""What a model may be called, and what to say about a name that does not work.

- `provider:model`, as `anthropic:claude-sonnet-5`, `openai:gpt-5`, `google:gemini-2.5-pro`, `ollama:llama3`,
  `openrouter:...`: every provider that pydantic-ai knows. `openai:` is the Responses API, `openai-chat:` Chat
  Completions. Keys and addresses come from the environment: `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`,
  `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `OLLAMA_BASE_URL` (else this machine's own) and so on.
- `http://localhost:8000/v1#model`: a server that speaks Chat Completions. Its key, if it wants one, is in
  `OPENAI_COMPATIBLE_API_KEY`; the key of OpenAI is never sent there.
- an alias. An alias is looked up first, and may stand for another alias.
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
"""The variable with the key of a server that is named by its address."""

OLLAMA_URL = "http://localhost:11434/v1"
"""Where Ollama listens unless `OLLAMA_BASE_URL` says otherwise."""

# Which extra of remit brings a provider; the rest bring an extra of their own name.
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
"""Providers that are suggested for a misspelt one; pydantic-ai may know more."""

_FAMILIES = {
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "google",
}
"""How the names of models begin, and whose they are."""

_OTHER_NAMES = {
    "gemini": "google",
    "vertex": "google-cloud",
    "vertexai": "google-cloud",
    "grok": "xai",
    "claude": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
}
"""What people call a provider."""

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
"""The rules that need no provider."""

EXAMPLE = '"anthropic:claude-sonnet-5"'


class Unavailable(UsageError):
    """Raised for a model that cannot be used here. `why` says what is missing and `fix` what to do, for lists of them."""

    def __init__(self, message: str, *, provider: str, why: str, fix: str = "") -> None:
        super().__init__(message)
        self.provider = provider
        """Empty where the name does not say it."""
        self.why = why
        self.fix = fix


class Named(Struct, frozen=True):
    """A name, taken apart."""

    whole: str
    provider: str
    """Empty for an address."""
    address: str
    """Empty for a provider."""
    model: str

    def of(self, model: str) -> str:
        """The name of another model at the same place."""
        return f"{self.address}#{model}" if self.address else f"{self.provider}:{model}"


def resolve(name: str, aliases: Mapping[str, str]) -> str:
    """What an alias stands for in the end; any other name itself. Raises UsageError for a circle."""
    seen = [name]
    while (target := aliases.get(seen[-1])) is not None:
        if target in seen:
            raise UsageError(
                f"The model alias {name!r} leads in a circle: {' -> '.join([*seen, target])}."
                " Let one of them name a model."
            )
        seen.append(target)
    return seen[-1]


def check_aliases(aliases: Mapping[str, str]) -> None:
    """Raises UsageError for what is no alias, and for circles."""
    for name, target in aliases.items():
        if not isinstance(name, str) or not isinstance(target, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # from outside
            raise UsageError(f"A model alias must be a name for a name, not {name!r}: {target!r}.")
        resolve(name, aliases)


def take_apart(name: str, aliases: Mapping[str, str]) -> Named:
    """Raises UsageError for a name that is neither `provider:model` nor an address."""
    if re.match(r"[a-z]+://", name, re.IGNORECASE):
        return _address(name)
    provider, colon, model = name.partition(":")
    if colon and provider and model.strip():
        return Named(name, provider, "", model)
    if colon and provider:
        raise UsageError(f"The model name {name!r} names no model after the colon. Write {EXAMPLE}.")
    near = get_close_matches(name, [*aliases, OFFLINE], n=1)
    hint = _guess(name)
    if near:
        hint = f" Did you mean {'' if near[0] == OFFLINE else 'the alias '}{near[0]!r}?"
    raise Unavailable(
        f"The model name {name!r} does not say which provider has it. Write it as {EXAMPLE},"
        f' or as the address of a server: "http://localhost:8000/v1#model".{hint}',
        provider="",
        why=f"its name does not say which provider has it.{hint}".rstrip("."),
        fix="write provider:model",
    )


def _guess(name: str) -> str:
    """What a name without a provider was probably meant to be."""
    provider, slash, model = name.partition("/")
    if slash and model and provider in KNOWN:
        return f" Did you mean {f'{provider}:{model}'!r}?"
    if name in KNOWN:
        return f" Which model of {name}? Write it behind a colon."
    for beginning, owner in _FAMILIES.items():
        if name.lower().startswith(beginning):
            return f" Did you mean {f'{owner}:{name}'!r}?"
    return ""


def _address(name: str) -> Named:
    address, _, model = name.partition("#")
    check_address(address, f"The model name {name!r}")
    if not model.strip():
        raise UsageError(f'The address {name!r} does not say which model. Write it as "{address}#model".')
    return Named(name, "", address, model)


def check_address(address: str, where: str) -> None:
    """Raises UsageError unless it is the address of a web server without a password in it."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{where} is no valid address: {error}.") from None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(
            f'{where} is no valid address: it must look like "http://localhost:8000/v1", not {address!r}.'
        )
    if parts.username or parts.password:
        raise UsageError(f"{where} has a password in its address. Put the key into {SERVER_KEY} instead.")


def unknown_provider(named: Named) -> UsageError:
    provider = named.provider.lower()
    if provider in ("localhost", "127.0.0.1") or "." in provider:
        return UsageError(
            f'The model name {named.whole!r} looks like an address without its beginning. Write "http://{named.whole}".'
        )
    known = _OTHER_NAMES.get(provider)
    near = [known] if known else get_close_matches(provider, KNOWN, n=1)
    hint = (
        f'Did you mean "{near[0]}:{named.model}"?' if near else f"Known are {', '.join(KNOWN[:6])} and more."
    )
    return Unavailable(
        f"There is no provider {named.provider!r} (in the model name {named.whole!r}). {hint}",
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
    """Something of the environment is missing; the provider's own words name it."""
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
    """A provider for people."""
    return _SHOWN.get(provider) or repr(provider)


def key_variable(provider: str) -> str:
    """The variable that holds a provider's key."""
    known = {"": SERVER_KEY, "huggingface": "HF_TOKEN", "cohere": "CO_API_KEY"}
    return known.get(provider) or f"{_family(provider)}_API_KEY"


def url_variable(provider: str) -> str:
    """The variable that holds a provider's address."""
    return "GOOGLE_GEMINI_BASE_URL" if provider == "google" else f"{_family(provider)}_BASE_URL"


def _family(provider: str) -> str:
    """openai-chat and openai-responses are set up as openai."""
    base = provider.partition("-")[0] if provider.startswith(("openai-", "azure-")) else provider
    return base.upper().replace("-", "_").replace("/", "_")
