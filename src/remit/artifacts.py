"""Texts too long to be read inline, kept whole in the store, and the tool that reads them back."""

from __future__ import annotations

from typing import cast

from remit import foreign
from remit.events import ArtifactSaved
from remit.execution import Run
from remit.outcome import Artifact
from remit.phase import Phase, Stopped
from remit.scope import TreeContext
from remit.text import clean
from remit.tool import Tier, Tool, ToolContext, ToolResult

SAVE_S = 5.0
"""How long a store may take to keep one text; the run does not wait longer for it."""

MOST_READ = 20_000
"""Characters `read_artifact` gives at once."""


async def keep(run: Run, name: str, text: str) -> Artifact | None:
    """Put a text in the store. None, with a warning in the outcome, when the store fails. Never raises."""
    scope = run.scope
    artifact = Artifact(f"{scope.run_id}/{name}", name, len(text), len(text.encode("utf-8", "replace")))
    # Not the run's own phase: what a stopped run had is worth keeping too.
    phase = Phase(scope.tree.loop, lambda: None)
    end = scope.tree.loop.time() + SAVE_S
    try:
        ended = await foreign.run(
            scope.tree.store.save_artifact(scope.tree.root, artifact.id, text),
            phase,
            name="the store",
            expires=lambda: end,
            on_abandoned=scope.left_behind,
        )
    except Stopped:
        return None
    if ended.how != "returned":
        why = (
            "it did not answer in time"
            if ended.error is None
            else f"{type(ended.error).__name__}: {ended.error}"
        )
        scope.warn(f"The artifact {artifact.id} ({artifact.chars:,} characters) was not kept: {why}.")
        return None
    run.artifacts.append(artifact)
    scope.emit(ArtifactSaved, artifact=artifact)
    return artifact


def read_artifact_tool(tree: TreeContext) -> Tool:
    """`read_artifact`: reads what a run, or a run below it, had to leave out."""

    async def read_artifact(
        artifact: str, ctx: ToolContext, start: int = 0, length: int = MOST_READ
    ) -> ToolResult:
        """Read a text that was too long to be shown whole.

        Args:
            artifact: The artifact's id, as given where the text was cut.
            start: The first character to read, counted from 0.
            length: How many characters to read, at most 20000.
        """
        owner = artifact.partition("/")[0]
        if owner != ctx.run_id and not owner.startswith(f"{ctx.run_id}."):
            return ToolResult(
                f"There is no artifact {clean(artifact)[:100]!r} in this run or below it.", ok=False
            )
        if start < 0 or not 1 <= length <= MOST_READ:
            return ToolResult(f"start must be 0 or more, and length from 1 to {MOST_READ}.", ok=False)
        text = await tree.store.load_artifact(tree.root, artifact, start, length)
        if text is None:
            return ToolResult(
                f"There is no artifact {clean(artifact)[:100]!r} in this run or below it.", ok=False
            )
        more = f" Go on with start={start + len(text)}." if len(text) == length else " This is the end of it."
        return ToolResult(
            text, note=f"[remit] Characters {start} to {start + len(text)} of {artifact}.{more}"
        )

    return Tool(cast("type[object]", read_artifact), tier=Tier.OBSERVE)
