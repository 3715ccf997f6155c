"""Which model an agent uses: its own, else its parent's; strings are looked up before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from remit.agent import Agent
from remit.errors import UsageError
from remit.limits import HIGHEST, Limits
from remit.ports import Model, Price, is_model
from remit.text import FOREIGN, clean

ModelSource = Mapping[str, Model] | Callable[[str], Model]


class Models:
    """The models of one tree. Made before the run, so that a missing one is the caller's error."""

    def __init__(self, default: str | Model | None, source: ModelSource | None) -> None:
        if source is not None and not callable(source) and not isinstance(cast(object, source), Mapping):
            raise UsageError(f"models must be a mapping of names to models, or a function, not {source!r}.")
        self._source = source
        self._found: dict[str, Model] = {}
        self._checked: set[tuple[int, int, bool]] = set()
        self._default = None if default is None else self._look_up(default, "run(model=...)")

    def find(self, agent: Agent, parent: Model | None) -> Model:
        """The agent's own model, else its parent's, else the run's default. Raises UsageError."""
        if agent.model is not None:
            return self._look_up(agent.model, f"Agent {agent.name!r}")
        model = self._default if parent is None else parent
        if model is None:
            raise UsageError(
                f"Agent {agent.name!r} has no model. Give it one (model=...), or give run(model=...) a default."
            )
        return model

    def check(self, agent: Agent, parent: Model | None, *, needs_price: bool) -> None:
        """Look up every model below, and see that each has a price where money is limited. Raises UsageError."""
        model = self.find(agent, parent)
        needs_price = needs_price or (agent.limits is not None and _limits_money(agent.limits))
        # Shared subagents are met again and again: 20 levels of pairs would be a million visits.
        visit = (id(agent), id(model), needs_price)
        if visit in self._checked:
            return
        self._checked.add(visit)
        if price_of(model) is None and needs_price:
            raise UsageError(
                f"Agent {agent.name!r}: a usd limit holds for it, but the price of its model {name_of(model)!r} is not"
                " known. Limit tokens instead, or give the model a `price`."
            )
        for child in agent.subagents:
            self.check(child, model, needs_price=needs_price)

    def _look_up(self, model: str | Model, where: str) -> Model:
        if not isinstance(model, str):
            if not is_model(model):
                raise UsageError(
                    f"{where}: model must be a string or an object with `name` and `async reply(request, emit)`,"
                    f" not {model!r}."
                )
            return model
        if model not in self._found:
            self._found[model] = self._ask_source(model, where)
        return self._found[model]

    def _ask_source(self, name: str, where: str) -> Model:
        source = self._source
        if source is None:
            raise UsageError(
                f"{where}: the model {name!r} cannot be looked up: this version has no providers of its own yet. Pass"
                " an object with `name` and `async reply(request, emit)`, or run(models={...})."
            )
        if callable(source):
            found = cast(object, source(name))
        else:
            found = cast(object, source.get(name))
            if found is None:
                raise UsageError(
                    f"{where}: models has no {name!r}; it has {', '.join(map(repr, source)) or 'nothing'}."
                )
        if not is_model(found):
            raise UsageError(
                f"{where}: models gave {type(found).__name__} for {name!r}, which is not a model."
            )
        return found


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


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= HIGHEST


def _limits_money(limits: Limits) -> bool:
    return isinstance(limits.usd, (int, float))
