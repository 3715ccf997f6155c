"""Turn every failure of a provider into a `ModelError`: its kind, whether to retry, and a message."""

from __future__ import annotations

import re
from typing import cast

import httpx2
import pydantic_ai.exceptions as theirs
from pydantic_ai.messages import ModelResponse

from remit.errors import ModelError, ModelErrorKind
from remit.models.names import Named, key_variable
from remit.types.limits import Usage
from remit.types.messages import JsonObject
from remit.types.text import clean, describe_error, one_line, shorten

MOST_WORDS = 300
"""The most characters of the provider's own message."""

# The first match counts, so subclasses come before their base classes.
_KINDS: tuple[tuple[type[BaseException], ModelErrorKind], ...] = (
    (theirs.ModelRateLimitError, "rate_limit"),
    (theirs.ModelQuotaExceededError, "quota"),
    (theirs.ModelUnavailableError, "overloaded"),
    (theirs.ModelServerError, "server"),
    (theirs.ModelTimeoutError, "timeout"),
    (theirs.ModelRequestTimeout, "timeout"),
    (theirs.ModelConnectionError, "connection"),
    (theirs.ModelContextWindowExceededError, "context"),
    (theirs.ModelAuthenticationError, "auth"),
    (theirs.ModelNotFoundError, "not_found"),
    (theirs.ContentFilterError, "filter"),
    (theirs.ModelRequestRejectedError, "invalid"),
    (theirs.ModelHTTPError, "server"),
    (httpx2.TimeoutException, "timeout"),
    (httpx2.TransportError, "connection"),
    (theirs.UserError, "invalid"),
    (theirs.ModelAPIError, "server"),
    (theirs.UnexpectedModelBehavior, "server"),
)

_STATUSES: dict[int, ModelErrorKind] = {408: "timeout", 409: "server", 413: "context"}

_FILTERS = ("content_filter", "content_policy_violation", "moderation_blocked")

_WHAT: dict[ModelErrorKind, str] = {
    "rate_limit": "refused the request: rate limit exceeded",
    "overloaded": "is overloaded or temporarily unavailable",
    "server": "failed with a server error",
    "timeout": "timed out",
    "connection": "could not be reached, or the connection was lost",
    "auth": "rejected the API key",
    "quota": "has no quota or credit left for this account",
    "not_found": "does not know this model",
    "context": "cannot accept a conversation this long",
    "filter": "blocked the request or the answer with its content filter",
    "invalid": "rejected the request",
    "bug": "could not be called because of a bug",
}


def failure(error: BaseException, named: Named, base_url: str | None, usage: Usage | None) -> ModelError:
    """The ModelError for an exception. `usage` is what the provider counted before the failure."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    kind = _kind(error)
    status = getattr(error, "status_code", None)
    said = _words(error)
    what = f"{named.whole} {_WHAT[kind]}"
    if isinstance(status, int):
        what += f" (status {status})"
    sentence = f"{what}: {said}" if said else what
    fix = _fix(kind, error, named, base_url)
    if not sentence.endswith((".", "!", "?")):
        sentence += "."
    if usage is None and _unsent(error):
        usage = Usage(requests=1, usd=0.0)
    return ModelError(
        f"{sentence} {fix}".strip(),
        kind=kind,
        retryable=True if status in (408, 409) else None,
        retry_after=_wait(error),
        usage=usage,
    )


def unreadable(why: ModelError, named: Named, usage: Usage | None) -> ModelError:
    """The ModelError for a response that cannot be read."""
    return ModelError(f"{named.whole} sent a response that cannot be read. {why}", kind="server", usage=usage)


def stopped_short(
    response: ModelResponse, named: Named, usage: Usage | None, *, told: bool
) -> ModelError | None:
    """The ModelError for an incomplete response; None for a complete one.

    `told`: a complete response gives a finish reason. Ollama's does not always.
    """
    said: object = (response.provider_details or {}).get("finish_reason")
    if response.finish_reason == "error":
        what = f"{named.whole} {_WHAT['server']}: the answer stopped midway ({said or 'no reason given'})."
        return ModelError(what, kind="server", usage=usage)
    # A finish reason that only the provider knows counts; without any reason, the response is incomplete.
    refused = response.finish_reason == "content_filter" or "refusal" in (response.provider_details or {})
    silent = told and named.provider != "ollama" and not said and not refused
    if response.state == "incomplete" or silent or (response.finish_reason is None and not said):
        what = f"{named.whole} {_WHAT['connection']}: the answer is incomplete."
        return ModelError(what, kind="connection", usage=usage)
    return None


def _kind(error: BaseException) -> ModelErrorKind:
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status in _STATUSES:
        return _STATUSES[status]
    if getattr(error, "provider_error_code", None) in _FILTERS:
        return "filter"
    if type(error) is theirs.ModelAPIError and isinstance(error.__cause__, httpx2.TransportError):
        return "connection"
    for cls, kind in _KINDS:
        if isinstance(error, cls):
            return kind
    return "bug"


def _wait(error: BaseException) -> float | None:
    """Seconds that the provider asks us to wait: from a header, or from the body as Google sends it ("13s")."""
    after: object = getattr(error, "retry_after", None)
    if isinstance(after, float):
        return after
    found = re.search(r"'retryDelay': '(\d{1,6}(?:\.\d+)?)s'", str(getattr(error, "body", None)))
    return float(found[1]) if found else None


def _unsent(error: BaseException) -> bool:
    """Whether the request failed before it was sent, so that it used nothing."""
    return isinstance(error, theirs.ModelConnectionError) and error.phase in ("pool", "connect")


def _words(error: BaseException) -> str:
    """The provider's own message, else the library's."""
    body: object = getattr(error, "body", None)
    said = _message(body)
    if not said:
        if isinstance(error, theirs.ModelHTTPError):
            return ""
        plain = getattr(error, "message", None)
        said = plain if isinstance(plain, str) and plain else describe_error(error)
        cause = error.__cause__
        if (
            isinstance(error, theirs.ModelConnectionError)
            and cause is not None
            and cause.__cause__ is not None
        ):
            said = f"{said} ({describe_error(cause.__cause__)})"
    return shorten(one_line(clean(said)).strip(), MOST_WORDS, MOST_WORDS - 3)


def _message(body: object) -> str:
    """The message in a body: `error.message`, `message`, `error`, `detail`, or the text itself."""
    if isinstance(body, str):
        return body
    if isinstance(body, list) and body:
        return _message(cast(list[object], body)[0])
    if not isinstance(body, dict):
        return ""
    fields = cast(JsonObject, body)
    for key in ("error", "message", "detail"):
        if said := _message(fields.get(key)):
            return said
    return ""


def _fix(kind: ModelErrorKind, error: BaseException, named: Named, base_url: str | None) -> str:
    """A hint for the user, or ""."""
    if kind == "auth":
        return f"Check the key in {key_variable(named.provider)}."
    if kind == "not_found":
        near: object = getattr(error, "suggested_model_id", None)
        return f"Did you mean {near!r}?" if near else f"Check the model name and the address {base_url}."
    if _unsent(error) or (kind == "connection" and getattr(error, "phase", None) is None):
        return f"Check that {base_url} is the right address and that the server is running."
    if kind == "quota":
        return "Add credit, or raise the limit of the account."
    return ""
