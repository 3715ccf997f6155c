"""Which model an agent uses: its own, or its parent's. Names are looked up before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Protocol, cast
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Struct

from remit.agent import Agent
from remit.errors import UsageError
from remit.types.limits import HIGHEST, Limits
from remit.types.messages import Json, Request
from remit.types.ports import EMPTY_MODEL, Emit, Model, ModelChoice, Price, is_model, model_hint
from remit.types.text import FOREIGN, clean

ModelSource = Mapping[str, "str | Model"] | Callable[[str], Model]
"""Looks up model names: a mapping to models or to other names, or a function."""


class Known(Struct, frozen=True):
    """A model and its attributes, read once before anything runs."""

    model: Model
    name: str
    ask: Callable[[Request, Emit], Coroutine[object, object, object]]
    """Its `reply`. Calling this only creates the coroutine; it raises nothing."""
    price: Price | None = None
    """None if the model has no usable price."""
    streams: bool = False
    """Whether the stall timeout counts from the start of a call."""
    window: int | None = None
    """The model's context window in tokens, if it gives one."""
    lane: str = ""
    """Requests with the same lane share a rate limit."""
    in_flight: int | None = None
    """How many requests may be in flight at once; None is unlimited."""


Chain = tuple[Known, ...]
"""Models in order of preference; usually one."""


class Named(Protocol):
    """Finds providers' models by name."""

    @property
    def close(self) -> Callable[[], Awaitable[None]] | None:
        """Closes resources opened to find models; None if there are none."""
        ...

    def find(self, name: str) -> Model: ...


class Models:
    """The models of one tree. Created before the run, so that a missing model is a UsageError.

    A name is looked up in `source` first. Unless `source` is a function, the providers come next; `open_named` is called
    for the first such name.
    """

    __slots__ = ("_chains", "_default", "_found", "_named", "_open_named", "_source")

    def __init__(
        self, default: ModelChoice | None, source: ModelSource | None, open_named: Callable[[], Named]
    ) -> None:
        if source is not None and not callable(source) and not isinstance(cast(object, source), Mapping):
            raise UsageError(f"models must be a mapping of names to models, or a function, not {source!r}.")
        self._source = source
        self._open_named = open_named
        self._named: Named | None = None
        self._found: dict[str, Model] | None = None
        """By name."""
        self._chains: dict[Agent, Chain] = {}
        """For agents that have their own models."""
        self._default = None if default is None else self._look_up(default, None)

    @property
    def close(self) -> Callable[[], Awaitable[None]] | None:
        """Closes resources opened to find models; None if there are none."""
        return None if self._named is None else self._named.close

    def find(self, agent: Agent, parent: Chain | None) -> Chain:
        """The agent's own models, else its parent's, else the run's default. Raises UsageError if there are none."""
        choice = agent.model
        if choice is not None:
            found = self._chains.get(agent)
            if found is None:
                if isinstance(choice, (str, list, tuple)):
                    found = self._look_up(choice, agent)
                else:
                    found = (look_at(choice),)  # pyright: ignore[reportArgumentType] - checked by Agent()
                self._chains[agent] = found
            return found
        chain = parent or self._default
        if chain is None and agent.program is not None:
            # A program calls no model itself.
            return ()
        if chain is None:
            raise UsageError(
                f"Agent {agent.name!r} has no model. Pass Agent(model=...), or a default for all agents: run(..., model=...)"
                " or resume(..., model=...)."
            )
        return chain

    def check(self, agent: Agent, *, needs_price: bool, above: Chain | None = None) -> None:
        """Look up every model below, and see that each has a price where money is limited. Raises UsageError.

        `above`: the models of the run that it is a child of.
        """
        chain = self.find(agent, above)
        _check(agent, chain, needs_price or _limits_money(agent))
        if agent.subagents:
            for one in _below(agent):
                models = self.find(one.agent, chain) if one.owner is None else self.find(one.owner, None)
                _check(one.agent, models, needs_price or one.limited)

    def _look_up(self, choice: ModelChoice, agent: Agent | None) -> Chain:
        where = "run(model=...)" if agent is None else f"Agent {agent.name!r}"
        if not isinstance(choice, (list, tuple)):
            return (look_at(self._one(cast("str | Model", choice), where)),)
        if not choice:
            raise UsageError(f"{where}: model is an empty list. Name at least one model, or omit model=.")
        return tuple(look_at(self._one(model, where)) for model in choice)

    def _one(self, model: str | Model, where: str) -> Model:
        if not isinstance(model, str):
            if is_model(model):
                return model
            raise UsageError(
                f"{where}: model must be a string or an object with `name` and `async reply(request, emit)`,"
                f" not {model!r}.{model_hint(model)}"
            )
        if self._found is None:
            self._found = {}
        if model not in self._found:
            self._found[model] = self._by_name(model, where)
        return self._found[model]

    def _by_name(self, name: str, where: str) -> Model:
        if not name.strip():
            raise UsageError(f"{where}: {EMPTY_MODEL}")
        source, seen = self._source, [name]
        if source is not None and callable(source):
            return self._given(source(name), name, where)
        while source is not None and seen[-1] in source:
            found = cast(object, source[seen[-1]])
            if not isinstance(found, str):
                return self._given(found, name, where)
            if found in seen:
                raise UsageError(f"{where}: models= is circular: {' -> '.join([*seen, found])}.")
            seen.append(found)
        if self._named is None:
            self._named = self._open_named()
        try:
            return self._named.find(seen[-1])
        except UsageError as error:
            listed = (
                f" models= has {', '.join(map(repr, source)) or 'nothing'}." if source is not None else ""
            )
            raise UsageError(f"{where}: {error}{listed}") from None

    def _given(self, found: object, name: str, where: str) -> Model:
        if not is_model(found):
            raise UsageError(
                f"{where}: models= returned {type(found).__name__} for {name!r}, not a model.{model_hint(found)}"
            )
        return found


class _Below(Struct, frozen=True):
    """An agent below another one, and the agent whose models it uses."""

    agent: Agent
    owner: Agent | None
    """None: it inherits the models of the agent at the top."""
    limited: bool
    """Whether any agent from the top down to this one limits money."""


_found_below: WeakKeyDictionary[Agent, tuple[_Below, ...]] = WeakKeyDictionary()


def _below(agent: Agent) -> tuple[_Below, ...]:
    """All agents below an agent, parents first, each once per set of models it can inherit."""
    found = _found_below.get(agent)
    if found is None:
        # Without this, shared subagents are visited again and again: a million visits for 20 levels of pairs.
        seen: dict[tuple[Agent, Agent | None, bool], _Below] = {}
        limited = _limits_money(agent)
        todo: list[_Below] = [_Below(child, None, limited) for child in reversed(agent.subagents)]
        while todo:
            met = todo.pop()
            one = met.agent
            owner = met.owner if one.model is None else one
            limited = met.limited or _limits_money(one)
            visit = (one, owner, limited)
            if visit not in seen:
                seen[visit] = _Below(one, owner, limited)
                todo.extend(_Below(child, owner, limited) for child in reversed(one.subagents))
        found = _found_below[agent] = tuple(seen.values())
    return found


def _check(agent: Agent, chain: Chain, needs_price: bool) -> None:
    settings = agent.settings
    for known in chain:
        if settings:
            _check_settings(agent, settings, known.model)
        if known.price is None and needs_price:
            raise UsageError(
                f"Agent {agent.name!r}: a usd limit applies, but the price of its model {known.name!r} is"
                " not known. Check the spelling of the name, limit tokens instead, or set the price: `price` on the"
                f' model object, or price under [models."{known.name}"] in remit.toml.'
            )


def _check_settings(agent: Agent, settings: Mapping[str, Json], model: Model) -> None:
    """Let the model check the agent's settings, if it can. Raises UsageError."""
    look: object = getattr(model, "check_settings", None)
    if callable(look):
        try:
            look(settings)
        except UsageError as error:
            raise UsageError(f"Agent {agent.name!r}: {error}") from None


async def _no_reply(request: Request, emit: Emit) -> object:
    del emit
    raise AssertionError(f"a program has no model, but {request.agent} called one")


NO_MODEL = Known(model=cast(Model, None), name="", ask=_no_reply)
"""Stands in for the model of a program without one."""


def look_at(model: Model) -> Known:
    """Read a model's attributes. Raises UsageError for an invalid price or an unusable `reply`."""
    name = _name_of(model)
    price, lane = _attribute(model, "price"), _attribute(model, "lane")
    window, most = _attribute(model, "context_window"), _attribute(model, "in_flight")
    _check_reply(model, name)
    return Known(
        model=model,
        name=name,
        ask=partial(_reply, model),
        price=None if price is None else _sound_price(price, name),
        streams=_is_true(_attribute(model, "streams")),
        window=window if isinstance(window, int) else None,
        lane=lane if isinstance(lane, str) else name,
        in_flight=most if isinstance(most, int) and most > 0 else None,
    )


def _attribute(owner: object, name: str) -> object:
    """An attribute of a foreign object; None if it cannot be read."""
    try:
        return getattr(owner, name, None)
    except FOREIGN:
        return None


def _is_true(value: object) -> bool:
    try:
        return bool(value)
    except FOREIGN:
        return False


def _name_of(model: Model) -> str:
    try:
        return clean(str(model.name))
    except FOREIGN:
        return type(model).__name__


_good_replies: WeakSet[CodeType] = WeakSet()
"""The code of `reply` methods that passed the check: models are checked for every tree."""


def _check_reply(model: Model, name: str) -> None:
    """Check that `reply` takes a request and `emit`, if it is a method or a function. Raises UsageError."""
    reply = _attribute(model, "reply")
    function = reply.__func__ if isinstance(reply, MethodType) else reply
    if not isinstance(function, FunctionType) or function.__code__ in _good_replies:
        return
    given = (None, None) if function is reply else (model, None, None)
    signature = inspect.signature(function, follow_wrapped=False)
    try:
        signature.bind(*given)
    except TypeError:
        listed = ", ".join(_written(signature))
        raise UsageError(
            f"The model {name!r} has reply({listed}), but remit calls reply(request, emit)."
            " Write `async def reply(self, request, emit)`."
        ) from None
    if function is not reply:
        _good_replies.add(function.__code__)


def _written(signature: inspect.Signature) -> Iterator[str]:
    """The parameter names, with `*` before keyword-only ones."""
    starred = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield name


async def _reply(model: Model, request: Request, emit: Emit) -> object:
    answer = cast(object, model.reply(request, emit))
    if not isinstance(answer, Awaitable):
        what = type(answer).__name__
        meant = "Write `async def reply(self, request, emit)`."
        if isinstance(answer, (AsyncIterator, Iterator)):
            meant = "It yields: pass pieces to `emit(text)` instead, and return one `Reply` at the end."
        raise TypeError(f"`reply` must be an async function, but it returned {what}. {meant}")
    return await cast("Awaitable[object]", answer)


def _sound_price(price: object, name: str) -> Price:
    if isinstance(price, Price) and _is_amount(price.input) and _is_amount(price.output):
        return price
    raise UsageError(
        f"The price of the model {name!r} must be a Price with two numbers, 0 or more, not {price!r}."
    )


def window_of(model: Known, limits: Limits, learnt: int | None) -> int | None:
    """The context window in tokens; None if unknown, or if conversations are not to be shortened.

    `learnt` is a window that the provider revealed by refusing a request.
    """
    window, own = limits.context_tokens, model.window
    if window is None:
        return None
    known = window if isinstance(window, int) else None
    if learnt is not None and (known is None or learnt < known):
        known = learnt
    if own is not None and (known is None or own < known):
        known = own
    return known


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= HIGHEST


def _limits_money(agent: Agent) -> bool:
    return agent.limits is not None and isinstance(agent.limits.usd, (int, float))
