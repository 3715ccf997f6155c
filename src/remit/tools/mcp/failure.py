"""Errors of MCP servers, and messages without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remit.errors import RemitError
from remit.history.redaction import LEAST_CHARS, REDACTED, Redactor
from remit.types.messages import unforge
from remit.types.text import clean, one_line, shorten

WORDS_CHARS = 400
_READ_CHARS = 50_000


class ServerFailed(RemitError):
    """Raised when a server cannot be started or reached, or has ended. The message gives the reason."""


class SessionLost(ServerFailed):
    """Raised when the server no longer knows the session: the request was not executed."""


class Refusal(ServerFailed):
    """Raised when the server answers a call with an error."""


class Veil:
    """Redacts the values that a server was given from messages about it."""

    def __init__(self, secrets: Iterable[str], environ: Mapping[str, str] | None = None) -> None:
        found = {secret for secret in secrets if len(secret) >= LEAST_CHARS}
        found |= {word for secret in found for word in secret.split() if len(word) >= LEAST_CHARS}
        self._secrets = sorted(found, key=len, reverse=True)
        # Text that looks like a secret may have other sources, such as the server's arguments.
        self._redactor = Redactor(environment=environ or {})

    def over(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return self._redactor.redact_text(text)

    def quote(self, text: str, most: int = WORDS_CHARS) -> str:
        """A server's text on one bounded line, made safe: it is untrusted data."""
        line = " ".join(one_line(clean(self.over(text)[:_READ_CHARS])).replace('"', "'").split())
        # On the finished line: joining lines may bring parts of a forged note together.
        return shorten(unforge(line), most, most - 3)
