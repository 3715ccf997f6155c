"""Operations on the tables: one transaction or query per function. They run in a store's threads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import cast

import msgspec
from msgspec import Struct

import remit.stores.owner as owners
import remit.types.commands as commands
from remit.errors import NoSuchTree, TreeExists, TreeOwned
from remit.stores.sql.database import Link, Row
from remit.types.commands import AnyCommand
from remit.types.outcome import Status
from remit.types.ports import Posted, TreeInfo

log = logging.getLogger("remit")

CHUNK_CHARS = 65_536
"""Characters of an artifact in one row."""

READ_ROWS = 500
READ_BYTES = 4_000_000
"""One read fetches at most this many rows, and stops at the row that reaches this many bytes."""


class Lease(Struct, frozen=True):
    """The owner of a tree, as recorded in its row."""

    owner: str
    left_s: float
    claimed_at: float
    events: int
    last_seq: int

    @property
    def live(self) -> bool:
        return owners.is_live(self.owner, self.left_s)


def lease(link: Link, root: str) -> Lease | None:
    found = link.rows(
        f"SELECT owner, expires - {link.now}, claimed_at, events, last_seq"  # noqa: S608 - our own constants
        f" FROM remit_trees WHERE root = ?{link.lock}",
        (root,),
    )
    return Lease(*cast(tuple[str, float, float, int, int], found[0])) if found else None


def owned_by(root: str, held: Lease, then: str) -> TreeOwned:
    """The error that names the owner of a tree and says what to do."""
    owner = owners.decode(held.owner)
    who = "This process" if owner and owner.here else f"Another process ({owners.words(held.owner)})"
    return TreeOwned(
        f"{who} has been running {root!r} since {owners.since(held.claimed_at)}, so {then}. "
        "Wait until that run has ended, or stop it."
    )


def taken_over(link: Link, root: str) -> TreeOwned:
    """The error for a tree that this process no longer owns."""
    held = lease(link, root)
    if held is None:
        return TreeOwned(
            f"Another process deleted the run {root!r}, so its further events are not stored. Stop this run."
        )
    who = owners.words(held.owner) if held.owner else "another process, which has finished"
    return TreeOwned(
        f"The run {root!r} was taken over by {who} at {owners.since(held.claimed_at)}, because this process did "
        "not renew its claim in time. Further events of this process are not stored. Stop this run."
    )


def unknown(root: str, where: str, link: Link | None = None) -> NoSuchTree:
    """The error for an unknown run."""
    hint = "`remit runs` lists the runs of a store; in Python, `store.trees()`."
    longer = [] if link is None or not root else _beginning_with(link, root)
    if len(longer) == 1:
        hint = f"Did you mean {longer[0]!r}?"
    elif longer:
        hint = "Several ids begin with it: give the whole id."
    return NoSuchTree(f"No run {root!r} in {where[0].lower()}{where[1:]}. {hint}")


def _beginning_with(link: Link, root: str) -> list[str]:
    """At most two ids with this prefix: the command line shows and accepts prefixes of ids."""
    sql = "SELECT root FROM remit_trees WHERE events > 0 AND substr(root, 1, ?) = ? LIMIT 2"
    return [cast(str, row[0]) for row in link.rows(sql, (len(root), root))]


def claim(link: Link, root: str, owner: str, where: str, *, new: bool, again: bool) -> int:
    """Claim a tree and return its last `seq`. `again`: an earlier attempt may have been committed."""
    if new:
        now = link.now
        added = link.change(
            "INSERT INTO remit_trees (root, owner, expires, claimed_at, agent, task, started_at, last_at,"
            f" last_seq, events, bytes) SELECT ?, ?, {now} + ?, {now}, '', '', {now}, {now}, 0, 0, 0 WHERE true"
            " ON CONFLICT (root) DO NOTHING",
            (root, owner, owners.LEASE_S),
        )
        if added:
            return 0
    held = lease(link, root)
    mine = again and held is not None and held.owner == owner
    if held is None or (not new and not held.events and not held.live):
        raise unknown(root, where, link)
    if new and not mine and (held.events or held.live):
        raise TreeExists(f"This store already has a run {root!r}. Resume it, or use another id.")
    if held.live and not mine:
        raise owned_by(root, held, "it cannot be resumed here")
    link.change(
        f"UPDATE remit_trees SET owner = ?, expires = {link.now} + ?, claimed_at = {link.now} WHERE root = ?",  # noqa: S608
        (owner, owners.LEASE_S, root),
    )
    # Chunks left by an owner that died while writing an artifact.
    link.change(
        "DELETE FROM remit_chunks WHERE root = ? AND version NOT IN"
        " (SELECT version FROM remit_artifacts WHERE root = ?)",
        (root, root),
    )
    return held.last_seq


def release(link: Link, root: str, owner: str) -> None:
    """Give up a claim. A tree without events is deleted."""
    mine = (root, owner)
    if link.rows("SELECT 1 FROM remit_trees WHERE root = ? AND owner = ? AND events = 0", mine):
        _forget(link, root)
    else:
        link.change("UPDATE remit_trees SET owner = '', expires = 0 WHERE root = ? AND owner = ?", mine)


def _forget(link: Link, root: str) -> None:
    for table in ("commands", "chunks", "artifacts", "pages", "trees"):
        link.change(f"DELETE FROM remit_{table} WHERE root = ?", (root,))  # noqa: S608 - the names above


def renew_one(link: Link, root: str, owner: str) -> bool:
    """Renew a claim. True if the tree is ours until the end of this transaction."""
    return bool(
        link.change(
            f"UPDATE remit_trees SET expires = {link.now} + ? WHERE root = ? AND owner = ?",  # noqa: S608
            (owners.LEASE_S, root, owner),
        )
    )


MOST_NAMED = 500
"""Trees named in one statement: SQLite allows 999 values in older versions."""


def _named(roots: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Placeholders and values for `IN (...)`. Padded to few lengths, so that few different statements are prepared."""
    for start in range(0, len(roots), MOST_NAMED):
        some = tuple(roots[start : start + MOST_NAMED])
        length = next(size for size in (1, 10, 50, MOST_NAMED) if size >= len(some))
        yield ", ".join("?" * length), some + some[-1:] * (length - len(some))


def renew(link: Link, roots: Sequence[str], owner: str) -> set[str]:
    """Renew claims and return those that this owner still has. Call inside a transaction."""
    held: set[str] = set()
    for marks, values in _named(roots):
        link.change(
            f"UPDATE remit_trees SET expires = {link.now} + ? WHERE owner = ? AND root IN ({marks})",  # noqa: S608
            (owners.LEASE_S, owner, *values),
        )
        sql = f"SELECT root FROM remit_trees WHERE owner = ? AND root IN ({marks})"  # noqa: S608 - placeholders
        found = link.rows(sql, (owner, *values))
        held |= {cast(str, row[0]) for row in found}
    return held


def clear_unused(link: Link) -> None:
    """Delete trees without events whose claims expired an hour ago."""
    found = link.rows(f"SELECT root FROM remit_trees WHERE events = 0 AND expires < {link.now} - 3600")  # noqa: S608
    for (root,) in cast(list[tuple[str]], found):
        _forget(link, root)


def pages_after(link: Link, root: str, after: int) -> list[tuple[int, str]]:
    """The next pages of a tree: the last `seq` of each, and its lines of JSON. Empty at the end."""
    pages: list[tuple[int, str]] = []
    size = 0
    rows = link.stream(
        "SELECT last, data FROM remit_pages WHERE root = ? AND last > ? ORDER BY last LIMIT ?",
        (root, after, READ_ROWS),
    )
    with closing(rows):
        for row in rows:
            pages.append(cast(tuple[int, str], row))
            size += len(pages[-1][1])
            if size >= READ_BYTES:
                break
    return pages


def add_chunks(link: Link, root: str, version: int, first: int, texts: Sequence[str]) -> int:
    """Add chunks to a hidden artifact and return their size in bytes. Adding the same chunks again changes nothing."""
    size = 0
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        link.change(
            "INSERT INTO remit_chunks (root, version, first, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (root, version, first, data),
        )
        first += len(text)
        size += len(data)
    return size


def show_artifact(link: Link, root: str, name: str, version: int, *, chars: int, size: int) -> None:
    """Make an artifact that was added in chunks visible under its name."""
    old = cast(
        list[tuple[int, int]],
        link.rows("SELECT version, bytes FROM remit_artifacts WHERE root = ? AND name = ?", (root, name)),
    )
    if old and old[0][0] == version:
        return
    link.change(
        "INSERT INTO remit_artifacts (root, name, version, chars, bytes) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (root, name) DO UPDATE SET"
        " version = excluded.version, chars = excluded.chars, bytes = excluded.bytes",
        (root, name, version, chars, size),
    )
    if old:
        drop_chunks(link, root, old[0][0])
        size -= old[0][1]
    link.change("UPDATE remit_trees SET bytes = bytes + ? WHERE root = ?", (size, root))


def drop_chunks(link: Link, root: str, version: int) -> None:
    link.change("DELETE FROM remit_chunks WHERE root = ? AND version = ?", (root, version))


def load_artifact(link: Link, root: str, name: str, start: int, length: int) -> str | None:
    # One query, so that an artifact replaced meanwhile is read either old or new, never mixed.
    found = link.rows(
        "SELECT c.first, c.data FROM remit_artifacts a LEFT JOIN remit_chunks c"
        " ON c.root = a.root AND c.version = a.version AND c.first > ? AND c.first < ?"
        " WHERE a.root = ? AND a.name = ? ORDER BY c.first",
        (start - CHUNK_CHARS, start + length, root, name),
    )
    if not found:
        return None
    pieces: list[str] = []
    for row in found:
        first, data = cast(tuple[int | None, bytes], row)
        if first is not None:
            text = bytes(data).decode("utf-8", "surrogatepass")
            pieces.append(text[max(0, start - first) : max(0, start + length - first)])
    return "".join(pieces)


def post(link: Link, root: str, command: AnyCommand, data: str, where: str) -> None:
    if lease(link, root) is None:
        raise unknown(root, where, link)
    # A command with this id is already there if an earlier attempt was committed.
    if not link.rows("SELECT 1 FROM remit_commands WHERE root = ? AND id = ?", (root, command.id)):
        link.change(
            "INSERT INTO remit_commands (root, number, id, data)"
            " SELECT ?, coalesce(max(number), 0) + 1, ?, ? FROM remit_commands WHERE root = ?",
            (root, command.id, data, root),
        )


def commands_after(link: Link, root: str, after: int, where: str) -> list[Posted]:
    found = cast(
        list[tuple[int, str]],
        link.rows(
            "SELECT number, data FROM remit_commands WHERE root = ? AND number > ? ORDER BY number",
            (root, after),
        ),
    )
    if not found and not link.rows("SELECT 1 FROM remit_trees WHERE root = ?", (root,)):
        raise unknown(root, where, link)
    posted: list[Posted] = []
    for number, data in found:
        try:
            posted.append(Posted(number, commands.decode(data)))
        except msgspec.DecodeError as error:
            # Skipped, so that later commands still reach the tree.
            log.warning("skipping unreadable command %s of the run %r in %s: %s", number, root, where, error)
    return posted


def last_commands(link: Link, roots: Sequence[str]) -> dict[str, int]:
    """The number of the last command of each of these trees, 0 without one; unknown trees are left out."""
    last: dict[str, int] = {}
    for marks, values in _named(roots):
        sql = (
            "SELECT t.root, coalesce(max(c.number), 0) FROM remit_trees t LEFT JOIN remit_commands c"  # noqa: S608 - placeholders
            f" ON c.root = t.root WHERE t.root IN ({marks}) GROUP BY t.root"
        )
        found = link.rows(sql, values)
        last.update(cast(list[tuple[str, int]], found))
    return last


_COLUMNS = (
    "root, agent, task, status, started_at, last_at, events, bytes, owner, expires - {now},"
    " runs, requests, tokens, micros, unpriced"
)


def trees_named(link: Link, roots: Sequence[str]) -> list[TreeInfo]:
    """The trees with these ids, in any order; trees without events are left out."""
    rows: list[Row] = []
    for marks, values in _named(roots):
        sql = f"SELECT {_COLUMNS} FROM remit_trees WHERE events > 0 AND root IN ({marks})"  # noqa: S608 - placeholders
        rows += link.rows(sql.format(now=link.now), values)
    return _infos(rows)


def trees(link: Link) -> list[TreeInfo]:
    sql = f"SELECT {_COLUMNS} FROM remit_trees WHERE events > 0 ORDER BY started_at DESC, root DESC"  # noqa: S608 - as above
    return _infos(link.rows(sql.format(now=link.now)))


def _infos(found: Sequence[Row]) -> list[TreeInfo]:
    listed: list[TreeInfo] = []
    for row in found:
        try:
            listed.append(_info(row))
        except (TypeError, ValueError) as error:
            log.warning("skipping the tree %r in the list: its row is unreadable (%s)", row[0], error)
    return listed


_STATUSES = frozenset(map(str, Status))


def _info(row: Row) -> TreeInfo:
    root, agent, task, status, started, last, events, size, owner, left, *spent = cast(
        tuple[str, str, str, str | None, float, float, int, int, str, float, int, int, int, int, int], row
    )
    runs, requests, tokens, micros, unpriced = spent
    return TreeInfo(
        root=root,
        agent=agent,
        task=task,
        status=Status(status) if status in _STATUSES else None,
        started_at=float(started),
        last_at=float(last),
        events=events,
        bytes=size,
        owner=owners.words(owner) if owners.is_live(owner, float(left)) else "",
        runs=runs,
        requests=requests,
        tokens=tokens,
        usd=None if unpriced else micros / 1_000_000,
    )


def delete(link: Link, root: str) -> int:
    """Delete a tree and return its size in bytes."""
    held = lease(link, root)
    if held is None:
        return 0
    found = cast(list[tuple[int]], link.rows("SELECT bytes FROM remit_trees WHERE root = ?", (root,)))
    if held.live:
        raise owned_by(root, held, "it cannot be deleted")
    _forget(link, root)
    return found[0][0] if found else 0
