"""Example 4: a custom model adapter with streaming, usage, a price, and a failure that is retried.

`Provider` below replaces the SDK or HTTP client of a model provider: it is a script with its own wire format and
does not depend on remit. `WireModel` is the part that you write: it converts requests, replies and failures. To
use it, replace `Provider` with your provider's client.

    .venv/bin/python examples/04_your_own_model.py
"""

import asyncio
import json
from collections.abc import AsyncIterator

from remit import (
    Agent,
    AssistantMessage,
    Call,
    Delta,
    ModelError,
    Price,
    Reply,
    Request,
    ToolMessage,
    Usage,
    UserMessage,
    start,
    tool,
)
from remit.errors import ModelErrorKind
from remit.events import CallEnded, DeltaReceived, ModelCallFailed, ReplyReceived
from remit.types.messages import Message, Stop
from remit.types.ports import Emit

Wire = dict[str, object]


# --- The fake provider: a client with its own wire format and errors --------------------------------------------


class ProviderError(Exception):
    """Raised by the fake client."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Provider:
    """Streams an answer in chunks: first a rate limit error, then a tool call, then an answer with its result."""

    def __init__(self) -> None:
        self.requests = 0

    async def stream(self, body: Wire) -> AsyncIterator[Wire]:
        self.requests += 1
        if self.requests == 1:
            raise ProviderError(429, "too many requests", retry_after=0.2)
        messages = body["messages"]
        assert isinstance(messages, list)
        results = [m["content"] for m in messages if m["role"] == "tool"]
        if not results:
            yield {"thinking": "I should count, not guess."}
            arguments = json.dumps({"text": messages[-1]["content"]})
            yield {"tool_call": {"id": "t1", "name": "count_words", "arguments": arguments}}
        else:
            for piece in ("Your question ", "has ", f"{results[-1]} ", "words."):
                await asyncio.sleep(0.1)
                yield {"text": piece}
        said = sum(len(str(m["content"])) for m in messages)
        yield {"stop": "tool_use" if not results else "end_turn", "input": said // 4, "output": 8}


# --- The model adapter: the part that you write -----------------------------------------------------------------

KINDS: dict[int, ModelErrorKind] = {
    401: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    529: "overloaded",
}
STOPS: dict[object, Stop] = {
    "end_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "refusal": "refusal",
}


class WireModel:
    """A `remit.Model`: `name` and `reply` are required; `price` and `streams` are optional."""

    name = "stand-in-1"
    price = Price(input=1.0, output=5.0)  # US dollars per million tokens; needed for Limits(usd=...)
    streams = True  # the stall timeout starts with the call, not with its first chunk

    def __init__(self, client: Provider) -> None:
        self.client = client

    async def reply(self, request: Request, emit: Emit) -> Reply:
        """Sends one request. Do not retry here: remit retries, and counts the cost of each attempt."""
        text, calls, last = "", list[Call](), Wire()
        try:
            async for chunk in self.client.stream(body_of(request)):
                if "thinking" in chunk:
                    emit(Delta(thinking=str(chunk["thinking"])))
                if "text" in chunk:
                    emit(str(chunk["text"]))
                    text += str(chunk["text"])
                if "tool_call" in chunk:
                    calls.append(call_of(chunk["tool_call"]))
                last = chunk
        except ProviderError as error:
            kind = KINDS.get(error.status, "server" if error.status >= 500 else "invalid")
            raise ModelError(str(error), kind=kind, retry_after=error.retry_after) from error
        except OSError as error:
            raise ModelError(str(error), kind="connection") from error
        usage = Usage(input_tokens=int(str(last["input"])), output_tokens=int(str(last["output"])))
        return Reply(text, tuple(calls), stop=STOPS[last["stop"]], usage=usage, model=self.name)


def body_of(request: Request) -> Wire:
    """The request in the provider's format. Send every field."""
    tools = [{"name": t.name, "description": t.description, "schema": t.parameters} for t in request.tools]
    return {
        "system": request.instructions,
        "messages": [wire_message(m) for m in request.messages],
        "tools": tools,
        "tool_choice": request.tool_choice,  # "none" when the run is asked to wrap up
        "max_tokens": request.max_output_tokens,  # the reserved amount: a reply may not be longer
        "response_schema": request.output_schema,
        **request.settings,
    }


def wire_message(message: Message) -> Wire:
    match message:
        case UserMessage():
            return {"role": "user", "content": message.text}
        case AssistantMessage():
            asked = [{"id": c.id, "name": c.name, "arguments": json.dumps(c.args)} for c in message.calls]
            return {"role": "assistant", "content": message.text, "tool_calls": asked}
        case ToolMessage():
            # `text` is the tool's content followed by remit's note.
            return {"role": "tool", "id": message.call_id, "content": message.text, "error": not message.ok}


def call_of(wire: object) -> Call:
    """Arguments that are not a JSON object stay a string; remit reports the error to the model."""
    assert isinstance(wire, dict)
    try:
        args = json.loads(wire["arguments"])
    except ValueError:
        args = wire["arguments"]
    return Call(wire["id"], wire["name"], args if isinstance(args, dict) else str(args))


# --- An agent that uses it --------------------------------------------------------------------------------------


@tool(tier="observe")
def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())


async def main() -> None:
    print("The provider is a fake in this file: no network, no API key.\n")
    counter = Agent("counter", instructions="Count with the tool.", tools=[count_words])
    model = WireModel(Provider())
    async with start(counter, "How many words are in this question?", model=model) as running:
        async for event in running.events():
            match event:
                case ModelCallFailed():
                    print(f"  failed: {event.error_kind}: {event.error}; again in {event.retry_in_s:g} s")
                case DeltaReceived():
                    print(f"  piece: {event.text!r}" if event.text else f"  thinks: {event.thinking}")
                case CallEnded():
                    print(f"  {event.tool} -> {event.content}")
                case ReplyReceived():
                    print(f"  reply: {event.reply.stop}, {event.usage.tokens} tokens")
                case _:
                    pass
        outcome = await running.outcome()
    print(f"\n{outcome.agent} {outcome.status} with {outcome.model}: {outcome.text}")
    usage = outcome.total_usage
    print(f"Model calls: {usage.requests}, the failed one included; replies: {outcome.turns}.")
    print(f"Tokens: {usage.input_tokens} in, {usage.output_tokens} out; ${usage.usd:.6f}.")


if __name__ == "__main__":
    asyncio.run(main())
