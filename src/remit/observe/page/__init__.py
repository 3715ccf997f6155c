"""The page: a journal's runs in a browser, and the HTTP API under it. `app` is what `remit serve` serves.

    from remit.observe.page import app
    page = app("sqlite:///runs.db", token=None)          # mount it behind your own authentication

Needs `remit[serve]`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from remit.errors import UsageError
from remit.types.ports import Store

if TYPE_CHECKING:
    from remit.observe.page.hosting import Starter
    from remit.observe.page.site import Page

MISSING = "The page needs Starlette, which is not installed: pip install 'remit[serve]'"


def app(
    store: Store | str,
    *,
    token: str | None,
    hosts: Collection[str] | None = None,
    starter: Starter | None = None,
    place: str = "",
    command: str = "remit {}",
) -> Page:
    """An ASGI app with the runs of a store: the page at `/`, its API below `/api/`.

    token: what requests must bring; None where your own service has checked who asks before they come here
    hosts: names under which the app may be reached, against DNS rebinding; "*" stands for any address that is a
        number; None: any name, where your own service has checked it
    starter: lets people start and resume runs, which live in this process; None: they cannot
    place: the journal in words, shown on the page
    command: how `remit` is called about this journal, for command lines to copy

    Anybody who can use the app can read all runs of the store, stop them, and approve their calls. Await its `close()` when
    your service ends: it stops the runs that were started here. Raises UsageError if Starlette is not installed.
    """
    try:
        from remit.observe.page.site import build  # noqa: PLC0415 - Starlette is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "starlette":
            raise
        raise UsageError(MISSING) from None
    if token is not None and len(token) < 16:
        raise UsageError("The token must have at least 16 characters. Let remit make one: leave it out.")
    return build(store, token=token, hosts=hosts, starter=starter, place=place, command=command)
