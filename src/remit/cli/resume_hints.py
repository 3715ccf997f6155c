"""Hints on how to resume a run: with `remit resume`, or in the program that started it."""

from __future__ import annotations

from remit.cli.options import Options, recall
from remit.cli.run_lookup import NamedRun, hint
from remit.types.ports import Store


def resume_hint(called: Options | None, root: str, short: str) -> str:
    """The command or call that resumes a tree. `called` has the options of `remit run`, None for other programs."""
    if called is not None:
        return hint(f"resume {short}")
    # Only that program has the agent and the model: `remit resume` would fail.
    return f"in its own program, remit.resume(store, {root!r}, agent=..., model=...)"


def continue_hint(called: Options | None, short: str) -> str:
    """The command or call that continues a tree's conversation with a new message; `called` as above."""
    if called is not None:
        return hint(f"resume {short} TEXT")
    return "in its own program, remit.run(agent, TEXT, history=outcome.messages)"


async def find_resume_hint(store: Store, found: NamedRun) -> str:
    """Like `resume_hint`, for a run of the journal or the root of a child. Raises StoreError."""
    root = found.info.root
    return resume_hint(await recall(store, root), root, found.short.partition(".")[0])
