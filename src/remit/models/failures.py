"""Every failure of a provider as one `ModelError`: its kind, whether to try again, and a sentence for a stranger."""

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
"""Characters of the provider's own words."""

# The first that fits: those that are more exact stand before those that they are a part of.
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
    "rate_limit": "refused the request: too many at once, or too many in this minute",
    "overloaded": "is overloaded or not available at the moment",
    "server": "failed on its own side",
    "timeout": "took too long to answer",
    "connection": "could not be reached, or the connection broke",
    "auth": "did not accept the key",
    "quota": "has no quota or credit left for this account",
    "not_found": "says that there is no such model",
    "context": "cannot take a conversation this long",
    "filter": "blocked the request or the answer with its content filter",
    "invalid": "rejected the request",
    "bug": "could not be asked, because of a mistake in a program",
}


def failure(error: BaseException, named: Named, base_url: str | None, usage: Usage | None) -> ModelError:
    """What went wrong, in remit's terms. `usage` is what the provider counted before it failed."""
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
    """The error of a response that came, and that nobody can read."""
    return ModelError(f"{named.whole} answered with what cannot be read. {why}", kind="server", usage=usage)


def stopped_short(
    response: ModelResponse, named: Named, usage: Usage | None, *, told: bool
) -> ModelError | None:
    """The error of a response that came, but not whole; None for one that did.

    `told`: a whole one says why it ended. Ollama's does not always.
    """
    said: object = (response.provider_details or {}).get("finish_reason")
    if response.finish_reason == "error":
        what = f"{named.whole} {_WHAT['server']}: it stopped in the middle ({said or 'no reason given'})."
        return ModelError(what, kind="server", usage=usage)
    # A reason that only the provider knows is a reason; none at all means that the end never came.
    refused = response.finish_reason == "content_filter" or "refusal" in (response.provider_details or {})
    silent = told and named.provider != "ollama" and not said and not refused
    if response.state == "incomplete" or silent or (response.finish_reason is None and not said):
        what = f"{named.whole} {_WHAT['connection']}: the answer ended before it was whole."
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
    """Seconds the provider asks us to wait: in a header, or in the body as Google does it ("13s")."""
    after: object = getattr(error, "retry_after", None)
    if isinstance(after, float):
        return after
    found = re.search(r"'retryDelay': '(\d{1,6}(?:\.\d+)?)s'", str(getattr(error, "body", None)))
    return float(found[1]) if found else None


def _unsent(error: BaseException) -> bool:
    """Whether it failed before anything was sent, so that nothing can have been used."""
    return isinstance(error, theirs.ModelConnectionError) and error.phase in ("pool", "connect")


def _words(error: BaseException) -> str:
    """The provider's own words, or else the library's."""
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
    """Where providers put their message: `error.message`, `message`, `error`, `detail`; or the text itself."""
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
    """What the reader can do, where there is something."""
    if kind == "auth":
        return f"Check the key in {key_variable(named.provider)}."
    if kind == "not_found":
        near: object = getattr(error, "suggested_model_id", None)
        return f"Did you mean {near!r}?" if near else f"Check the model's name and the address {base_url}."
    if _unsent(error) or (kind == "connection" and getattr(error, "phase", None) is None):
        return f"Is {base_url} the right address, and is it up?"
    if kind == "quota":
        return "Add credit or raise the limit where the account is kept."
    return ""
