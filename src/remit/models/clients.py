"""The providers' clients of one event loop: one per provider, shared by all models and runs."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol, cast

import anyio
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

import remit.models.names as names
from remit.models.names import Named
from remit.models.openai_shortcut import skip_conversion

log = logging.getLogger("remit")


class _Response(Protocol):
    async def aclose(self) -> None: ...


_begun: ContextVar[list[_Response] | None] = ContextVar("begun", default=None)


@asynccontextmanager
async def closing_responses() -> AsyncGenerator[None]:
    """Close every response that begins inside the block, however the block ends.

    The libraries read a response through nested generators. A cancel in an outer generator leaves the connection open
    until the inner ones are garbage-collected.
    """
    begun: list[_Response] = []
    before = _begun.set(begun)
    try:
        yield
    finally:
        _begun.reset(before)
        with anyio.CancelScope(shield=True):
            for response in begun:
                await response.aclose()


async def _note(response: _Response) -> None:
    begun = _begun.get()
    if begun is not None:
        begun.append(response)


class Clients:
    """Creates each provider and each of its models once."""

    def __init__(self) -> None:
        # Any: each provider wraps another type of client.
        self._providers: dict[object, Provider[Any]] = {}
        self._models: dict[str, Model] = {}

    def model(self, named: Named) -> Model:
        """pydantic-ai's model for a name. Raises UsageError as `Shelf.find` does."""
        if named.whole not in self._models:
            self._models[named.whole] = self._make(named)
        return self._models[named.whole]

    def _make(self, named: Named) -> Model:
        try:
            made = self._at_address(named) if named.address else self._of_provider(named)
        except ImportError as error:
            raise names.missing_package(named, error) from None
        except UserError as error:
            raise names.missing_key(named, str(error)) from None
        base = made.base_url
        if base is not None:
            where = f"The base URL of {named.whole!r} ({names.url_variable(named.provider)})"
            names.check_address(base, where)
        return made

    def _of_provider(self, named: Named) -> Model:
        prefix = named.provider
        variable = names.key_variable(prefix)
        if variable in os.environ and not os.environ[variable].strip():
            raise names.missing_key(named, f"`{variable}`")
        try:
            kind: object = prefix if prefix.startswith("gateway/") else infer_provider_class(prefix)
        except ValueError:
            raise names.unknown_provider(named) from None
        # Two prefixes of one provider, as openai and openai-chat, share its client.
        if kind not in self._providers:
            self._providers[kind] = _tuned(_provider(prefix))
        return infer_model(f"{prefix}:{named.model}", provider_factory=lambda _: self._providers[kind])

    def _at_address(self, named: Named) -> Model:
        from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - the package may be missing
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

        if named.address not in self._providers:
            host = named.address.partition("://")[2].partition("/")[0]
            key = os.environ.get(names.SERVER_KEY)
            made = OpenAICompatibleProvider(host, base_url=named.address, api_key=key)
            self._providers[named.address] = _tuned(made)
        return OpenAIChatModel(named.model, provider=self._providers[named.address])

    async def close(self) -> None:
        """Close every connection. Failures are logged."""
        providers, self._providers = self._providers, {}
        self._models.clear()
        for provider in providers.values():
            try:
                # A provider closes its client when its context is left.
                async with provider:
                    pass
            except Exception:
                log.warning("closing the connections of %s failed", provider.name, exc_info=True)


def _tuned(provider: Provider[Any]) -> Provider[Any]:
    """Turn off the client's retries, and record its responses, where the client supports it."""
    client: object = provider.client
    if isinstance(getattr(client, "max_retries", None), int):
        # On the client: as a setting of each request it would copy the client each time.
        cast(Any, client).max_retries = 0
    skip_conversion(client)
    hooks: object = getattr(getattr(provider, "_own_http_client", None), "event_hooks", None)
    if isinstance(hooks, dict):
        cast(dict[str, list[object]], hooks)["response"].append(_note)
    return provider


def _provider(prefix: str) -> Provider[Any]:
    if prefix == "ollama":
        from pydantic_ai.providers.ollama import OllamaProvider  # noqa: PLC0415 - the package may be missing

        return OllamaProvider(base_url=os.environ.get("OLLAMA_BASE_URL") or names.OLLAMA_URL)
    return infer_provider(prefix)
