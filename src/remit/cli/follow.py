"""Follows a run of another process through the journal, from its first event to its end."""

from __future__ import annotations

from collections.abc import Callable

import anyio

import remit.remote as remote
from remit.cli.run_lookup import NamedRun
from remit.history.fold import apply
from remit.history.records import Tree
from remit.types.events import Event
from remit.types.ports import Store

POLL_S = 0.1
LOOK_S = 1.0
"""How often to check that a process still runs the tree, while there are no new events."""


def _ignore(event: Event | None = None) -> None:
    del event


async def follow(
    store: Store,
    found: NamedRun,
    hear: Callable[[Event], None] = _ignore,
    alive: Callable[[], None] = _ignore,
) -> Tree:
    """Wait until the run has ended or no process runs it; returns its tree.

    Calls `hear` with every event, and `alive` at every check that finds a process.
    """
    tree, quiet_s = Tree(), LOOK_S

    async def take() -> bool:
        """Read new events; returns whether there were any."""
        before = tree.seq
        async for event in store.read(found.info.root, before):
            apply(tree, event)
            hear(event)
        return tree.seq != before

    # Events that existed before do not count as new, so the first check for a process happens at once.
    await take()
    while True:
        if await take():
            quiet_s = 0.0
        if _has_ended(tree, found.run):
            return tree
        if quiet_s >= LOOK_S:
            quiet_s = 0.0
            # The process may have written its last events between the read and this check.
            if await is_live(store, found.info.root):
                alive()
            elif not await take():
                return tree
            continue
        await anyio.sleep(POLL_S)
        quiet_s += POLL_S


def _has_ended(tree: Tree, run: str) -> bool:
    record = tree.runs.get(run)
    return tree.status is not None or (record is not None and record.outcome is not None)


async def is_live(store: Store, root: str) -> bool:
    """Whether a process runs the tree."""
    return any(info.live for info in await remote.infos(store, [root]))
