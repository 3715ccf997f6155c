"""The app: routes, static files, and who may ask. `remit.observe.page.app` builds it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import remit.observe.page.acts as acts
import remit.observe.page.api as api
import remit.observe.page.openapi as openapi
from remit.observe.page.api import Site, handled
from remit.observe.page.errors import answer, problem
from remit.observe.page.guard import Guard
from remit.observe.page.hosting import Hosting, Starter
from remit.observe.page.hub import Hub
from remit.observe.page.listing import Listing
from remit.observe.page.stream import Streams
from remit.stores import open_store
from remit.types.ports import Store

STATIC = Path(__file__).parent / "static"


class Page:
    """The ASGI app. Calls to `close` stop the runs that were started in it."""

    def __init__(self, app: Starlette, site: Site, guard: Guard, *, owns_store: bool) -> None:
        self._site = site
        self._guard = guard
        self._owns_store = owns_store
        self.starlette = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    def end_streams(self) -> None:
        """Let all streams end within a moment: a server that stops would wait for them."""
        self._site.streams.closing = True

    async def close(self) -> None:
        """Stop the runs that were started here, and let go of a store that was opened here."""
        self.end_streams()
        await self._site.hosting.close()
        if self._owns_store:
            await self._site.store.close()


def build(
    store: Store | str,
    *,
    token: str | None,
    hosts: Collection[str] | None,
    starter: Starter | None,
    place: str,
    command: str,
) -> Page:
    opened = open_store(store) if isinstance(store, str) else store
    hub, hosting = Hub(opened), Hosting(starter)
    site = Site(
        store=opened,
        hub=hub,
        listing=Listing(hub, hosting.is_hosted),
        hosting=hosting,
        streams=Streams(api.MOST_STREAMS),
        version=cast(str, import_module("remit").__version__),
        place=place,
        command=command,
    )
    app = Starlette(
        routes=routes(), lifespan=_lifespan, exception_handlers={404: _not_found, 405: _not_allowed}
    )
    app.state.site = site
    page = Page(app, site, Guard(app, token=token, hosts=hosts), owns_store=isinstance(store, str))
    app.state.page = page
    return page


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncGenerator[None]:
    yield
    await app.state.page.close()


def routes() -> list[Route | Mount]:
    """Every address. `openapi.py` describes those of the API, and a test compares the two."""
    one = "/api/runs/{run:str}"
    read = {
        "/api/session": api.session,
        "/api/agents": api.agents,
        "/api/stream": api.stream_list,
        one: api.get_run,
        f"{one}/stream": api.stream_tree,
        f"{one}/about": api.about,
        f"{one}/messages": api.messages,
        f"{one}/calls": api.calls,
        f"{one}/calls/{{seq:int}}/{{place:int}}": api.call,
        f"{one}/text/{{ref:path}}": api.text,
        f"{one}/parts/{{ref:path}}": api.part,
        f"{one}/artifacts/{{name:path}}": api.artifact,
        f"{one}/events": api.list_events,
        f"{one}/events/{{seq:int}}": api.one_event,
        f"{one}/times": api.times,
        f"{one}/questions": api.questions,
    }
    act = {
        f"{one}/cancel": acts.cancel,
        f"{one}/send": acts.send,
        f"{one}/approve": acts.approve,
        f"{one}/deny": acts.deny,
        f"{one}/resume": acts.resume,
    }
    return [
        Route("/", _index, methods=["GET"]),
        Route("/api/openapi.json", _openapi, methods=["GET"]),
        Route("/api/runs", handled(api.list_runs), methods=["GET"]),
        Route("/api/runs", handled(acts.start), methods=["POST"]),
        *(Route(path, handled(work), methods=["GET"]) for path, work in read.items()),
        *(Route(path, handled(work), methods=["POST"]) for path, work in act.items()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]


async def _index(request: Request) -> Response:
    del request
    page = (STATIC / "index.html").read_bytes()
    return Response(page, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})


async def _openapi(request: Request) -> Response:
    del request
    return answer(openapi.document())


async def _not_found(request: Request, error: Exception) -> Response:
    del request, error
    return problem(404, "There is nothing at this address. The API is described in api/openapi.json.")


async def _not_allowed(request: Request, error: Exception) -> Response:
    del request, error
    return problem(405, "This address takes another method. The API is described in api/openapi.json.")
