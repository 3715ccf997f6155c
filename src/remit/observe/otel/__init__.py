"""Traces and metrics for OpenTelemetry: `remit.instrument`, and export configured by `OTEL_...` variables."""
