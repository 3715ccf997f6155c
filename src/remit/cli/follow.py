"""Following a run of another process through the journal: what is there, then what is added, up to its end."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from remit.cli.run_lookup import NamedRun
from remit.history.fold import apply
from remit.history.records import Tree
from remit.types.events import Event
from remit.types.ports import Store

POLL_S = 0.1
LOOK_S = 1.0
"""How often it is asked whether a process runs it, while nothing is added."""


def _ignore(event: Event | None = None) -> None:
    del event


async def follow(
    store: Store,
    found: NamedRun,
    hear: Callable[[Event], None] = _ignore,
    alive: Callable[[], None] = _ignore,
) -> Tree:
    """The tree once the run has ended, or once no process runs it.

    Every event is given to `hear` on the way; `alive` is called whenever a process is seen to run it.
    """
    tree, quiet_s = Tree(), LOOK_S

    async def take() -> bool:
        """Whether anything was added."""
        before = tree.seq
        async for event in store.read(found.info.root, before):
            apply(tree, event)
            hear(event)
        return tree.seq != before

    # Not counted as being added: of what was there before it is asked at once whether a process runs it.
    await take()
    while True:
        if await take():
            quiet_s = 0.0
        if _has_ended(tree, found.run):
            return tree
        if quiet_s >= LOOK_S:
            quiet_s = 0.0
            # Its last events may have come after they were read, and before it was asked who runs it.
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
    """Whether a process runs it."""
    return any(info.root == root and info.live for info in await store.trees())
