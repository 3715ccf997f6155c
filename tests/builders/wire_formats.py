"""The same reply in each provider's format, as one body and as a stream, after their public documentation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from wire_server import Answer, Seen

Args = dict[str, Any]


@dataclass(frozen=True)
class Talk:
    """The text of the reply."""

    text: str = ""
    calls: tuple[tuple[str, str, Args], ...] = ()
    """Id, name, arguments."""
    thinking: tuple[tuple[str, str], ...] = ()
    """Text and signature; no text means redacted."""
    stop: str = ""
    """length, refusal, or empty for a normal end."""
    fresh: int = 10
    """Input tokens that did not come from a cache."""
    read: int = 0
    write: int = 0
    output: int = 5
    model: str = "model-that-answered"

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.write


class Format:
    """One provider's format. `whole` is the body of a plain answer, `events` are those of a stream."""

    name = ""
    """A model of the provider, in remit's form."""
    answers_as = ""
    """The expected name of the model that answered."""
    errors: tuple[str, ...] = ()

    def answer(self, talk: Talk, *, streamed: bool = True, **kw: Any) -> Answer:
        if not streamed:
            return Answer(json.dumps(self.whole(talk)).encode())
        return Answer(pieces=self.pieces(talk), **kw)

    def pieces(self, talk: Talk) -> list[bytes]:
        return [_sse(event) for event in self.events(talk)]

    def whole(self, talk: Talk) -> Args:
        raise NotImplementedError

    def events(self, talk: Talk) -> list[Args | str]:
        raise NotImplementedError


def _sse(event: Args | str) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    kind = f"event: {event['type']}\n" if isinstance(event.get("type"), str) else ""
    return f"{kind}data: {json.dumps(event)}\n\n".encode()


def halves(text: str) -> list[str]:
    """In two pieces, as in a stream."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


class Anthropic(Format):
    name = "anthropic:claude-sonnet-4-6"
    answers_as = "anthropic:model-that-answered"

    def _blocks(self, talk: Talk) -> list[Args]:
        blocks: list[Args] = [
            {"type": "thinking", "thinking": text, "signature": signature}
            if text
            else {"type": "redacted_thinking", "data": signature}
            for text, signature in talk.thinking
        ]
        if talk.text:
            blocks.append({"type": "text", "text": talk.text})
        return blocks + [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in talk.calls]

    def _stop(self, talk: Talk) -> str:
        if talk.stop:
            return {"length": "max_tokens", "refusal": "refusal"}[talk.stop]
        return "tool_use" if talk.calls else "end_turn"

    def _usage(self, talk: Talk, output: int) -> Args:
        return {
            "input_tokens": talk.fresh,
            "cache_creation_input_tokens": talk.write,
            "cache_read_input_tokens": talk.read,
            "output_tokens": output,
        }

    def whole(self, talk: Talk) -> Args:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": talk.model,
            "content": self._blocks(talk),
            "stop_reason": self._stop(talk),
            "stop_sequence": None,
            "usage": self._usage(talk, talk.output),
        }

    def events(self, talk: Talk) -> list[Args | str]:
        start = self.whole(talk) | {"content": [], "stop_reason": None, "usage": self._usage(talk, 1)}
        events: list[Args | str] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(self._blocks(talk)):
            events += self._block_events(index, block)
        delta = {"stop_reason": self._stop(talk), "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": talk.output}})
        events.append({"type": "message_stop"})
        return events

    def _block_events(self, index: int, block: Args) -> list[Args]:
        kind, deltas = block["type"], list[Args]()
        empty = dict(block)
        if kind == "text":
            empty["text"] = ""
            deltas = [{"type": "text_delta", "text": half} for half in halves(block["text"])]
        elif kind == "thinking":
            empty |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": half} for half in halves(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif kind == "tool_use":
            empty["input"] = {}
            whole = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves(whole)]
        return [
            {"type": "content_block_start", "index": index, "content_block": empty},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]


class Chat(Format):
    name = "openai-chat:gpt-4o-mini"
    answers_as = "openai-chat:model-that-answered"

    def _stop(self, talk: Talk) -> str:
        if talk.stop:
            return {"length": "length", "refusal": "content_filter"}[talk.stop]
        return "tool_calls" if talk.calls else "stop"

    def _calls(self, talk: Talk) -> list[Args]:
        return [
            {
                "index": n,
                "id": i,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for n, (i, name, args) in enumerate(talk.calls)
        ]

    def _usage(self, talk: Talk) -> Args:
        return {
            "prompt_tokens": talk.input,
            "completion_tokens": talk.output,
            "total_tokens": talk.input + talk.output,
            "prompt_tokens_details": {"cached_tokens": talk.read},
        }

    def _base(self, talk: Talk, kind: str) -> Args:
        return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": talk.model}

    def whole(self, talk: Talk) -> Args:
        message: Args = {"role": "assistant", "content": talk.text or None, "refusal": None}
        if talk.calls:
            message["tool_calls"] = self._calls(talk)
        choice = {"index": 0, "message": message, "finish_reason": self._stop(talk)}
        return self._base(talk, "chat.completion") | {"choices": [choice], "usage": self._usage(talk)}

    def events(self, talk: Talk) -> list[Args | str]:
        deltas: list[Args] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": half} for half in halves(talk.text)]
        for call in self._calls(talk):
            first, *rest = halves(call["function"]["arguments"])
            deltas.append({"tool_calls": [call | {"function": call["function"] | {"arguments": first}}]})
            deltas += [
                {"tool_calls": [{"index": call["index"], "function": {"arguments": half}}]} for half in rest
            ]
        events: list[Args | str] = [self._chunk(talk, delta, None) for delta in deltas]
        events.append(self._chunk(talk, {}, self._stop(talk)))
        last = self._base(talk, "chat.completion.chunk") | {"choices": [], "usage": self._usage(talk)}
        return [*events, last, "[DONE]"]

    def _chunk(self, talk: Talk, delta: Args, stop: str | None) -> Args:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return self._base(talk, "chat.completion.chunk") | {"choices": [choice], "usage": None}


class Responses(Format):
    name = "openai:gpt-5"
    answers_as = "openai:model-that-answered"

    def _items(self, talk: Talk) -> list[Args]:
        items: list[Args] = [
            {
                "id": f"rs_{n}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": signature,
            }
            for n, (text, signature) in enumerate(talk.thinking)
        ]
        if talk.text or talk.stop == "refusal":
            content: Args = {"type": "output_text", "text": talk.text, "annotations": []}
            if talk.stop == "refusal":
                content = {"type": "refusal", "refusal": talk.text}
            items.append(
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [content],
                }
            )
        for call_id, name, args in talk.calls:
            items.append(
                {
                    "id": f"fc_{call_id}",
                    "type": "function_call",
                    "call_id": call_id,
                    "name": name,
                    "arguments": json.dumps(args),
                    "status": "completed",
                }
            )
        return items

    def whole(self, talk: Talk) -> Args:
        cut = talk.stop == "length"
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "model": talk.model,
            "output": self._items(talk),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": talk.input,
                "input_tokens_details": {"cached_tokens": talk.read},
                "output_tokens": talk.output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": talk.input + talk.output,
            },
        }

    def events(self, talk: Talk) -> list[Args | str]:
        whole = self.whole(talk)
        begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        events: list[Args] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(whole["output"]):
            events += self._item_events(index, item)
        end = "response.incomplete" if talk.stop == "length" else "response.completed"
        events.append({"type": end, "response": whole})
        return [event | {"sequence_number": n} for n, event in enumerate(events)]

    def _item_events(self, index: int, item: Args) -> list[Args]:
        place = {"item_id": item["id"], "output_index": index}
        middle: list[Args] = []
        empty = dict(item)
        if item["type"] == "reasoning":
            empty["summary"] = []
            for n, part in enumerate(item["summary"]):
                at = place | {"summary_index": n}
                blank = {"type": "summary_text", "text": ""}
                middle.append({"type": "response.reasoning_summary_part.added", "part": blank} | at)
                middle += [
                    {"type": "response.reasoning_summary_text.delta", "delta": half} | at
                    for half in halves(part["text"])
                ]
                middle.append({"type": "response.reasoning_summary_text.done", "text": part["text"]} | at)
                middle.append({"type": "response.reasoning_summary_part.done", "part": part} | at)
        elif item["type"] == "message":
            empty |= {"content": [], "status": "in_progress"}
            middle = self._text_events(place | {"content_index": 0}, item["content"][0])
        else:
            empty |= {"arguments": "", "status": "in_progress"}
            kind = "response.function_call_arguments"
            middle = [{"type": f"{kind}.delta", "delta": half} | place for half in halves(item["arguments"])]
            middle.append(
                {"type": f"{kind}.done", "arguments": item["arguments"], "name": item["name"]} | place
            )
        return [
            {"type": "response.output_item.added", "item": empty, "output_index": index},
            *middle,
            {"type": "response.output_item.done", "item": item, "output_index": index},
        ]

    def _text_events(self, at: Args, part: Args) -> list[Args]:
        if part["type"] == "refusal":
            deltas = [{"type": "response.refusal.delta", "delta": h} | at for h in halves(part["refusal"])]
            return [*deltas, {"type": "response.refusal.done", "refusal": part["refusal"]} | at]
        blank = {"type": "output_text", "text": "", "annotations": []}
        return [
            {"type": "response.content_part.added", "part": blank} | at,
            *(
                {"type": "response.output_text.delta", "delta": half, "logprobs": []} | at
                for half in halves(part["text"])
            ),
            {"type": "response.output_text.done", "text": part["text"], "logprobs": []} | at,
            {"type": "response.content_part.done", "part": part} | at,
        ]


class Google(Format):
    name = "google:gemini-2.5-pro"
    answers_as = "google:model-that-answered"

    def _parts(self, talk: Talk) -> list[Args]:
        parts: list[Args] = [{"text": text, "thought": True} for text, _ in talk.thinking]
        if talk.text:
            parts += [{"text": half} for half in halves(talk.text)]
        signatures = [signature for _, signature in talk.thinking]
        for n, (call_id, name, args) in enumerate(talk.calls):
            call: Args = {"functionCall": {"id": call_id, "name": name, "args": args}}
            parts.append(call | ({"thoughtSignature": signatures[n]} if n < len(signatures) else {}))
        return parts

    def _chunk(self, talk: Talk, parts: list[Args], stop: str) -> Args:
        candidate: Args = {"content": {"role": "model", "parts": parts}, "index": 0}
        if stop:
            candidate["finishReason"] = stop
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": talk.input,
                "candidatesTokenCount": talk.output,
                "totalTokenCount": talk.input + talk.output,
                **({"cachedContentTokenCount": talk.read} if talk.read else {}),
            },
            "modelVersion": talk.model,
            "responseId": "resp_1",
        }

    def _stop(self, talk: Talk) -> str:
        return {"length": "MAX_TOKENS", "refusal": "SAFETY", "": "STOP"}[talk.stop]

    def whole(self, talk: Talk) -> Args:
        return self._chunk(talk, self._parts(talk), self._stop(talk))

    def events(self, talk: Talk) -> list[Args | str]:
        parts = self._parts(talk) or [{"text": ""}]
        *before, last = parts
        chunks: list[Args | str] = [self._chunk(talk, [part], "") for part in before]
        return [*chunks, self._chunk(talk, [last], self._stop(talk))]


ANTHROPIC, CHAT, RESPONSES, GOOGLE = Anthropic(), Chat(), Responses(), Google()
FORMATS: tuple[Format, ...] = (ANTHROPIC, CHAT, RESPONSES, GOOGLE)


def format_of(seen: Seen) -> Format:
    """The provider of the request."""
    if "enerateContent" in seen.path:
        return GOOGLE
    ends = {"/messages": ANTHROPIC, "/chat/completions": CHAT, "/responses": RESPONSES}
    return next(each for end, each in ends.items() if seen.path.partition("?")[0].endswith(end))
