"""`instrument`: trace and measure every tree that starts in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remit.engine.tree.tracing import set_tracing
from remit.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from remit.history.secret_patterns import SecretPattern


def instrument(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
    *,
    secrets: Sequence[str | SecretPattern] = (),
) -> None:
    """Trace every tree that starts from now on, with OpenTelemetry. A second call replaces the first.

    Providers default to the global ones. `content` also records prompts, replies, arguments and results, redacted like
    the journal; `secrets` are removed from them too, as in `open_store`. Raises UsageError without OpenTelemetry, and
    for a provider that does not work.
    """
    try:
        from remit.observe.otel.outlet import open_outlet  # noqa: PLC0415 - it imports OpenTelemetry
        from remit.observe.otel.traces import TreeTraces  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise UsageError("instrument() needs OpenTelemetry: pip install 'remit[otel]'") from None
    outlet = open_outlet(tracer_provider, meter_provider, content=content, secrets=secrets)
    set_tracing(lambda: TreeTraces(outlet))


def uninstrument() -> None:
    """Stop tracing trees that start from now on."""
    set_tracing(None)
