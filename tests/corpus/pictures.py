"""Two forms of a tree to compare: what `fold` makes of its events, and its events whatever their order."""

from __future__ import annotations

import json
import re

import msgspec
from parts import Message, RunRecord, Tree, elapsed
from pydantic import BaseModel

from remit import AssistantMessage, Outcome, ToolMessage


def picture(tree: Tree) -> str:
    """What fold gives, for people and for comparing: the facts that others rely on, not how they are kept."""
    facts = {
        "root": tree.root,
        "status": tree.status,
        "seq": tree.seq,
        "usage": tree.usage(),
        "intents": [list(msgspec.structs.astuple(intent)) for intent in tree.intents()],
        "requests": list(tree.requests),
        "asked": tree.asked,
        "grants": [list(msgspec.structs.astuple(grant)) for grant in tree.grants],
        "commands": sorted(tree.commands),
        "artifacts": tree.artifacts,
        "runs": [_run(tree, record) for record in tree.runs.values()],
    }
    return msgspec.json.format(msgspec.json.encode(facts), indent=1).decode() + "\n"


def _run(tree: Tree, record: RunRecord) -> dict[str, object]:
    outcome = tree.outcomes()[record.id]
    bare = msgspec.structs.replace(outcome, children=(), messages=())
    return {
        "id": record.id,
        "parent": record.parent,
        "path": record.path,
        "label": record.label,
        "tools": record.start.tools,
        "limits": record.limits,
        "seconds": round(elapsed(record, tree.at), 6),
        "spending": tree.spending()[record.id]._asdict(),
        "messages": [_message(m) for m in record.talk.messages],
        "calls": [
            [c.turn, c.call.name, c.call.args, c.started, c.child, c.ended and c.ended.summary]
            for c in record.calls
        ],
        "asking": record.asking is not None,
        "unanswered": record.unanswered is not None,
        "asides": sorted(record.talk.asides),
        "overran": sorted(record.overran),
        "children": record.children,
        "outcome": msgspec.structs.replace(bare, duration_s=round(bare.duration_s, 6)),
    }


def _message(message: Message) -> list[object]:
    if isinstance(message, ToolMessage):
        return ["tool", message.call_id, message.ok, message.content, message.note]
    if isinstance(message, AssistantMessage):
        return ["assistant", message.text, [c.id for c in message.calls]]
    return ["user", message.text]


def outputs_of(outcome: Outcome) -> dict[str, object]:
    """The structured answers in a tree by run; a journal has them only as texts."""
    found = (
        {}
        if outcome.output is None
        else {outcome.run_id: msgspec.to_builtins(outcome.output, enc_hook=_plain)}
    )
    for child in outcome.children:
        found |= outputs_of(child)
    return found


def without_outputs(outcome: Outcome) -> Outcome:
    """As `fold` gives it."""
    below = tuple(without_outputs(child) for child in outcome.children)
    return msgspec.structs.replace(outcome, output=None, children=below)


def _plain(value: object) -> object:
    assert isinstance(value, BaseModel)
    return value.model_dump(mode="json")


Strand = tuple[str, str]
"""A run, and one of its calls or "" for the run's own steps."""


def exact(lines: str) -> list[str]:
    """Every field of every event, in order. `lines` has one event a line, as JSON."""
    # Not `splitlines`: JSON may have other ends of lines in its texts.
    return lines.rstrip("\n").split("\n") if lines else []


def without_remainders(text: str) -> str:
    """A text without the numbers of tokens that notes say are left: they depend on how far the siblings were."""
    return re.sub(r"(Left: [^.\"]*tokens )[0-9,]+", r"\1N", text)


def canonical(lines: str) -> dict[Strand, list[dict[str, object]]]:
    """The events of a tree by strand, in order within each: the contract that holds for every engine.

    A run's own steps are one strand, each of its calls is another. Two lists of events with the same canonical form
    have the same kinds with the same fields at the same times; the outcome and the totals are fields of `run_ended`.

    It ignores the version of an event and whether its header has an object of its own (version 2) or not, and three
    things because concurrent work has no order of its own:

    - `seq`, the number of an event within its tree,
    - the order of two events from different strands: siblings, calls of one reply, a child and its parent,
    - how much was done before an event: `count` and `tokens` of calls, `waiting` of `child_queued`, and the tokens that
      the note after a child says are left (`without_remainders`).
    """
    strands: dict[Strand, list[dict[str, object]]] = {}
    for line in exact(without_remainders(lines)):
        event = json.loads(line)
        event.update(event.pop("where", {}))
        for field in ("v", "seq", "count", "tokens", "waiting"):
            event.pop(field, None)
        # A child says which call of its parent started it; that is not a call of the child's own.
        call = "" if event["kind"] == "run_started" else event.get("call", "")
        strands.setdefault((event["run"], call), []).append(event)
    return dict(sorted(strands.items()))
