"""One live run in its tree: its identity, its limits, its state and its resources.

Each of these is a separate record: `Where` (types/events.py), `Bounds`, `Life`, `Means`. What the run is doing is in
`engine/run/state.py`; what happened to it is in its events.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from msgspec import Struct, field

import remit.engine.budget.ledger as ledger
from remit.engine.budget.account import Overrun, Want
from remit.engine.budget.ledger import Account, Reservation
from remit.engine.budget.slots import Pool, Seat
from remit.engine.tree.bounds import Bounds
from remit.engine.tree.context import Sent, TreeContext
from remit.engine.tree.life import Life
from remit.tools.source import ToolSource
from remit.types.events import Event, Overran, Warned, Where
from remit.types.limits import Usage, to_micros

if TYPE_CHECKING:
    from pathlib import Path

current_run: ContextVar[str] = ContextVar("current_run", default="")
"""The run whose code is executing, in tools too: a run that cancels itself must not wait for itself."""


class Means(Struct, eq=False):
    """What a run holds and has used. `Node.close` releases all of it."""

    account: Account
    seat: Seat
    usage: list[Usage] = field(default_factory=list[Usage])
    """One for each model call."""
    tokens: int = 0
    """The sum of `usage`."""
    borrowed: list[ToolSource] = field(default_factory=list[ToolSource])


class Node(Struct, eq=False):
    """One live run in its tree. Policies that are functions receive it as `scope`."""

    tree: TreeContext
    where: Where
    bounds: Bounds
    life: Life
    means: Means
    parent: Node | None
    task: str
    """Its task as text, for people."""
    spawned: int = 0
    """How many children it has started."""
    inbox: list[Sent] = field(default_factory=list[Sent])
    hears: bool = True
    """Whether a message that is sent now can still join a turn."""
    warnings: list[str] = field(default_factory=list[str])
    grants: set[object] = field(default_factory=set[object])
    """What a person allowed for the rest of this run."""

    @property
    def run_id(self) -> str:
        return self.where.run

    @property
    def agent(self) -> str:
        return self.where.agent

    @property
    def path(self) -> tuple[str, ...]:
        return self.where.path

    @property
    def depth(self) -> int:
        return self.where.depth

    @property
    def workspace(self) -> Path | None:
        return self.tree.workspace

    def stamp(self) -> tuple[int, float, Where, int]:
        """The first four fields of a new event of this run."""
        return self.tree.stamp(self.where)

    def emit(self, event: Event) -> None:
        self.tree.emit(event)

    def lineage(self) -> Iterator[Node]:
        """This run and its ancestors, upwards."""
        node: Node | None = self
        while node:
            yield node
            node = node.parent

    def warn(self, text: str, *, above: bool = False, until_resumed: bool = False) -> None:
        self.warnings.append(text)
        self.emit(Warned(*self.stamp(), text=text, above=above, until_resumed=until_resumed))

    def warn_root_too(self, text: str) -> None:
        """Warn this run and the root, because the caller should know."""
        *_, root = self.lineage()
        self.warn(text, above=root is not self)
        if root is not self:
            root.warnings.append(f"{' > '.join(self.path)}: {text}")

    def left_behind(self, name: str) -> None:
        """Warn that foreign code of this run ignored its cancellation and was abandoned."""
        self.warn_root_too(f"{name} could not be stopped and was abandoned; its result is dropped.")

    def spend(self, usage: Usage, reservation: Reservation, word: Want | None) -> None:
        """Record what one model call used, here and in the accounts above; `word` as for `ledger.settle`."""
        means, tokens = self.means, usage.input_tokens + usage.output_tokens
        means.usage.append(usage)
        means.tokens += tokens
        self.tree.spent.append(usage)
        micros = to_micros(usage.usd) if usage.usd else 0
        for over in ledger.settle(reservation, tokens, micros, word):
            self._overran(over)

    def _overran(self, over: Overrun) -> None:
        self.emit(Overran(*self.stamp(), resource=over.resource, reserved=over.reserved, used=over.used))
        # Once per resource and tree: the outcome then explains why the tree stopped far below its limit.
        if over.resource not in self.tree.overran:
            self.tree.overran.add(over.resource)
            self.warn_root_too(over.words)

    def close(self) -> None:
        """Release everything that the run holds. Slots and budget come last, because other runs may wait for them."""
        tree, means = self.tree, self.means
        self.hears = False
        for source in means.borrowed:
            tree.sources.give_back(source)
        tree.runs.pop(self.where.run, None)
        self.life.close()
        ledger.release(means.account)
        means.seat.close()


def new_node(
    tree: TreeContext,
    parent: Node | None,
    bounds: Bounds,
    agent: str,
    task: str,
    *,
    run_id: str,
    pools: tuple[Pool, ...],
    elapsed_s: float = 0.0,
    shares_task: bool = False,
    program: bool = False,
) -> Node:
    """A run that was admitted: it holds a slot in each of `pools`. `elapsed_s` is the time it had before a resume."""
    if parent is None:
        where = Where(run_id, None, tree.root, 0, (agent,), agent)
        account = Account(agent, bounds.limits)
    else:
        above = parent.where
        where = Where(run_id, above.run, tree.root, above.depth + 1, (*above.path, agent), agent)
        account = Account(agent, bounds.limits, parent.means.account)
    seconds = bounds.limits.seconds
    life = Life(
        tree,
        where,
        None if parent is None else parent.life,
        seconds=seconds if isinstance(seconds, (int, float)) else None,
        elapsed_s=elapsed_s,
        shares_task=shares_task,
        program=program,
    )
    node = Node(tree, where, bounds, life, Means(account, Seat(pools)), parent, task, hears=not program)
    tree.runs[run_id] = node
    tree.known.add(run_id)
    return node
