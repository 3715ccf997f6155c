"""What is said when a server fails, without anything that could be a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remit.errors import RemitError
from remit.history.redaction import LEAST_CHARS, REDACTED, Redactor
from remit.types.messages import unforge
from remit.types.text import clean, one_line, shorten

WORDS_CHARS = 400
_READ_CHARS = 50_000


class ServerFailed(RemitError):
    """Raised when a server cannot be started or reached, or has ended. The message says which and how."""


class SessionLost(ServerFailed):
    """Raised when the server no longer knows us: what was asked of it was not done."""


class Refusal(ServerFailed):
    """Raised when the server lives, and answers a call with an error."""


class Veil:
    """Hides the values that a server was given from what is said about it."""

    def __init__(self, secrets: Iterable[str], environ: Mapping[str, str] | None = None) -> None:
        found = {secret for secret in secrets if len(secret) >= LEAST_CHARS}
        found |= {word for secret in found for word in secret.split() if len(word) >= LEAST_CHARS}
        self._secrets = sorted(found, key=len, reverse=True)
        # What looks like a secret may come from anywhere, from the server's own arguments for one.
        self._redactor = Redactor(environment=environ or {})

    def over(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return self._redactor.redact_text(text)

    def quote(self, text: str, most: int = WORDS_CHARS) -> str:
        """What a server said, on one bounded line: it is data, and may try to look like more."""
        line = " ".join(one_line(clean(self.over(text)[:_READ_CHARS])).replace('"', "'").split())
        # On the finished line: what was apart in the text may stand together in it.
        return shorten(unforge(line), most, most - 3)
