"""The tables of `remit show`: calls, usage and events of a run and its descendants."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from msgspec.structs import asdict

import remit.observe.words as words
from remit.cli.run_lookup import NamedRun
from remit.cli.views.columns import Cell, Row
from remit.history.records import CallRecord, RunRecord, Tree, is_within
from remit.observe.event_words import in_words
from remit.types.events import Event
from remit.types.limits import Usage
from remit.types.messages import JsonObject
from remit.types.text import call_context, text_of


def below(tree: Tree, found: NamedRun) -> list[RunRecord]:
    """The run and its descendants, in the order in which they started."""
    return [record for record in tree.runs.values() if is_within(record.id, found.run)]


def shown_id(run: str, found: NamedRun) -> str:
    """A run's id as tables show it: with the short id of its tree."""
    return found.short.partition(".")[0] + run.removeprefix(found.info.root)


def call_rows(tree: Tree, found: NamedRun) -> Iterator[Row]:
    yield "RUN", "TURN", "TOOL", "ARGUMENTS", "RESULT", "MS"
    for record in below(tree, found):
        for call in record.calls:
            name, args = call.call.name, call.args
            about = call.ended.context if call.ended else call_context(name, args)
            what = about or words.line(text_of(args), 200)
            time_ms = f"{call.ended.duration_ms:,}" if call.ended and call.started else ""
            yield (
                shown_id(record.id, found),
                str(call.turn),
                name,
                what,
                _result(tree, call),
                time_ms,
            )


def _result(tree: Tree, call: CallRecord) -> Cell:
    end = call.ended
    if end is not None:
        return Cell(end.summary or ("done" if end.success else "failed"), "" if end.success else "bad")
    if call.request in tree.requests:
        return Cell("waits for approval", "ask")
    return Cell("not finished" if call.started else "not started", "warn")


def call_items(tree: Tree, found: NamedRun) -> list[JsonObject]:
    """The same as JSON, with all arguments."""
    return [
        {
            "run": record.id,
            "turn": call.turn,
            "id": call.call.id,
            "tool": call.call.name,
            "args": call.args,
            "child": call.child or None,
            "success": None if call.ended is None else call.ended.success,
            "result": None if call.ended is None else call.ended.content,
            "duration_ms": None if call.ended is None else call.ended.duration_ms,
        }
        for record in below(tree, found)
        for call in record.calls
    ]


def usage_rows(tree: Tree, found: NamedRun) -> Iterator[Row]:
    yield "RUN", "AGENT", "MODEL", "REQUESTS", "INPUT", "OUTPUT", "CACHED", "COST"
    records = below(tree, found)
    for record in records:
        own = _sum(record.usage)
        yield shown_id(record.id, found), record.agent, record.model_used, *_amounts(own)
    if len(records) > 1:
        yield Cell("total", "strong"), "", "", *_amounts(tree.usage(found.run))


def _sum(parts: Iterable[Usage]) -> Usage:
    return sum(parts, Usage())


def _amounts(used: Usage) -> tuple[str, ...]:
    about = "~" if used.estimated else ""
    cached = f"{used.cache_read_tokens:,}" if used.cache_read_tokens else ""
    cost = words.money(used.usd) if used.usd is not None or used.tokens else ""
    return (
        f"{used.requests:,}",
        f"{about}{used.input_tokens:,}",
        f"{about}{used.output_tokens:,}",
        cached,
        cost,
    )


def usage_items(tree: Tree, found: NamedRun) -> list[JsonObject]:
    return [
        {
            "run": record.id,
            "agent": record.agent,
            "model": record.model_used,
            "usage": asdict(_sum(record.usage)),
        }
        for record in below(tree, found)
    ]


def event_rows(events: Iterable[Event], found: NamedRun) -> Iterator[Row]:
    yield "SEQ", "TIME", "RUN", "AGENT", "EVENT"
    for event in events:
        at = time.strftime("%H:%M:%S", time.localtime(event.at)) + f".{int(event.at * 1000) % 1000:03}"
        what = in_words(event)
        yield str(event.seq), at, shown_id(event.run, found), event.agent, what
