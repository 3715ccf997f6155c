"""The list of runs: a line per tree, those that wait for a person with their question."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from remit.errors import StoreError
from remit.observe.page.hub import Hub, UnknownRun
from remit.observe.page.projection import TASK_CHARS
from remit.observe.page.rows import RUNNING, Listed
from remit.observe.words import line
from remit.types.outcome import Status
from remit.types.ports import TreeInfo

READ_BYTES = 64_000_000
"""Of live trees that are read for the list, the newest first. Of others the list has no questions."""

FAILED = frozenset({"failed", "refused", "timed_out", "stalled", "over_budget", "incomplete", "interrupted"})


class Wanted(Struct, frozen=True, kw_only=True):
    """Which trees are listed."""

    q: str = ""
    status: str = ""
    """`live`, `asks`, `failed`, or a status."""
    agent: str = ""
    since: float = 0.0
    """Only trees that began after this moment."""

    def takes(self, one: Listed) -> bool:
        return self._has_status(one) and self._has_words(one)

    def may_take(self, info: TreeInfo) -> bool:
        """What can be told without reading the tree."""
        return info.started_at >= self.since and self.agent in ("", info.agent)

    def _has_status(self, one: Listed) -> bool:
        if self.status == "live":
            return one.status == RUNNING
        if self.status == "asks":
            return bool(one.questions)
        if self.status == "failed":
            return one.status in FAILED
        return self.status in ("", "all", one.status)

    def _has_words(self, one: Listed) -> bool:
        told = f"{one.root} {one.agent} {one.task} {one.status}".lower()
        return all(word in told for word in self.q.lower().split())


class Listing:
    """Reads the list; live trees through the hub, so that they are read once for all."""

    def __init__(self, hub: Hub, is_hosted: Callable[[str], bool]) -> None:
        self._hub = hub
        self._is_hosted = is_hosted

    async def page(self, wanted: Wanted, before: str, limit: int) -> tuple[list[Listed], str]:
        """The newest trees that are wanted, from `before` on, and where the next page begins; empty at the end."""
        infos = [info for info in (await self._hub.infos()).values() if wanted.may_take(info)]
        start = 0
        if before:
            started, _, root = before.partition(":")
            mark = (_number(started), root)
            start = next(
                (n for n, info in enumerate(infos) if (info.started_at, info.root) < mark), len(infos)
            )
        found: list[Listed] = []
        readable = self._readable(infos)
        for info in infos[start:]:
            one = await self.line(info, read=info.root in readable)
            if wanted.takes(one):
                if len(found) == limit:
                    return found, f"{found[-1].started_at!r}:{found[-1].root}"
                found.append(one)
        return found, ""

    async def window(self, most: int) -> list[Listed]:
        """The newest trees, and all that are live."""
        infos = list((await self._hub.infos()).values())
        readable = self._readable(infos)
        return [
            await self.line(info, read=info.root in readable)
            for place, info in enumerate(infos)
            if place < most or info.live
        ]

    async def total(self) -> int:
        """How many trees the journal has."""
        return len(await self._hub.infos())

    def _readable(self, infos: Iterable[TreeInfo]) -> set[str]:
        size, found = 0, set[str]()
        for info in infos:
            if info.live:
                size += info.bytes
                if size > READ_BYTES:
                    break
                found.add(info.root)
        return found

    async def line(self, info: TreeInfo, *, read: bool) -> Listed:
        """One line. A live tree is read for its activity and questions; if that fails, the line is listed without them."""
        status = RUNNING if info.live and info.status is None else str(info.status or Status.INTERRUPTED)
        doing, cap, questions, unread = "", None, (), info.live and not read
        if info.live and read:
            try:
                projection = (await self._hub.tree(info.root, at_once=False)).projection
                row = projection.row(info.root)
                doing, questions, cap = row.doing, projection.questions(), row.limits.get("usd")
            except (StoreError, UnknownRun, KeyError):
                unread = True
        return Listed(
            root=info.root,
            agent=line(info.agent, TASK_CHARS),
            task=line(info.task, TASK_CHARS),
            status=status,
            live=info.live,
            owner=line(info.owner, TASK_CHARS),
            hosted=self._is_hosted(info.root),
            doing=doing,
            started_at=info.started_at,
            last_at=info.last_at,
            events=info.events,
            runs=info.runs,
            requests=info.requests,
            tokens=info.tokens,
            usd=info.usd,
            cap_usd=cap,
            questions=questions,
            unread=unread,
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
