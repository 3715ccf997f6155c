"""How a run goes on, in words: by `remit resume`, or only in the program that started it."""

from __future__ import annotations

from remit.cli.options import Options, recall
from remit.cli.run_lookup import NamedRun, hint
from remit.types.ports import Store


def way_on(called: Options | None, root: str, short: str) -> str:
    """What to do to have a tree go on. `called` is how the command line was called, None if it was not."""
    if called is not None:
        return hint(f"resume {short}")
    # Only the program has its agent and its model: `remit resume` would refuse.
    return f"in its own program, remit.resume(store, {root!r}, agent=..., model=...)"


def way_to_ask(called: Options | None, short: str) -> str:
    """What to do to have the conversation of a tree go on with something new; `called` as above."""
    if called is not None:
        return hint(f"resume {short} TEXT")
    return "in its own program, remit.run(agent, TEXT, history=outcome.messages)"


async def find_way_on(store: Store, found: NamedRun) -> str:
    """As `way_on`, for a run of the journal or a child of one. Raises StoreError."""
    root = found.info.root
    return way_on(await recall(store, root), root, found.short.partition(".")[0])
