"""One adapter for every provider: remit's `Model` on top of pydantic-ai's models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse

import remit.models.request_settings as request_settings
from remit.errors import ModelError, UsageError
from remit.models.clients import Clients, closing_responses
from remit.models.conversation import Conversations
from remit.models.failures import failure, stopped_short, unreadable
from remit.models.names import Named
from remit.models.prices import counted, usage_of, worst_price
from remit.models.replies import read_response, refusal_of, stop_of
from remit.models.request_tools import output_of, tools_of
from remit.types.limits import Usage
from remit.types.messages import Delta, Reply, Request, ToolMessage
from remit.types.ports import Emit, Price

ALIVE_S = 1.0
"""Seconds between empty deltas while a tool call arrives: a call is only reported when it is complete."""


class ProviderModel:
    """A model of a provider. Many runs may call it at once; each reply is one request on the wire."""

    def __init__(
        self, named: Named, here: Callable[[], Clients], conversations: Conversations, *, stream: bool
    ) -> None:
        self._named = named
        self._here = here
        self._conversations = conversations
        model = here().model(named)
        self._base_url = model.base_url
        self.streams = stream and type(model).request_stream is not Model.request_stream
        self.name = named.whole
        self.lane = f"{model.system}:{model.model_name}"
        """Requests with the same lane share the provider's limits."""
        self.price: Price | None = worst_price(model)
        """The most that a token can cost; None if unknown."""
        self.context_window: int | None = model.context_window
        """Tokens; None if unknown."""

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    def check_settings(self, given: Mapping[str, object]) -> None:
        """Raise UsageError for settings that this model does not know, and for those that remit sets itself."""
        request_settings.check(given, self._here().model(self._named), self.name)

    async def reply(self, request: Request, emit: Emit) -> Reply:
        """Send one request. Raises ModelError. A cancel closes the connection at once."""
        asked: _Asked | None = None
        try:
            asked = self._ask(request)
            async with closing_responses():
                response = await (asked.stream(emit) if self.streams else asked.whole())
            why = stopped_short(response, self._named, asked.counted(), told=self.streams and asked.is_chat)
            if why is None:
                return self._reply(response)
        except UsageError as error:
            raise ModelError(str(error), kind="invalid") from None
        except Exception as error:
            used = None if asked is None else asked.counted()
            why = failure(error, self._named, self._base_url, used)
            if why.kind == "bug" and asked is not None:
                # The request was sent, so the fault is in the response.
                why = unreadable(why, self._named, used)
            raise why from error
        raise why

    def _ask(self, request: Request) -> _Asked:
        model = self._here().model(self._named)
        wanted = request_settings.merge(request, model, self.name)
        messages = self._conversations.convert(request.run_id, request.messages)
        mode, output = output_of(model, request)
        parameters = ModelRequestParameters(
            function_tools=tools_of(request),
            output_mode=mode,
            output_object=output,
            instruction_parts=[InstructionPart(content=request.instructions)] if request.instructions else [],
        )
        if _needs_preparing(model, request):
            messages = model.prepare_messages(messages, parameters)
        return _Asked(model, messages, wanted, parameters)

    def _reply(self, response: ModelResponse) -> Reply:
        said = read_response(response)
        stop = stop_of(response, said)
        text = said.text or (refusal_of(response) if stop == "refusal" else "")
        return Reply(
            text=text,
            calls=said.calls,
            thinking=said.thinking,
            stop=stop,
            usage=usage_of(response, self._named.model),
            model=self._named.of(response.model_name) if response.model_name else "",
            details=said.details,
        )


def _needs_preparing(model: Model, request: Request) -> bool:
    """Whether ids must be shortened, or files of tool results replaced by a note for models that cannot read them."""
    if model.profile.get("tool_call_id_length") is not None:
        return True
    return any(isinstance(m, ToolMessage) and m.parts for m in request.messages)


class _Asked:
    """One request in flight."""

    def __init__(
        self,
        model: Model,
        messages: list[ModelMessage],
        wanted: request_settings.ModelSettings,
        parameters: ModelRequestParameters,
    ) -> None:
        self._model = model
        self._request = (messages, wanted, parameters)
        self._stream: StreamedResponse | None = None
        self._chars = 0
        self.is_chat = any(cls.__name__ == "OpenAIChatModel" for cls in type(model).__mro__)
        """Whether it uses Chat Completions, where a broken stream looks like a complete one."""

    async def whole(self) -> ModelResponse:
        return await self._model.request(*self._request)

    async def stream(self, emit: Emit) -> ModelResponse:
        """The whole response; text and thinking go to `emit` as they arrive."""
        loop = asyncio.get_running_loop()
        told = loop.time()
        async with self._model.request_stream(*self._request) as stream:
            self._stream = stream
            async for event in stream:
                delta = _delta(event)
                if delta is not None:
                    self._chars += len(delta.text) + len(delta.thinking)
                elif loop.time() - told < ALIVE_S:
                    continue
                emit(delta or Delta())
                told = loop.time()
            return stream.get()

    def counted(self) -> Usage | None:
        """The usage that the provider reported before it failed, plus output that it had not counted yet."""
        return (
            None if self._stream is None else counted(self._stream.get(), self._model.model_name, self._chars)
        )


def _delta(event: ModelResponseStreamEvent) -> Delta | None:
    """The delta of an event; None for parts that are only reported when complete."""
    if isinstance(event, PartDeltaEvent):
        if isinstance(event.delta, TextPartDelta) and event.delta.content_delta:
            return Delta(text=event.delta.content_delta)
        if isinstance(event.delta, ThinkingPartDelta) and event.delta.content_delta:
            return Delta(thinking=event.delta.content_delta)
    elif isinstance(event, PartStartEvent):
        if isinstance(event.part, TextPart) and event.part.content:
            return Delta(text=event.part.content)
        if isinstance(event.part, ThinkingPart) and event.part.content:
            return Delta(thinking=event.part.content)
    return None
