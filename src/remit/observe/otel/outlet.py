"""The destination of this process's spans and metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeVar, cast

from msgspec import Struct
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import Tracer, TracerProvider, get_tracer_provider

import remit.observe.otel.names as names
from remit.errors import UsageError
from remit.history.redaction import Redactor
from remit.history.secret_patterns import SecretPattern
from remit.observe.otel.content import Content
from remit.observe.otel.meters import Meters
from remit.types.text import FOREIGN, describe_error, safe_repr, shorten

T = TypeVar("T")


class Outlet(Struct, frozen=True):
    """A tracer, the instruments of a meter, and whether content is recorded."""

    tracer: Tracer
    meters: Meters
    content: Content | None
    """None if content is not recorded."""


def open_outlet(
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
    *,
    content: bool,
    secrets: Sequence[str | SecretPattern],
) -> Outlet:
    """Raises UsageError for a provider that does not work."""
    version = cast(str, import_module("remit").__version__)
    tracers = get_tracer_provider() if tracer_provider is None else tracer_provider
    meters = get_meter_provider() if meter_provider is None else meter_provider

    def tracer() -> Tracer:
        return tracers.get_tracer(names.SCOPE, version, schema_url=names.SCHEMA_URL)

    return Outlet(
        tracer=_made(tracer, "tracer_provider", tracers),
        meters=_made(lambda: Meters(meters, version), "meter_provider", meters),
        content=Content(Redactor(secrets)) if content else None,
    )


def _made(make: Callable[[], T], name: str, provider: object) -> T:
    try:
        return make()
    except FOREIGN as error:
        shown = shorten(safe_repr(provider), 80, 77)
        raise UsageError(f"instrument({name}={shown}) does not work: {describe_error(error)}") from error
