"""The HTTP API under the page: what can be read. Acting is in `acts.py`; `openapi.py` describes both."""

from __future__ import annotations

import asyncio
import bisect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, cast

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import remit.observe.page.bodies as bodies
import remit.observe.page.views as views
import remit.tasks.threads as threads
from remit.errors import StoreError, UsageError
from remit.history.records import is_within
from remit.observe.page.bars import Kind, critical_path
from remit.observe.page.errors import Refused, answer, problem
from remit.observe.page.hosting import Hosting
from remit.observe.page.hub import Hub, UnknownRun, Watched
from remit.observe.page.listing import Listing, Wanted
from remit.observe.page.rows import Head, Listed, Row
from remit.observe.page.stream import EventStream, Streams, follow_list, follow_tree
from remit.observe.words import lines
from remit.types.messages import ImagePart
from remit.types.ports import Store
from remit.types.text import clean

T = TypeVar("T")

MOST_STREAMS = 300
PIECE_CHARS = 100_000
"""Characters of a text or an artifact in one answer."""


class Site(Struct):
    """What an app serves."""

    store: Store
    hub: Hub
    listing: Listing
    hosting: Hosting
    streams: Streams
    version: str
    place: str
    """The journal in words, without a password."""
    command: str
    """How `remit` is called about this journal: `remit {} --journal ...`."""


class Session(Struct, frozen=True, kw_only=True):
    version: str
    now: float
    place: str
    command: str
    may_start: bool


class RunsPage(Struct, frozen=True, kw_only=True):
    runs: tuple[Listed, ...]
    next: str
    total: int


class TreePage(Struct, frozen=True, kw_only=True):
    head: Head
    rows: tuple[Row, ...]
    next: int | None
    """The place of the first row of the next page."""


class Messages(Struct, frozen=True, kw_only=True):
    entries: tuple[bodies.EntryView, ...]
    total: int
    seq: int


class Calls(Struct, frozen=True, kw_only=True):
    calls: tuple[bodies.CallLine, ...]
    total: int


class Events(Struct, frozen=True, kw_only=True):
    events: tuple[bodies.EventRow, ...]
    total: int
    start: int
    """The place of the first of them among all that match."""


class Piece(Struct, frozen=True, kw_only=True):
    text: str
    start: int
    chars: int


class BarView(Struct, frozen=True, kw_only=True):
    run: str
    pieces: tuple[tuple[float, float, Kind], ...]


class Times(Struct, frozen=True, kw_only=True):
    start: float
    end: float
    bars: tuple[BarView, ...]
    critical: tuple[tuple[str, float, float], ...]


class Questions(Struct, frozen=True, kw_only=True):
    questions: tuple[bodies.Asked, ...]


def site_of(request: Request) -> Site:
    return request.app.state.site


Handler = Callable[[Request], Awaitable[Response]]


def handled(work: Handler) -> Handler:
    """The handler, with its errors turned into answers."""

    async def handle(request: Request) -> Response:
        try:
            return await work(request)
        except Refused as refused:
            return problem(refused.status, str(refused))
        except UnknownRun as unknown:
            return problem(404, f"The journal has no run {str(unknown)[:80]!r}.")
        except UsageError as error:
            return problem(400, str(error))
        except StoreError as error:
            return problem(503, str(error))

    return handle


async def in_thread(work: Callable[[], T], name: str) -> T:
    job = threads.start(work, asyncio.get_running_loop(), name=name)
    await job.wait()
    return job.result()


def whole(request: Request, name: str, default: int, most: int = 2**53) -> int:
    """A number of the query. Raises Refused."""
    given = request.query_params.get(name, "")
    if not given:
        return default
    if not given.isascii() or not given.isdecimal() or len(given) > 16:
        raise Refused(400, f"{name} must be a whole number, not {given[:40]!r}.")
    return min(int(given), most)


def moment(request: Request, name: str, default: float) -> float:
    given = request.query_params.get(name, "")
    try:
        found = float(given) if given else default
    except ValueError:
        found = float("nan")
    if not abs(found) < 1e15:
        raise Refused(400, f"{name} must be a number, not {given[:40]!r}.")
    return found


async def tree_of(request: Request) -> tuple[Watched, str]:
    """The tree that a request is about, as it is now, and the run."""
    run = request.path_params["run"]
    return await site_of(request).hub.tree(run), run


# --- Lists ----------------------------------------------------------------------------------------


async def session(request: Request) -> Response:
    site = site_of(request)
    return answer(
        Session(
            version=site.version,
            now=time.time(),
            place=site.place,
            command=site.command,
            may_start=site.hosting.starter is not None,
        )
    )


async def list_runs(request: Request) -> Response:
    site, query = site_of(request), request.query_params
    wanted = Wanted(
        q=query.get("q", "")[:200],
        status=query.get("status", ""),
        agent=query.get("agent", ""),
        since=moment(request, "since", 0.0),
    )
    limit = max(1, whole(request, "limit", 100, 500))
    found, following = await site.listing.page(wanted, query.get("before", ""), limit)
    return answer(RunsPage(runs=tuple(found), next=following, total=await site.listing.total()))


async def get_run(request: Request) -> Response:
    """A run and everything below it, in pages."""
    site = site_of(request)
    watched, run = await tree_of(request)
    head = await watched.head(
        hosted=site.hosting.is_hosted(watched.root), may_start=site.hosting.starter is not None
    )
    start, limit = whole(request, "from", 0), max(1, whole(request, "limit", 500, 2000))
    runs = [one for one in watched.projection.tree.runs if is_within(one, run)]
    rows = tuple(watched.projection.row(one) for one in runs[start : start + limit])
    following = start + limit if start + limit < len(runs) else None
    return answer(TreePage(head=head, rows=rows, next=following))


async def agents(request: Request) -> Response:
    starter = site_of(request).hosting.starter
    return answer([] if starter is None else await starter.agents())


# --- Streams --------------------------------------------------------------------------------------


async def stream_list(request: Request) -> Response:
    site = _with_room(request)
    await site.hub.infos()
    return _stream(site, follow_list(site.listing, site.hosting, site.streams))


async def stream_tree(request: Request) -> Response:
    site = _with_room(request)
    watched, run = await tree_of(request)
    if run != watched.root:
        raise Refused(400, f"Streams are those of whole trees: ask for {watched.root}.")
    # The header is what a browser sends by itself; a page that reads the stream by hand may use either.
    given = request.headers.get("last-event-id") or request.query_params.get("after", "")
    after = int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else 0
    return _stream(site, follow_tree(watched, site.hosting, site.streams, after))


def _with_room(request: Request) -> Site:
    site = site_of(request)
    if site.streams.open >= site.streams.most:
        raise Refused(503, f"{site.streams.most} streams are open already. Close some pages.")
    return site


def _stream(site: Site, messages: AsyncIterator[bytes]) -> Response:
    # Starlette calls whatever an endpoint returns; a Response is only its usual kind.
    return cast(Response, EventStream(site.streams, messages))


# --- One run --------------------------------------------------------------------------------------


async def messages(request: Request) -> Response:
    """A page of the conversation, or with `changed` what changed in it after an event."""
    watched, run = await tree_of(request)
    projection = watched.projection
    talk, limit = projection.branches[run].talk, max(1, whole(request, "limit", 50, 200))
    if "changed" in request.query_params:
        after = whole(request, "changed", 0)
        found = [entry for entry in talk.entries if entry.changed > after][:limit]
    else:
        start = whole(request, "from", 0)
        found = talk.entries[start : start + limit]
    shown = await _parsed(
        lambda: tuple(views.entry_view(projection.tree, run, one, live=projection.live) for one in found)
    )
    return answer(Messages(entries=shown, total=len(talk.entries), seq=projection.seq))


async def calls(request: Request) -> Response:
    watched, run = await tree_of(request)
    projection = watched.projection
    found = [
        (entry, place) for entry in projection.branches[run].talk.entries for place in range(len(entry.calls))
    ]
    start, limit = whole(request, "from", 0), max(1, whole(request, "limit", 100, 500))
    shown = tuple(
        views.call_line(projection.tree, *one, live=projection.live) for one in found[start : start + limit]
    )
    return answer(Calls(calls=shown, total=len(found)))


async def call(request: Request) -> Response:
    watched, run = await tree_of(request)
    projection = watched.projection
    entry = projection.branches[run].talk.find(request.path_params["seq"])
    place = request.path_params["place"]
    if entry is None or place >= len(entry.calls):
        raise Refused(404, "This run has no such call.")
    return answer(await _parsed(lambda: views.call_view(projection.tree, entry, place, live=projection.live)))


async def about(request: Request) -> Response:
    watched, run = await tree_of(request)
    record = watched.projection.tree.runs[run]
    status = watched.projection.status(record)
    return answer(await _parsed(lambda: views.about(record, status)))


async def text(request: Request) -> Response:
    """A piece of a text that was too long for the page it stands in."""
    watched, run = await tree_of(request)
    projection = watched.projection
    found = views.find_text(
        projection.branches[run].talk, projection.tree, projection.tree.runs[run], request.path_params["ref"]
    )
    if found is None:
        raise Refused(404, "This run has no such text.")
    start, limit = whole(request, "from", 0), max(1, whole(request, "limit", PIECE_CHARS, PIECE_CHARS))
    piece = found[start : start + limit]
    shown = lines(piece) if request.query_params.get("exact") else clean(piece)
    return answer(Piece(text=shown, start=start, chars=len(found)))


ALONE = {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store"}


async def part(request: Request) -> Response:
    """An image as itself, a document as a download."""
    watched, run = await tree_of(request)
    found = views.find_part(watched.projection.branches[run].talk, request.path_params["ref"])
    if found is None or not found.data:
        raise Refused(404, "This run has no such image or document.")
    kind = views.image_type(found.data)
    if isinstance(found, ImagePart) and kind:
        return Response(found.data, media_type=kind, headers=ALONE)
    headers = ALONE | {"Content-Disposition": 'attachment; filename="document"'}
    return Response(found.data, media_type="application/octet-stream", headers=headers)


async def artifact(request: Request) -> Response:
    """A text that the store keeps whole: a piece of it, or with `download` all of it as a file."""
    watched, run = await tree_of(request)
    name, root = request.path_params["name"], watched.root
    tree = watched.projection.tree
    # Looked up among those that events name: whatever else is asked for is not there.
    known = (one for record in tree.runs.values() if is_within(record.id, run) for one in record.artifacts)
    found = next((one for one in known if one.id == name), None)
    if found is None:
        raise Refused(404, "This run has no such artifact.")
    store = site_of(request).store
    if request.query_params.get("download"):
        headers = ALONE | {"Content-Disposition": f'attachment; filename="{_file_name(found.id)}.txt"'}
        return StreamingResponse(
            _whole_artifact(store, root, found.id), media_type="text/plain; charset=utf-8", headers=headers
        )
    start, limit = whole(request, "from", 0), max(1, whole(request, "limit", PIECE_CHARS, PIECE_CHARS))
    piece = await store.load_artifact(root, found.id, start, limit)
    if piece is None:
        raise Refused(404, "The journal does not have this artifact any more.")
    return answer(Piece(text=clean(piece), start=start, chars=found.chars))


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:100]


async def _whole_artifact(store: Store, root: str, name: str) -> AsyncIterator[bytes]:
    start = 0
    while piece := await store.load_artifact(root, name, start, PIECE_CHARS * 10):
        yield clean(piece).encode()
        start += len(piece)


# --- The whole tree -------------------------------------------------------------------------------


async def list_events(request: Request) -> Response:
    """Events of a run and everything below it: after an event, or from a place in the list."""
    watched, run = await tree_of(request)
    query = request.query_params
    found = watched.projection.events
    if run != watched.root:
        found = [event for event in found if is_within(event.run, run)]
    if query.get("only"):
        found = [event for event in found if event.run == run]
    if kinds := query.get("kind", ""):
        wanted = set(kinds.split(",")[:30])
        found = [event for event in found if event.kind in wanted]
    limit = max(1, whole(request, "limit", 200, 1000))
    if "after" in query:
        start = bisect.bisect_right(found, whole(request, "after", 0), key=lambda event: event.seq)
    else:
        start = whole(request, "from", 0)
    rows = tuple(views.event_row(event) for event in found[start : start + limit])
    return answer(Events(events=rows, total=len(found), start=start))


async def one_event(request: Request) -> Response:
    watched, _ = await tree_of(request)
    found, seq = watched.projection.events, request.path_params["seq"]
    place = bisect.bisect_left(found, seq, key=lambda event: event.seq)
    if place == len(found) or found[place].seq != seq:
        raise Refused(404, f"This run has no event {seq}.")
    return answer(await _parsed(lambda: views.raw_event(found[place])))


async def times(request: Request) -> Response:
    """The bars of the runs that are on the screen, and the critical path."""
    watched, run = await tree_of(request)
    projection, now = watched.projection, time.time()
    runs = request.query_params.get("runs", "").split(",")[:200]
    spans = {one: projection.span(one, now) for one in projection.tree.runs if is_within(one, run)}
    whole_span = spans[run]
    start = moment(request, "start", whole_span.start)
    end = moment(request, "end", max(span.end for span in spans.values()))
    if end <= start:
        end = start + 0.001
    until = {one: span.end for one, span in spans.items()}
    bars = tuple(
        BarView(run=one, pieces=tuple(projection.branches[one].bar.pieces(start, end, until[one])))
        for one in runs
        if one in spans
    )
    children = {one: projection.tree.runs[one].children for one in spans}
    path = critical_path(run, spans, children)
    shown = tuple(one for one in path if one[2] > start and one[1] < end)[:2000]
    return answer(Times(start=start, end=end, bars=bars, critical=shown))


async def questions(request: Request) -> Response:
    """What a run and those below it wait for, with everything that an answer depends on."""
    watched, run = await tree_of(request)
    projection = watched.projection
    tree, spent = projection.tree, projection.branches[watched.root].sum.amount()
    asked = [one for one in tree.requests.values() if is_within(one.run, run)][:50] if projection.live else []
    shown = await _parsed(
        lambda: tuple(views.asked_view(tree, projection.branches[one.run].talk, one, spent) for one in asked)
    )
    return answer(Questions(questions=shown))


async def _parsed(work: Callable[[], T]) -> T:
    """In a thread: a model decides how long parsing takes."""
    return await in_thread(work, "the page")
