"""Readers of events: words for people, displays, the page, and traces and metrics for OpenTelemetry."""
