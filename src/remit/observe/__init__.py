"""Readers of events: words for people, the page, and traces and metrics for OpenTelemetry."""
