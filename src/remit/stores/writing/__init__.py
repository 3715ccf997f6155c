"""The one writer: events that wait, are made pages of, redacted and written by one thread."""
