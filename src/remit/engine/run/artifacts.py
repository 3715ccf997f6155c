"""Texts too long to be read inline: stored whole as artifacts, and the tool that reads them."""

from __future__ import annotations

import asyncio
import re
from typing import cast

import remit.tasks.guest as foreign
import remit.tools.arguments as fields
from remit.engine.run.runtime_tool import RuntimeTool
from remit.engine.run.state import Run
from remit.tasks.cancel import Phase, Stopped
from remit.tools.arguments import Bad, Field
from remit.tools.result import ToolResult, failure
from remit.tools.tool import Tier
from remit.types.events import ArtifactSaved
from remit.types.messages import JsonObject, ToolSpec
from remit.types.outcome import Artifact
from remit.types.text import describe_error

SAVE_S = 5.0
"""How long a store may take to save one text; the run does not wait longer."""

SAVE_CHARS = 5_000_000
"""A store gets one more second per this many characters."""

SAVE_STOPPED_S = 1.0
"""How long a store may take if the run was stopped."""

SAVE_GRACE_S = 0.5

COUNTED_CHARS = 1_000_000
"""How many characters are counted before the event loop gets a turn."""

ARTIFACT_ID = r"[A-Za-z0-9_-]+(\.[0-9]+)*/[a-z0-9_]+"

MOST_READ = 20_000
"""The most characters that `read_artifact` returns at once."""


async def keep(run: Run, name: str, text: str) -> Artifact | None:
    """Store a text as an artifact. If the store fails, returns None and adds a warning. Never raises."""
    node, life = run.node, run.node.life
    artifact_id = f"{node.run_id}/{name}"
    # A separate phase: the text is worth storing, briefly, even if the run was stopped.
    phase = Phase(node.tree.alarm)
    phase.grace_s = SAVE_GRACE_S
    most = SAVE_STOPPED_S if life.cause is not None else SAVE_S + len(text) / SAVE_CHARS
    end = node.tree.clock() + max(0.0, min(most, life.deadline.left()))
    try:
        ended = await foreign.run(
            _save(run, artifact_id, text),
            phase,
            name="the store",
            expires=lambda: end,
            on_abandoned=node.left_behind,
        )
    except Stopped:
        return None
    if ended.how != "returned":
        why = "the store did not respond in time" if ended.error is None else describe_error(ended.error)
        node.warn(f"The artifact {artifact_id} ({len(text):,} characters) was not stored: {why}.")
        return None
    artifact = Artifact(artifact_id, name, len(text), cast(int, ended.value))
    run.artifacts = [a for a in run.artifacts if a.id != artifact.id] + [artifact]
    node.emit(ArtifactSaved(*node.stamp(), artifact=artifact))
    return artifact


async def _save(run: Run, artifact_id: str, text: str) -> int:
    """The text's size in UTF-8 bytes."""
    store = await run.node.tree.journal.store()
    await store.save_artifact(run.node.tree.root, artifact_id, text)
    if text.isascii():
        return len(text)
    size = 0
    for start in range(0, len(text), COUNTED_CHARS):
        size += len(text[start : start + COUNTED_CHARS].encode("utf-8", "replace"))
        await asyncio.sleep(0)
    return size


class ReadArtifact(RuntimeTool):
    """`read_artifact`: reads a text that this run, or a run below it, had to truncate."""

    FIELDS = (
        Field("artifact", ("id", "artifact_id")),
        Field("start", ("offset",)),
        Field("length", ("limit",)),
    )

    def __init__(self) -> None:
        super().__init__("read_artifact", display_name="Read artifact", tier=Tier.OBSERVE, spec=_SPEC)

    async def act(self, run: Run, call_id: str, args: JsonObject) -> ToolResult:
        del call_id
        try:
            values = fields.gather(args, self.FIELDS)
            artifact = fields.text(values, "artifact", 1000)
            start = fields.whole(values, "start", 0, 10**12) or 0
            length = fields.whole(values, "length", 1, MOST_READ) or MOST_READ
            length = min(length, run.turn.inline_chars)
        except Bad as bad:
            return ToolResult(f"{self.name}: {bad.problem}", ok=False)
        owner, mine = artifact.partition("/")[0], run.node.run_id
        # Only ids in the format of `keep` reach a store: anything else from a model could be a path.
        if not re.fullmatch(ARTIFACT_ID, artifact):
            return _missing(artifact)
        if owner != mine and not owner.startswith(f"{mine}."):
            return _missing(artifact)
        return await _load(run, artifact, start, length)


async def _load(run: Run, artifact: str, start: int, length: int) -> ToolResult:
    tree = run.node.tree
    end = tree.clock() + SAVE_S
    ended = await foreign.run(
        _read(run, artifact, start, length),
        run.node.life.phase,
        name="the store",
        expires=lambda: end,
        on_abandoned=run.node.left_behind,
    )
    if ended.error is not None or ended.how == "timed_out":
        return failure(ended.error or TimeoutError("the store did not respond"))
    if not isinstance(ended.value, str):
        return _missing(artifact)
    text = ended.value
    more = f" Continue with start={start + len(text)}." if len(text) == length else " This is the end."
    return ToolResult(text, note=f"[remit] Characters {start} to {start + len(text)} of {artifact}.{more}")


async def _read(run: Run, artifact: str, start: int, length: int) -> object:
    store = await run.node.tree.journal.store()
    return await store.load_artifact(run.node.tree.root, artifact, start, length)


def _missing(artifact: str) -> ToolResult:
    return ToolResult(f"No artifact {artifact[:100]!r} in this run or below it.", ok=False)


_SPEC = ToolSpec(
    "read_artifact",
    "Read a text that was truncated.",
    {
        "type": "object",
        "properties": {
            "artifact": {
                "type": "string",
                "description": "The artifact's id, from the note about the truncated text.",
            },
            "start": {"type": "integer", "minimum": 0, "description": "The first character to read, from 0."},
            "length": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_READ,
                "description": "How many characters to read.",
            },
        },
        "required": ["artifact"],
        "additionalProperties": False,
    },
)
READ_ARTIFACT = ReadArtifact()
