"""Which model an agent uses: its own, else its parent's; strings are looked up before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from remit.agent import Agent
from remit.errors import UsageError
from remit.limits import HIGHEST, Limits
from remit.ports import Model, ModelChoice, Price, is_model
from remit.text import FOREIGN, clean

ModelSource = Mapping[str, "str | Model"] | Callable[[str], Model]
"""What names stand for: a mapping to models or to other names, or a function."""


Chain = tuple[Model, ...]
"""Models in order of preference; most agents have one."""


class Models:
    """The models of one tree. Made before the run, so that a missing one is the caller's error.

    A name is looked up in `source` first, and then, unless that is a function, among the providers (`shelf`).
    """

    def __init__(
        self, default: ModelChoice | None, source: ModelSource | None, shelf: Callable[[str], Model]
    ) -> None:
        if source is not None and not callable(source) and not isinstance(cast(object, source), Mapping):
            raise UsageError(f"models must be a mapping of names to models, or a function, not {source!r}.")
        self._source = source
        self._shelf = shelf
        self._found: dict[str, Model] = {}
        self._chains: dict[int, Chain] = {}
        """Of agents with models of their own, by the agents' ids: the tree holds its agents, so they stay theirs."""
        self._checked: set[tuple[int, tuple[int, ...], bool]] = set()
        self._default = None if default is None else self._look_up(default, "run(model=...)")

    def find(self, agent: Agent, parent: Chain | None) -> Chain:
        """The agent's own models, else its parent's, else the run's default. Raises UsageError."""
        if agent.model is not None:
            own = self._chains.get(id(agent))
            if own is None:
                own = self._chains[id(agent)] = self._look_up(agent.model, f"Agent {agent.name!r}")
            return own
        chain = self._default if parent is None else parent
        if chain is None:
            raise UsageError(
                f"Agent {agent.name!r} has no model. Give it one (model=...), or give run(model=...) a default."
            )
        return chain

    def check(self, agent: Agent, parent: Chain | None, *, needs_price: bool) -> None:
        """Look up every model below, and see that each has a price where money is limited. Raises UsageError."""
        chain = self.find(agent, parent)
        needs_price = needs_price or (agent.limits is not None and _limits_money(agent.limits))
        # Shared subagents are met again and again: 20 levels of pairs would be a million visits.
        visit = (id(agent), tuple(map(id, chain)), needs_price)
        if visit in self._checked:
            return
        self._checked.add(visit)
        for model in chain:
            _check_settings(agent, model)
            if price_of(model) is None and needs_price:
                raise UsageError(
                    f"Agent {agent.name!r}: a usd limit holds for it, but the price of its model {name_of(model)!r} is"
                    " not known. Limit tokens instead, or give the model a `price`."
                )
        for child in agent.subagents:
            self.check(child, chain, needs_price=needs_price)

    def _look_up(self, choice: ModelChoice, where: str) -> Chain:
        if isinstance(choice, (list, tuple)):
            if not choice:
                raise UsageError(f"{where}: model is an empty list. Name at least one, or leave it out.")
            return tuple(self._one(model, where) for model in choice)
        return (self._one(cast("str | Model", choice), where),)

    def _one(self, model: str | Model, where: str) -> Model:
        if not isinstance(model, str):
            if not is_model(model):
                raise UsageError(
                    f"{where}: model must be a string or an object with `name` and `async reply(request, emit)`,"
                    f" not {model!r}."
                )
            return model
        if model not in self._found:
            self._found[model] = self._by_name(model, where)
        return self._found[model]

    def _by_name(self, name: str, where: str) -> Model:
        source, seen = self._source, [name]
        if source is not None and callable(source):
            return self._given(source(name), name, where)
        while source is not None and seen[-1] in source:
            found = cast(object, source[seen[-1]])
            if not isinstance(found, str):
                return self._given(found, name, where)
            if found in seen:
                raise UsageError(f"{where}: models goes in a circle: {' -> '.join([*seen, found])}.")
            seen.append(found)
        try:
            return self._shelf(seen[-1])
        except UsageError as error:
            listed = f" models has {', '.join(map(repr, source)) or 'nothing'}." if source is not None else ""
            raise UsageError(f"{where}: {error}{listed}") from None

    def _given(self, found: object, name: str, where: str) -> Model:
        if not is_model(found):
            raise UsageError(
                f"{where}: models gave {type(found).__name__} for {name!r}, which is not a model."
            )
        return found


def _check_settings(agent: Agent, model: Model) -> None:
    """Have the model look at the agent's settings, where it can. Raises UsageError."""
    look: object = getattr(model, "check_settings", None)
    if agent.settings and callable(look):
        try:
            look(agent.settings)
        except UsageError as error:
            raise UsageError(f"Agent {agent.name!r}: {error}") from None


def name_of(model: Model) -> str:
    """Its name, read once: a property of somebody else's may raise."""
    try:
        return clean(str(model.name))
    except FOREIGN:
        return type(model).__name__


def lane_of(model: Model) -> tuple[str, int | None]:
    """Which requests count together, and how many of them may be in flight; None is any number."""
    lane: object = getattr(model, "lane", None)
    most: object = getattr(model, "in_flight", None)
    return lane if isinstance(lane, str) else name_of(model), most if isinstance(
        most, int
    ) and most > 0 else None


def price_of(model: Model) -> Price | None:
    """Its price, if it has one that can be counted with. Raises UsageError for one that cannot."""
    price: object = getattr(model, "price", None)
    if price is None:
        return None
    if isinstance(price, Price) and _is_amount(price.input) and _is_amount(price.output):
        return price
    raise UsageError(
        f"The price of the model {name_of(model)!r} must be a Price of two numbers from 0 up, not {price!r}."
    )


def streams(model: Model) -> bool:
    """Whether its silence counts from the start of a call."""
    try:
        return bool(getattr(model, "streams", False))
    except FOREIGN:
        return False


def window_of(model: Model, limits: Limits, learnt: int | None) -> int | None:
    """Tokens of conversation that it can take; None where nobody knows, or nothing is to be shortened.

    `learnt` is what a provider said by refusing.
    """
    if limits.context_tokens is None:
        return None
    try:
        own: object = getattr(model, "context_window", None)
    except FOREIGN:
        own = None
    known = [window for window in (limits.context_tokens, learnt, own) if isinstance(window, int)]
    return min(known, default=None)


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= HIGHEST


def _limits_money(limits: Limits) -> bool:
    return isinstance(limits.usd, (int, float))
