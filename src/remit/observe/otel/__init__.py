"""Traces and metrics for OpenTelemetry: `remit.instrument`, and the same for programs that `OTEL_...` variables configure."""
