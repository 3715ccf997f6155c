"""Which model an agent uses: its own, else its parent's; strings are looked up before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from remit.agent import Agent
from remit.errors import UsageError
from remit.limits import Limits
from remit.ports import Model, is_model

ModelSource = Mapping[str, Model] | Callable[[str], Model]


class Models:
    """The models of one tree. Made before the run, so that a missing one is the caller's error."""

    def __init__(self, default: str | Model | None, source: ModelSource | None) -> None:
        if source is not None and not callable(source) and not isinstance(cast(object, source), Mapping):
            raise UsageError(f"models must be a mapping of names to models, or a function, not {source!r}.")
        self._source = source
        self._found: dict[str, Model] = {}
        self._default = None if default is None else self._look_up(default, "run(model=...)")

    def find(self, agent: Agent, parent: Model | None) -> Model:
        """The agent's own model, else its parent's, else the run's default. Raises UsageError."""
        if agent.model is not None:
            return self._look_up(agent.model, f"Agent {agent.name!r}")
        model = parent or self._default
        if model is None:
            raise UsageError(
                f"Agent {agent.name!r} has no model. Give it one (model=...), or give run(model=...) a default."
            )
        return model

    def check(self, agent: Agent, parent: Model | None, *, needs_price: bool) -> None:
        """Look up every model below, and see that each has a price where money is limited. Raises UsageError."""
        model = self.find(agent, parent)
        needs_price = needs_price or (agent.limits is not None and _limits_money(agent.limits))
        if needs_price and getattr(model, "price", None) is None:
            raise UsageError(
                f"Agent {agent.name!r}: a usd limit holds for it, but the price of its model {model.name!r} is not"
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
                f"{where}: the model {name!r} cannot be looked up: no provider is installed. Pass an object with"
                " `name` and `async reply(request, emit)`, or run(models={...})."
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


def _limits_money(limits: Limits) -> bool:
    return isinstance(limits.usd, (int, float))
