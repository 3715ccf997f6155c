"""The tool `fetch`: one page of the public internet, as text that a model can read.

`addresses.py` decides which addresses may be reached, `http_request.py` makes the request, and `response_result.py`
turns the response into a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple, cast

import anyio

from remit.errors import UsageError
from remit.tools.builtin.web.addresses import Reach, in_thread, make_reach
from remit.tools.builtin.web.response_result import FetchedPage, as_result, wanted
from remit.tools.builtin.web.urls import Target, follow, read_url
from remit.tools.policy_rules import Subject
from remit.tools.result import ToolResult
from remit.tools.tool import Tier, Tool, ToolContext, tool
from remit.tools.words import Refused, show, size
from remit.types.messages import JsonObject
from remit.types.text import clean, shorten

MOST_BYTES = 5_000_000
"""The most bytes of a page that are read, after decompression."""
SECONDS = 30.0
REDIRECTS = 5
INLINE_CHARS = 40_000
USER_AGENT = "remit (an agent's fetch tool)"

_ACCEPT = "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, application/json;q=0.8, */*;q=0.5"
_MOVED = (301, 302, 303, 307, 308)


class _Bounds(NamedTuple):
    most_bytes: int
    seconds: float
    redirects: int
    user_agent: str


class _Elsewhere(Exception):
    """Raised when a page redirects to another host, which needs a separate call."""

    def __init__(self, page: Target, leads_to: Target) -> None:
        self.words = (
            f"{page.url} redirects to another host, which was not fetched:\n{leads_to.url}\n"
            "To read that page, fetch its address."
        )


def make_fetch(
    *,
    allow: Iterable[str] = (),
    deny: Iterable[str] = (),
    private: Iterable[str] = (),
    tier: Tier | Literal["observe", "confirm"] | None = None,
    most_bytes: int = MOST_BYTES,
    seconds: float = SECONDS,
    redirects: int = REDIRECTS,
    user_agent: str = USER_AGENT,
    inline_chars: int = INLINE_CHARS,
) -> Tool:
    """Make a `fetch` tool with your own lists and limits. Raises UsageError.

    `allow` and `deny` are hosts: `example.com` matches the host and its subdomains, `*.example.com` only the subdomains.
    With `allow`, only these hosts can be fetched, and the tier defaults to `observe`. Without it, every call needs
    approval, since a URL can carry data out. `private` lists hosts, addresses and networks (`localhost`, `10.1.0.0/16`)
    that may be fetched although they are not public. `seconds` is the timeout of a whole call, `most_bytes` counts
    decompressed bytes, and `redirects` are followed on the same host only.
    """
    reach = make_reach(allow, deny, private, "make_fetch")
    bounds = _checked(_Bounds(most_bytes, seconds, redirects, user_agent))

    async def fetch(url: str, ctx: ToolContext, *, raw: bool = False) -> ToolResult:
        """Fetch a web page or an image over http or https. A web page is returned as readable text.

        Args:
            url: The full address, such as https://example.com/page.
            raw: Return the source of a web page instead of readable text.
        """
        try:
            if not ctx.sandbox.network:
                raise Refused(
                    f"Not fetched: the sandbox does not allow network access (sandbox: {ctx.sandbox})."
                )
            page = await _get(read_url(clean(url)), reach, bounds)
            return await in_thread(lambda: as_result(page, raw=raw), f"reading {page.target.host}")
        except Refused as refusal:
            return ToolResult(str(refusal), ok=False)
        except _Elsewhere as elsewhere:
            return ToolResult(elsewhere.words, details={"status": "moved"})

    chosen = tier if tier is not None else Tier.OBSERVE if reach.allow else Tier.CONFIRM
    return tool(
        fetch,
        tier=chosen,
        subjects=_subjects,
        describe=_describe,
        summarise=_summarise,
        preview=_preview,
        inline_chars=inline_chars,
    )


def _checked(bounds: _Bounds) -> _Bounds:
    if not _is_number(bounds.most_bytes) or bounds.most_bytes < 1:
        raise UsageError(f"make_fetch: most_bytes must be a whole number above 0, not {bounds.most_bytes!r}.")
    if not _is_number(bounds.seconds) or bounds.seconds <= 0:
        raise UsageError(f"make_fetch: seconds must be a number above 0, not {bounds.seconds!r}.")
    if not _is_number(bounds.redirects) or bounds.redirects < 0:
        raise UsageError(
            f"make_fetch: redirects must be a whole number, 0 or more, not {bounds.redirects!r}."
        )
    agent = cast(object, bounds.user_agent)
    if not isinstance(agent, str) or not agent.isascii() or not agent.isprintable() or not agent.strip():
        raise UsageError(f"make_fetch: user_agent must be plain text on one line, not {agent!r}.")
    return bounds._replace(most_bytes=int(bounds.most_bytes), redirects=int(bounds.redirects))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- Words for rules and people ------------------------------------------------------------------


def _subjects(args: JsonObject) -> list[Subject]:
    written = args.get("url")
    if not isinstance(written, str):
        return [Subject("", clear=False)]
    try:
        target = read_url(clean(written))
    except Refused:
        return [Subject(written, clear=False)]
    return [Subject(target.url, (written, *target.readings()), target.is_clear, target.host)]


def _describe(args: JsonObject) -> str:
    # The address as it will be requested: punycode reveals a name that looks like another.
    written = args.get("url")
    try:
        return read_url(clean(written)).url if isinstance(written, str) else ""
    except Refused:
        return show(str(written))


def _preview(url: str, ctx: ToolContext, *, raw: bool = False) -> str:
    del ctx, raw
    try:
        return f"GET {read_url(clean(url)).url}"
    except Refused as refusal:
        return f"This call will be refused. {refusal}"


def _summarise(result: ToolResult) -> str:
    about: object = result.details
    details = cast("dict[str, object]", about) if isinstance(about, dict) else {}
    status, length = details.get("status"), details.get("bytes")
    if isinstance(status, int) and isinstance(length, int):
        return f"{status}, {size(length)}"
    return shorten(result.content.split("\n", 1)[0], 80, 77)


# --- Getting the page ----------------------------------------------------------------------------


async def _get(target: Target, reach: Reach, bounds: _Bounds) -> FetchedPage:
    """The page, after redirects within its host. Raises Refused and _Elsewhere."""
    stage = [f"looking up {target.host}"]
    try:
        with anyio.fail_after(bounds.seconds):
            return await _follow(target, reach, bounds, stage)
    except TimeoutError:
        raise Refused(
            f"{target.url} timed out after {bounds.seconds:g} seconds while {stage[0]}. Nothing was fetched."
        ) from None


async def _follow(target: Target, reach: Reach, bounds: _Bounds, stage: list[str]) -> FetchedPage:
    seen = {target.url}
    for _ in range(bounds.redirects + 1):
        got = await _ask(target, reach, bounds, stage)
        if isinstance(got, FetchedPage):
            return got
        following = _redirected(target, got, reach)
        if following.url in seen:
            raise Refused(f"{target.url} redirects in a loop, back to {following.url}.")
        seen.add(following.url)
        target = following
    raise Refused(
        f"Too many redirects: {bounds.redirects} were followed, and the next one leads to {target.url}."
    )


async def _ask(target: Target, reach: Reach, bounds: _Bounds, stage: list[str]) -> FetchedPage | str:
    """The page, or the location of a redirect."""
    try:
        # Imported here: other runs neither pay for the import nor need the package.
        import remit.tools.builtin.web.http_request as http_request  # noqa: PLC0415 - see above
    except ImportError as error:
        raise Refused(
            f"fetch needs a package that is not installed ({error.name}): pip install 'remit[web]'."
        ) from None
    stage[0] = f"looking up {target.host}"
    addresses = await reach.addresses(target)
    stage[0] = f"waiting for an answer from {target.host}"
    async with http_request.ask(
        target, addresses, {"User-Agent": bounds.user_agent, "Accept": _ACCEPT}
    ) as answer:
        location = answer.headers.get("location", "")
        if answer.status in _MOVED and location:
            return location
        stage[0] = f"reading the answer from {target.host}"
        most = wanted(answer.status, answer.headers, bounds.most_bytes)
        data, whole = await http_request.read_body(answer.body, most) if most else (b"", False)
        return FetchedPage(target, answer.status, answer.headers, data, whole)


def _redirected(page: Target, location: str, reach: Reach) -> Target:
    """The target of a redirect. Raises Refused if it may not be fetched, and _Elsewhere for another host."""
    try:
        leads_to = follow(page, location)
        reach.check(leads_to)
    except Refused as refusal:
        raise Refused(f"{page.url} redirects to an address that cannot be fetched. {refusal}") from None
    if page.scheme == "https" and leads_to.scheme == "http":
        raise Refused(
            f"{page.url} redirects from https to http, to {leads_to.url}. The redirect was not followed."
        )
    upgraded = page.scheme != leads_to.scheme
    same = page.host == leads_to.host and (page.port == leads_to.port or (upgraded and leads_to.port == 443))
    if not same:
        # Rules allow a call for the address in its arguments, so another host needs its own call.
        raise _Elsewhere(page, leads_to)
    return leads_to


fetch = make_fetch()
