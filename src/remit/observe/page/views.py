"""Makes the records that the page fetches on demand: conversations, calls, events, questions. Every text is bounded."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec

import remit.observe.page.markup as markup
import remit.observe.words as words
import remit.types.events as events
from remit.history.records import CallRecord, RunRecord, Tree
from remit.observe.event_words import in_words
from remit.observe.page.bodies import (
    About,
    Argument,
    Asked,
    CallLine,
    CallView,
    EntryView,
    EventRow,
    PartView,
    Text,
)
from remit.observe.page.entries import Conversation, Entry
from remit.observe.page.rows import Amount
from remit.types.event_json import flat
from remit.types.events import Event
from remit.types.limits import Usage
from remit.types.messages import FilePart, ImagePart, Json, JsonObject, Part, TextPart, UserMessage
from remit.types.text import call_context, clean, text_of

BODY_CHARS = 20_000
"""Of one text; the rest is fetched in pieces."""
LINE_CHARS = 300
MOST_ARGS = 40
MOST_CHILDREN = 50
RAW_ITEMS = 200

Form = Literal["markdown", "plain", "diff", "json"]


# --- Texts ----------------------------------------------------------------------------------------


def text_view(text: str, ref: str, form: Form = "markdown") -> Text:
    """The beginning of a text, as elements."""
    head = text[:BODY_CHARS]
    if form == "markdown" and len(text) <= BODY_CHARS:
        nodes = markup.markdown(head)
    elif form in ("diff", "json"):
        nodes = (markup.code(head, form),)
    else:
        nodes = (markup.plain(head),)
    return Text(nodes=nodes, chars=len(text), shown=len(head), ref=ref)


def find_text(talk: Conversation, tree: Tree, record: RunRecord, ref: str) -> str | None:
    """A whole text by its `ref`; None for an unknown one."""
    if ref in ("task", "instructions", "answer"):
        return _own_text(record, ref)
    seq, _, rest = ref.partition("/")
    entry = talk.find(int(seq)) if seq.isdecimal() and len(seq) < 16 else None
    if entry is None:
        return None
    if rest == "text":
        return _said(entry.event)
    if rest == "thinking":
        return _thinking(entry.event)
    place, _, what = rest.partition("/")
    if not place.isdecimal() or len(place) > 6 or int(place) >= len(entry.calls):
        return None
    return _call_text(tree, entry.calls[int(place)], what)


def _own_text(record: RunRecord, ref: str) -> str:
    if ref == "task":
        return record.task.text
    if ref == "instructions":
        return record.start.instructions
    return "" if record.outcome is None else record.outcome.text or record.outcome.partial


def _call_text(tree: Tree, call: CallRecord, what: str) -> str | None:
    if what == "result":
        return None if call.ended is None else call.ended.content
    if what == "preview":
        asked = tree.requests.get(call.request)
        return None if asked is None else asked.preview
    name = what.removeprefix("args/")
    return dict(_arguments(call)).get(name) if what.startswith("args/") else None


def _said(event: Event) -> str:
    if isinstance(event, events.ReplyReceived):
        return event.reply.text
    if isinstance(event, events.RunStarted):
        return event.task.text
    if isinstance(event, events.MessageJoined):
        return event.message.text
    if isinstance(event, events.Compacted):
        return event.summary
    return ""


def _thinking(event: Event) -> str:
    if not isinstance(event, events.ReplyReceived):
        return ""
    return "\n\n".join(one.text for one in event.reply.thinking if one.text)


def _arguments(call: CallRecord) -> Sequence[tuple[str, str]]:
    args = call.call.args
    if isinstance(args, str):
        return [("(as written)", args)]
    return [(name, text_of(value)) for name, value in itertools.islice(args.items(), MOST_ARGS)]


def _argument_views(call: CallRecord, ref: str, *, exact: bool = False) -> tuple[Argument, ...]:
    """`exact`: every character can be seen, for a person who decides about them."""
    return tuple(
        Argument(
            words.line(name, 100),
            text_view(words.lines(text[:BODY_CHARS]) if exact else text, f"{ref}/args/{name}", "plain"),
        )
        for name, text in _arguments(call)
    )


# --- Conversations --------------------------------------------------------------------------------


def entry_view(tree: Tree, run: str, entry: Entry, *, live: bool) -> EntryView:
    event = entry.event
    if isinstance(event, events.RunStarted) and event.run != run:
        label = event.label or event.key
        return _entry(entry, "child", child=event.run, words=words.line(label, LINE_CHARS))
    if isinstance(event, events.RunStarted):
        return _message(entry, "task", event.task)
    if isinstance(event, events.ReplyReceived):
        return _reply(tree, entry, event, live=live)
    if isinstance(event, events.MessageJoined):
        return _message(entry, "message", event.message, event.origin, event.purpose)
    if isinstance(event, events.ModelCallFailed):
        return _entry(entry, "failed", turn=event.turn, words=_line(event), usage=amount(event.usage))
    if isinstance(event, (events.CallStarted, events.CallEnded)):
        return _entry(entry, "step", calls=(call_line(tree, entry, 0, live=live),))
    if isinstance(event, events.RunEnded):
        return _entry(entry, "end", status=str(event.outcome.status), words=_line(event))
    if isinstance(event, events.ArtifactSaved):
        return _entry(entry, "note", words=_line(event), artifact=event.artifact.id)
    if isinstance(event, events.Compacted):
        summary = text_view(event.summary, f"{event.seq}/text")
        return _entry(entry, "note", words=_line(event), text=summary)
    return _entry(entry, "note", words=_line(event))


def _entry(entry: Entry, kind: str, **more: object) -> EntryView:
    fields = {"n": entry.n, "seq": entry.seq, "changed": entry.changed, "at": entry.event.at, "kind": kind}
    return EntryView(**cast("dict[str, object]", fields | more))  # pyright: ignore[reportArgumentType]  # by name


def _reply(tree: Tree, entry: Entry, event: events.ReplyReceived, *, live: bool) -> EntryView:
    reply, thinking = event.reply, _thinking(event)
    return _entry(
        entry,
        "reply",
        turn=event.turn,
        purpose="" if event.purpose == "turn" else event.purpose.replace("_", "-"),
        text=text_view(reply.text, f"{event.seq}/text") if reply.text.strip() and not event.again else None,
        thinking=text_view(thinking, f"{event.seq}/thinking") if thinking and not event.again else None,
        calls=tuple(call_line(tree, entry, place, live=live) for place in range(len(entry.calls))),
        usage=amount(event.usage),
        model=words.line(reply.model, LINE_CHARS),
        again=event.again,
        status=reply.stop if reply.stop in ("length", "refusal") else "",
    )


def _message(entry: Entry, kind: str, message: UserMessage, origin: str = "", purpose: str = "") -> EntryView:
    return _entry(
        entry,
        kind,
        origin=origin,
        purpose="" if purpose == "turn" else purpose.replace("_", "-"),
        text=text_view(message.text, f"{entry.seq}/text"),
        parts=part_views(message.content, f"{entry.seq}/parts"),
    )


def _line(event: Event) -> str:
    return words.cut(words.line(in_words(event)), LINE_CHARS)


def amount(usage: Usage) -> Amount:
    return Amount(
        requests=usage.requests,
        tokens=usage.tokens,
        cached=usage.cache_read_tokens,
        input=usage.input_tokens,
        usd=usage.usd,
        estimated=usage.estimated,
    )


def part_views(parts: Sequence[Part], ref: str) -> tuple[PartView, ...]:
    found: list[PartView] = []
    for place, part in enumerate(parts):
        if not isinstance(part, TextPart):
            found.append(
                PartView(
                    kind="image" if isinstance(part, ImagePart) else "file",
                    name=words.line(part.name, 200) if isinstance(part, FilePart) else "",
                    media_type=words.line(part.media_type, 100),
                    bytes=len(part.data),
                    url=words.line(part.url, LINE_CHARS),
                    ref=f"{ref}/{place}" if part.data else "",
                )
            )
    return tuple(found)


IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""By their first bytes. Others, SVG among them, can only be downloaded."""


def image_type(data: bytes) -> str:
    """The media type of an image that browsers show; empty for other data."""
    return next((media for first, media in IMAGES.items() if data.startswith(first)), "")


def find_part(talk: Conversation, ref: str) -> ImagePart | FilePart | None:
    """An image or a document by its `ref`; None for an unknown one."""
    names = ref.split("/")
    if not 3 <= len(names) <= 4 or not all(name == "parts" or name.isdecimal() for name in names):
        return None
    entry = talk.find(int(names[0][:15]))
    if entry is None or names[-2] != "parts":
        return None
    parts: Sequence[Part] = ()
    if len(names) == 4 and int(names[1][:6]) < len(entry.calls):
        ended = entry.calls[int(names[1][:6])].ended
        parts = () if ended is None else ended.parts
    elif isinstance(entry.event, events.RunStarted):
        parts = entry.event.task.content
    elif isinstance(entry.event, events.MessageJoined):
        parts = entry.event.message.content
    place = int(names[-1][:6])
    found = parts[place] if place < len(parts) else None
    return found if isinstance(found, (ImagePart, FilePart)) else None


# --- Calls ----------------------------------------------------------------------------------------


def call_line(tree: Tree, entry: Entry, place: int, *, live: bool) -> CallLine:
    call = entry.calls[place]
    end, args = call.ended, call.call.args
    about = end.context if end is not None else ""
    what = about or call_context(call.call.name, args) or text_of(args)[:LINE_CHARS]
    return CallLine(
        key=f"{entry.seq}/{place}",
        tool=words.line(call.call.name, 100),
        what=words.line(what, LINE_CHARS) if not call.is_step else "",
        turn=call.turn,
        tier=call.tier,
        state=_state(tree, call, live=live),
        summary="" if end is None else words.line(end.summary, LINE_CHARS),
        ms=None if end is None or not call.started else end.duration_ms,
        child=call.child,
        code=tuple(call.code[:MOST_CHILDREN]),
        request=call.request if call.request in tree.requests else "",
    )


def _state(tree: Tree, call: CallRecord, *, live: bool) -> str:
    if call.ended is not None:
        return "stopped" if call.ended.unfinished else "done" if call.ended.success else "failed"
    if not live:
        return "not finished"
    if call.request and call.request in tree.requests:
        return "asks"
    return "running" if call.started else "waiting"


def call_view(tree: Tree, entry: Entry, place: int, *, live: bool) -> CallView:
    call, ref = entry.calls[place], f"{entry.seq}/{place}"
    end, asked, answer = call.ended, tree.requests.get(call.request), call.answer
    result = None
    if end is not None:
        form: Form = "diff" if markup.looks_like_diff(end.content) else "plain"
        result = text_view(end.content, f"{ref}/result", form)
    said = ""
    if answer is not None:
        scope = "" if answer.scope == "once" else f" for the {answer.scope}"
        said = f"{'allowed' if answer.allowed else 'denied'}{scope}"
        said += f": {words.line(answer.reason, LINE_CHARS)}" if answer.reason else ""
    return CallView(
        call=call_line(tree, entry, place, live=live),
        args=_argument_views(call, ref),
        result=result,
        note="" if end is None else clean(end.note[:BODY_CHARS]),
        preview=None
        if asked is None or not asked.preview
        else text_view(words.lines(asked.preview[:BODY_CHARS]), f"{ref}/preview", "diff"),
        answer=said,
        parts=() if end is None else part_views(end.parts, f"{ref}/parts"),
    )


# --- Questions ------------------------------------------------------------------------------------


def asked_view(tree: Tree, talk: Conversation, event: events.ApprovalRequested, spent: Amount) -> Asked:
    """A question; every character of what is asked can be seen."""
    record = tree.runs[event.run]
    call = record.find(event.call)
    ref = next(
        (
            f"{entry.seq}/{place}"
            for entry in reversed(talk.entries)
            for place, one in enumerate(entry.calls)
            if one is call
        ),
        "",
    )
    preview = words.lines(event.preview[:BODY_CHARS])
    return Asked(
        request=event.request,
        run=event.run,
        path=tuple(words.line(name, 100) for name in event.path),
        tool=words.line(event.tool, 100),
        what=words.line(words.doing(event.tool, event.context), LINE_CHARS),
        task=words.line(record.task.text, LINE_CHARS),
        at=event.at,
        args=() if call is None else _argument_views(call, ref, exact=True),
        preview=Text(
            nodes=(markup.code(preview, "diff"),),
            chars=len(event.preview),
            shown=min(len(event.preview), BODY_CHARS),
            ref=f"{ref}/preview",
        )
        if event.preview
        else None,
        reasons=tuple(words.line(reason, LINE_CHARS) for reason in event.reasons if reason),
        sum=spent,
    )


# --- Events ---------------------------------------------------------------------------------------


def event_row(event: Event) -> EventRow:
    return EventRow(
        seq=event.seq,
        at=event.at,
        run=event.run,
        agent=words.line(event.agent, 100),
        kind=event.kind,
        words=_line(event),
    )


def raw_event(event: Event) -> Text:
    """An event as it is in the journal, its long texts cut."""
    data = msgspec.json.format(msgspec.json.encode(bounded(flat(event))), indent=2).decode()
    return text_view(data, "", "json")


def bounded(value: Json, depth: int = 0) -> Json:
    """A JSON value of which no part is long."""
    if isinstance(value, str):
        cut = len(value) - BODY_CHARS // 4
        return clean(value) if cut <= 0 else f"{clean(value[: BODY_CHARS // 4])}… ({cut:,} more characters)"
    if isinstance(value, (bytes, bytearray)):
        return f"({len(value):,} bytes)"
    if isinstance(value, Mapping):
        items = itertools.islice(cast(JsonObject, value).items(), RAW_ITEMS)
        return {str(key)[:200]: "…" if depth > 30 else bounded(inner, depth + 1) for key, inner in items}
    if isinstance(value, (list, tuple)):
        found = cast("Sequence[Json]", value)
        return ["…" if depth > 30 else bounded(one, depth + 1) for one in found[:RAW_ITEMS]]
    return value


# --- A run ----------------------------------------------------------------------------------------


def about(record: RunRecord, status: str) -> About:
    start, outcome = record.start, record.outcome
    terms = start.terms
    answer = _own_text(record, "answer")
    return About(
        run=record.id,
        path=tuple(words.line(name, 100) for name in record.path),
        nickname=words.line(start.nickname, 100),
        model=words.line(record.model_used, 200),
        program=start.program,
        key=words.line(start.key, 200),
        task=text_view(record.task.text, "task"),
        instructions=text_view(start.instructions, "instructions"),
        history=len(start.history),
        tools=tuple(words.line(name, 100) for name in start.tools[:500]),
        subagents=tuple(words.line(name, 100) for name in start.subagents[:500]),
        limits=cast("dict[str, float | str | None]", msgspec.to_builtins(record.limits)),
        workspace="" if terms is None else words.line(terms.workspace, 500),
        sandbox="" if terms is None or terms.sandbox is None else words.line(str(terms.sandbox), 200),
        policy=() if terms is None else tuple(words.line(rule, 200) for rule in (terms.policy or ())[:200]),
        status=status,
        answer=text_view(answer, "answer") if answer else None,
        reason="" if outcome is None else words.line(outcome.reason, 2000),
        error="" if outcome is None or not outcome.error else words.line(outcome.error, 2000),
        warnings=tuple(words.line(one, 1000) for one in dict.fromkeys(record.warnings)),
        artifacts=tuple(record.artifacts),
    )
