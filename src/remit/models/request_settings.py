"""The settings of a request: those that remit sets, those that the user may set, and unknown ones.

Users write pydantic-ai's names: `temperature`, `thinking`, `parallel_tool_calls`, ..., and a provider's settings with its
name as a prefix, such as `anthropic_effort`; `max_output_tokens` is remit's own. Settings of other providers are dropped,
so that the same settings work for a model and its fallbacks. remit turns prompt caching on for providers that need to be
asked; `cache: False` turns it off.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import cast

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from remit.errors import UsageError
from remit.models.names import KNOWN
from remit.types.messages import Request
from remit.types.spelling import suggest

CLIENT_TIMEOUT_S = 24 * 3600.0
"""The clients' own read timeout, long enough that the run's timeout always comes first."""

_OURS = {
    "max_tokens": "max_output_tokens",
    "tool_choice": "",
    "max_retries": "",
    "timeout": "Limits(stall_seconds=...)",
    "request_timeout": "Limits(seconds=...)",
    "first_event_timeout": "Limits(stall_seconds=...)",
}
"""Settings that remit sets itself, and what to use instead; "" if there is nothing."""


def merge(request: Request, model: Model, name: str) -> ModelSettings:
    """The settings of a request. Raises UsageError as `check` does."""
    check(request.settings, model, name)
    known = _names(type(model))
    merged: dict[str, object] = {"cache": True}
    merged |= {key: value for key, value in request.settings.items() if key in known}
    merged["max_tokens"] = request.max_output_tokens
    if request.tools and request.tool_choice == "none":
        merged["tool_choice"] = "none"
    # A client without such a setting has no retries or timeout to turn off, and would warn.
    clients_own = {"max_retries": 0, "timeout": CLIENT_TIMEOUT_S}
    if getattr(getattr(model, "client", None), "max_retries", None) == 0:
        del clients_own["max_retries"]
    merged |= {key: value for key, value in clients_own.items() if key not in model.unsupported_settings}
    return cast(ModelSettings, merged)


def check(given: Mapping[str, object], model: Model, name: str) -> None:
    """Raise UsageError for unknown settings, and for settings that remit sets itself."""
    if not given:
        return
    for key in given:
        if key in _OURS:
            instead = f" Use {_OURS[key]} instead." if _OURS[key] else " Remove it."
            raise UsageError(f"The setting {key!r} of {name} is reserved: remit sets it.{instead}")
    known = _names(type(model)) | {"max_output_tokens"}
    unknown = [key for key in given if key not in known and not _is_of_another(key, model)]
    if unknown:
        hint = suggest(unknown[0], known)
        raise UsageError(f"{name} has no setting {', '.join(map(repr, unknown))}.{hint}")


def _is_of_another(key: str, model: Model) -> bool:
    own = model.system.partition("-")[0]
    prefixes = {provider.partition("-")[0] for provider in KNOWN} - {own}
    return key.partition("_")[0] in prefixes


@cache
def _names(kind: type[Model]) -> frozenset[str]:
    """The settings that a class of models knows: the common ones and those in its own module."""
    names = set(ModelSettings.__annotations__)
    for cls in kind.__mro__:
        module = sys.modules.get(cls.__module__)
        for key, value in vars(module).items() if cls.__module__.startswith("pydantic_ai.") else ():
            if key.endswith("ModelSettings") and isinstance(value, type):
                names |= set(value.__annotations__)
    return frozenset(names)
