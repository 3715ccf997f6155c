"""What every way into a tree checks and puts together first; the one place that knows the adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import remit.checks as checks
import remit.delegation.kit as kit
from remit.agent import Agent
from remit.journal import Journal
from remit.policy import Policy, PolicyFunction, compile_policy
from remit.ports import Model, ModelChoice, Store
from remit.providers import Models, ModelSource
from remit.sandbox import OPEN, Sandbox, read_sandbox
from remit.stores.memory import MemoryStore
from remit.tools import built_in

if TYPE_CHECKING:
    from remit.models import Shelf

kit.built_in.source = built_in


class Ready(NamedTuple):
    """What a tree is started with, checked."""

    place: Callable[[str], Journal]
    models: Models
    policies: tuple[PolicyFunction | None, ...]
    sandbox: Sandbox
    workspace: Path | None
    named: _Named

    @property
    def close(self) -> Callable[[], Awaitable[None]] | None:
        """Closes what was opened to find models, if anything was."""
        return None if self.named.shelf is None else self.named.shelf.close


def prepare(
    agent: Agent,
    *,
    model: ModelChoice | None,
    models: ModelSource | None,
    limits: object,
    store: Store | str | None,
    approver: object,
    policy: Policy | None,
    sandbox: object,
    workspace: object,
    on_event: object,
) -> Ready:
    """Raises UsageError for a mistake in the call."""
    checks.check_call(agent, limits, approver, on_event)
    place = _place(store)
    named = _Named()
    found = Models(model, models, named.find)
    checks.check_tools(agent)
    policies = (compile_policy(policy, "run()"), agent.policy)
    outer = read_sandbox(sandbox, "run()") or OPEN
    box = outer if agent.sandbox is None else agent.sandbox.within(outer)
    return Ready(place, found, policies, box, checks.check_workspace(workspace), named)


class _Named:
    """Models that are asked for by name. What finds them is made with the first one."""

    def __init__(self) -> None:
        self.shelf: Shelf | None = None

    def find(self, name: str) -> Model:
        if name == "offline":
            from remit.models.offline import Offline  # noqa: PLC0415 - for those who ask for it

            return Offline()
        if self.shelf is None:
            from remit.models import Shelf  # noqa: PLC0415 - as above

            self.shelf = Shelf()
        return self.shelf.find(name)


def _place(store: Store | str | None) -> Callable[[str], Journal]:
    """Where a tree's journal is kept. Raises UsageError for what cannot be a store."""
    if store is None:
        return _in_memory
    if isinstance(store, str):
        from remit.stores import open_store  # noqa: PLC0415 - for those who name one

        url = store
        open_store(url)
        return lambda root: Journal(open_store(url), root, ours=True)
    given = checks.check_store(store)
    return lambda root: Journal(given, root, ours=False)


def _in_memory(root: str) -> Journal:
    return Journal(MemoryStore(), root, ours=True)
