"""The page that `remit show` prints by default: task, status, tree, answer, notes."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import asdict

import remit.observe.words as words
from remit.cli.options import Options, recall
from remit.cli.resume_hints import resume_hint
from remit.cli.run_lookup import NamedRun, hint, short_request
from remit.cli.views.show_tables import below, shown_id
from remit.history.records import REOPENED, RunRecord, Tree
from remit.observe.display.tree_view import TreeView, interrupt, shown, whole
from remit.types.limits import Usage, total
from remit.types.messages import JsonObject
from remit.types.outcome import Outcome
from remit.types.ports import Store

TASK_LINES = 6
LABEL = 8
"""Cells of a label."""
PIPE_WIDTH = 120
"""The width of a tree in a file or a pipe."""


class Shown(NamedTuple):
    """A run to show. Runs without an end whose process is gone count as `interrupted`."""

    found: NamedRun
    tree: Tree
    outcome: Outcome | None
    """None while the run is running."""
    called: Options | None
    """The options of `remit run`; None if another program started the tree."""

    @property
    def record(self) -> RunRecord:
        return self.tree.runs[self.found.run]

    @property
    def status(self) -> str:
        return "running" if self.outcome is None else str(self.outcome.status)


async def read_run(store: Store, found: NamedRun, tree: Tree) -> Shown:
    outcomes = tree.outcomes()
    if not found.info.live:
        interrupt(tree)
    ended = tree.runs[found.run].outcome is not None
    called = await recall(store, found.info.root)
    return Shown(found, tree, outcomes[found.run] if ended else None, called)


def subtree(tree: Tree, run: str) -> Tree:
    """A run and its descendants as a separate tree."""
    if run == tree.root:
        return tree
    runs = {r.id: r for r in tree.runs.values() if r.id == run or r.id.startswith(f"{run}.")}
    asked = {name: request for name, request in tree.requests.items() if request.run in runs}
    return Tree(root=run, runs=runs, seq=tree.seq, at=tree.at, requests=asked)


def drawn_tree(one: Shown, *, width: int, colour: bool, unicode: bool = True) -> str:
    now = time.time() if one.found.info.live else one.tree.at
    view = TreeView(subtree(one.tree, one.found.run))
    return shown(whole(view, width=width, now=now), colour=colour, unicode=unicode)


def pieces(one: Shown, *, window: int | None, colour: bool, unicode: bool = True) -> Iterator[str]:
    """The parts of the page, to be joined by empty lines, wrapped to the window if there is one."""
    most = window or sys.maxsize
    yield "\n".join(part for row in _head(one, colour=colour) for part in words.wrap(row, most, " " * LABEL))
    yield drawn_tree(one, width=window or PIPE_WIDTH, colour=colour, unicode=unicode)
    for title, text, look in _answer(one):
        yield f"{words.looked(title, look, colour=colour)}\n{words.wrap_prose(words.lines(text), most)}"
    notes = list(_notes(one))
    if notes:
        yield "\n".join(part for note in notes for part in words.wrap(note, most))


def _head(one: Shown, *, colour: bool) -> Iterator[str]:
    record, outcome = one.record, one.outcome
    mark = words.mark_of(outcome.status if outcome else None)
    title = f"{one.found.short}  {words.path(record.path)}"
    status = (
        words.status_words(outcome.status) if outcome else f"running ({words.line(one.found.info.owner)})"
    )
    yield words.looked(title, "strong", colour=colour) + "  " + words.looked(status, mark.look, colour=colour)
    rows = words.lines(record.task.text.strip()).split("\n")
    yield _row("Task", rows[0])
    for row in rows[1:TASK_LINES]:
        yield _row("", row)
    if len(rows) > TASK_LINES:
        yield _row("", f"… {words.count(len(rows) - TASK_LINES, 'more line')} (--messages)")
    yield _row("Model", words.line(record.model_used))
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started_at))
    took = f", took {words.duration(outcome.duration_s)}" if outcome else ""
    yield _row("Started", f"{began} ({words.ago(record.started_at, time.time())}){took}")
    if one.called is not None and one.called.workspace:
        yield _row("Folder", words.line(one.called.workspace))


def _row(name: str, text: str) -> str:
    return f"{name:{LABEL}}{text}".rstrip()


def _answer(one: Shown) -> Iterator[tuple[str, str, words.Look]]:
    outcome = one.outcome
    if outcome is None:
        if one.record.talk.text.strip():
            yield "Last text", one.record.talk.text, "strong"
        return
    if outcome.text:
        yield "Answer", outcome.text, "good"
    if outcome.reason or outcome.error:
        why = (
            outcome.reason
            if outcome.reason == outcome.error or not outcome.error
            else f"{outcome.reason}\n{outcome.error}"
        )
        yield "Reason", why.strip(), "warn"
    if outcome.partial and not outcome.text:
        yield "Partial answer", outcome.partial, "strong"


def _notes(one: Shown) -> Iterator[str]:
    found, root = one.found, one.found.short.partition(".")[0]
    for record in below(one.tree, found):
        for warning in dict.fromkeys(record.warnings):
            yield f"Warning ({shown_id(record.id, found)}): {words.line(warning)}"
        for kept in record.artifacts:
            command = hint(f"show {root} --artifact {shlex.quote(words.line(kept.id))}")
            yield f"Artifact: {words.line(kept.name)}, {kept.chars:,} characters: {command}"
    for request in subtree(one.tree, found.run).requests.values():
        short = short_request(request.request, found.short)
        what = words.doing(request.tool, request.context)
        yield f"Approval needed: {words.path(request.path)}: {what}. Answer: {hint(f'approve {short}')}, or {hint(f'deny {short}')}"
    if one.outcome is None:
        yield f"Watch: {hint(f'watch {found.short}')}   Cancel: {hint(f'cancel {found.short}')}"
    elif found.is_root and one.outcome.status in REOPENED:
        yield f"Resume: {resume_hint(one.called, found.info.root, root)}"


def as_json(one: Shown) -> JsonObject:
    """The same as JSON."""
    record, outcome = one.record, one.outcome
    return {
        "id": record.id,
        "root": one.found.info.root,
        "parent": record.parent,
        "status": one.status,
        "owner": one.found.info.owner or None,
        "agent": record.agent,
        "path": record.path,
        "label": record.label or None,
        "task": record.task.text,
        "model": record.model_used,
        "started_at": record.started_at,
        "duration_s": outcome.duration_s if outcome else None,
        "text": outcome.text if outcome else "",
        "partial": outcome.partial if outcome else record.talk.text,
        "reason": outcome.reason if outcome else "",
        "error": outcome.error if outcome else None,
        "turns": record.talk.turns,
        "usage": asdict(total(record.usage)),
        "total_usage": asdict(one.tree.usage(record.id)),
        "limits": record.limits,
        "children": record.children,
        "waiting": [r.request for r in subtree(one.tree, record.id).requests.values()],
        "artifacts": record.artifacts,
        "warnings": record.warnings,
        "called": one.called,
    }


def tree_json(one: Shown) -> list[JsonObject]:
    """Every run in a few fields, parents first."""
    totals: dict[str, Usage] = {}
    # Children start after their parents, so the reversed order has them first.
    for record in reversed(below(one.tree, one.found)):
        totals[record.id] = total((*record.usage, *(totals[child] for child in record.children)))
    return [
        {
            "id": record.id,
            "parent": record.parent,
            "agent": record.agent,
            "label": record.label or None,
            "task": record.task.text,
            "status": "running" if record.outcome is None else record.outcome.status,
            "reason": record.outcome.reason if record.outcome else "",
            "turns": record.talk.turns,
            "usage": asdict(total(record.usage)),
            "total_usage": asdict(totals[record.id]),
        }
        for record in below(one.tree, one.found)
    ]
