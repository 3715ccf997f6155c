"""Watching runs from outside the engine: traces and metrics for OpenTelemetry."""
