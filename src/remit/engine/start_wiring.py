"""What every way into a tree checks and puts together first; the one place that knows the adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, cast

from msgspec import Struct

import remit.engine.checks as checks
import remit.engine.delegation.delegate_tools as kit
from remit.agent import Agent
from remit.engine.budget.model_choice import Models, ModelSource
from remit.engine.tree.journal import Journal, Private
from remit.errors import UsageError
from remit.stores.memory import MemoryStore
from remit.tools import built_in
from remit.tools.policy import Policy, PolicyFunction, compile_policy
from remit.types.ports import Model, ModelChoice, Store
from remit.types.sandbox import OPEN, Sandbox, read_sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from remit.models import Shelf

kit.built_in.source = built_in

_Exposed = Callable[[Collection[Sandbox], "Path"], Awaitable[str]]


class Ready(Struct, frozen=True):
    """What a tree is started with, checked."""

    store: Store | None
    ours: bool
    """Whether the store was opened for this tree alone."""
    models: Models
    policies: tuple[PolicyFunction | None, ...]
    sandbox: Sandbox
    workspace: Path | None

    async def check_reach(self, agent: Agent) -> None:
        """Raises UsageError where a sandboxed command of the tree could write the store: approvals come from people."""
        exposed = cast("_Exposed | None", getattr(self.store, "exposed", None))
        if exposed is None or not (sandboxes := _sandboxes(agent, self.sandbox)):
            return
        from pathlib import Path  # noqa: PLC0415 - for those who have a sandbox

        if why := await exposed(sandboxes, self.workspace or Path.cwd()):
            raise UsageError(why)

    def place(self, root: str) -> Journal:
        """Where the tree's journal is kept."""
        store = self.store
        if store is None:
            return Private(MemoryStore, root)
        return Journal(store, root, ours=self.ours)


def prepare(  # noqa: PLR0917 - for every tree: names cost as much as the checks
    agent: Agent,
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
    place = None if store is None else _open(store)
    found = Models(model, models, _Named)
    tools = checks.check_tools(agent)
    caller = None
    if policy is not None:
        caller = compile_policy(policy, "run()")
        checks.check_rules(caller, tools, "run()")
    outer = OPEN if sandbox is None else read_sandbox(sandbox, "run()") or OPEN
    box = outer if agent.sandbox is None else agent.sandbox.within(outer)
    folder = None if workspace is None else checks.check_workspace(workspace)
    return Ready(place, isinstance(store, str), found, (caller, agent.policy), box, folder)


def _sandboxes(agent: Agent, own: Sandbox) -> set[Sandbox]:
    """The sandboxes that commands of a tree may run in; `own` is that of its root."""
    seen: set[tuple[int, Sandbox]] = set()
    left = [(agent, own)]
    while left:
        one, box = left.pop()
        if (id(one), box) not in seen:
            seen.add((id(one), box))
            left += [(a, box if a.sandbox is None else a.sandbox.within(box)) for a in one.subagents]
    return {box for _, box in seen if not box.is_open}


class _Named:
    """Models that are asked for by name. What finds them is made with the first one."""

    def __init__(self) -> None:
        self._shelf: Shelf | None = None

    @property
    def close(self) -> Callable[[], Awaitable[None]] | None:
        return None if self._shelf is None else self._shelf.close

    def find(self, name: str) -> Model:
        if name == "offline":
            from remit.models.offline import Offline  # noqa: PLC0415 - for those who ask for it

            return Offline()
        if self._shelf is None:
            from remit.models import Shelf  # noqa: PLC0415 - as above

            self._shelf = Shelf()
        return self._shelf.find(name)


def _open(store: Store | str) -> Store:
    """Makes nothing yet: a store does that when it is first used."""
    if isinstance(store, str):
        from remit.stores import open_store  # noqa: PLC0415 - for those who name one

        return open_store(store)
    checks.check_store(store)
    return store
