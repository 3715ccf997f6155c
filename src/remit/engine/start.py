"""Start a tree: `run`, `run_sync` and `start`, their options, and the adapters that options name.

The options that `resume` and `reopen` (`resume.py`) share with them are here too. Checks are in `checks.py`, the handle on
a running tree is in `handle.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

from msgspec import Struct

import remit.engine.checks as checks
import remit.engine.delegation.delegate_tools as kit
import remit.tasks.threads as threads
from remit.agent import Agent
from remit.engine.budget.model_choice import Models, ModelSource
from remit.engine.delegation.spawn import Engine, root_limits
from remit.engine.handle import Opened, Running, check_loop
from remit.engine.run.runtime_tool import Plan
from remit.engine.tree.approvals import Approver
from remit.engine.tree.context import TreeContext
from remit.engine.tree.journal import Journal
from remit.errors import UsageError
from remit.history.records import Tree
from remit.stores.memory import MemoryStore
from remit.tasks.signals import run_interruptible
from remit.tools import built_in
from remit.tools.hooks import OnCall, OnResult, hooks_on_call, hooks_on_result
from remit.tools.policy import Policy, PolicyFunction, compile_policy
from remit.types.events import AnyEvent, Event
from remit.types.limits import ROOT_DEFAULTS, Limits
from remit.types.messages import Message
from remit.types.outcome import Outcome
from remit.types.ports import Model, ModelChoice, Store, new_root_id
from remit.types.sandbox import OPEN, Sandbox, SandboxChoice, read_sandbox
from remit.types.task_message import Task, as_message
from remit.types.type_variables import Deps, Output

if TYPE_CHECKING:
    from pathlib import Path

    from remit.models import Shelf
else:
    # For code that reads type hints at run time: pathlib takes too long to import for a hint.
    from os import PathLike as Path

kit.built_in.source = built_in

F = TypeVar("F", bound=Callable[..., object])

_above: ContextVar[tuple[str, ...]] = ContextVar("trees_above", default=())


@contextmanager
def with_trees_above(*roots: str) -> Generator[None]:
    """Strict trees that are prepared inside send requests only while this process owns these trees too."""
    token = _above.set(roots)
    try:
        yield
    finally:
        _above.reset(token)


_Exposed = Callable[[Collection[Sandbox], "Path"], Awaitable[str]]


class _SharedOptions(TypedDict, total=False):
    """The options of `TreeOptions` but `deps`, whose type depends on the agent."""

    model: ModelChoice | None
    models: ModelSource | None
    limits: Limits | None
    approver: Approver | None
    policy: Policy | None
    sandbox: SandboxChoice | None
    workspace: str | Path | None
    on_event: Callable[[AnyEvent], object] | None
    on_call: OnCall[Any] | Sequence[OnCall[Any]] | None
    on_result: OnResult[Any] | Sequence[OnResult[Any]] | None
    show: bool
    strict: bool | None


class _StoreOptions(TypedDict, total=False):
    store: Store | str | None
    history: Sequence[Message]
    run_id: str | None


class TypedTreeOptions(_SharedOptions, total=False):
    """For type checkers: the options besides `deps`."""


class TypedRunOptions(_SharedOptions, _StoreOptions, total=False):
    """For type checkers: the options besides `deps`."""


class TreeOptions(_SharedOptions, total=False):
    """Options:

    model: the default model, for agents that name none
    models: finds a model by its name; a mapping or a function (default: the installed providers)
    limits: how much the tree may spend, besides the agent's own limits
    approver: asked before each call that needs approval; without it these calls are denied
    policy: which calls are allowed, asked about or denied; rules or a function
    sandbox: the widest sandbox that commands of the tree may run in
    deps: an object of yours that each tool finds as `ctx.deps`
    workspace: the folder that file tools and commands work in (default: the current folder)
    on_event: a plain function, called with each event
    show: True shows the tree while it runs: live in a terminal or a notebook, else as lines on standard error
    strict: send a model request only after the store has recorded it, and only while this process owns the tree
    on_call: hooks that see each call of the tree before policy and approver; they may change its arguments or refuse it
    on_result: hooks that see each result before the model does; they may replace or withhold it
    """

    deps: object


class RunOptions(TreeOptions, _StoreOptions, total=False):
    """store: where the journal is kept; a store or a URL such as "sqlite:///runs.db" (default: in memory)
    history: the messages of an earlier conversation to continue, such as `outcome.messages`
    run_id: the id of the root run, at most 64 letters, digits, - and _ (default: a random id)
    """


_DEFAULTS: dict[str, object] = {"history": (), "show": False}
"""The defaults that are not None."""


def with_options(options: type[TreeOptions]) -> Callable[[F], F]:
    """Show each option, with its type and default, in the signature and the documentation of a function.

    For `inspect.signature` and `help`. Type checkers read `**options: Unpack[...]`.
    """

    def show(function: F) -> F:
        written = inspect.signature(function)
        hints = options.__annotations__
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=getattr(hint, "__forward_arg__", hint),
            )
            for name, hint in hints.items()
        ]
        own = [p for p in written.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__dict__["__signature__"] = written.replace(parameters=own + named)
        own_hints = {n: h for n, h in function.__annotations__.items() if n != "options"}
        function.__annotations__ = own_hints | hints
        documents = [inspect.getdoc(part) for part in (function, TreeOptions, options)]
        function.__doc__ = "\n\n".join(dict.fromkeys(text for text in documents if text))
        return function

    return show


def check_options(name: str, given: TreeOptions, known: type[TreeOptions]) -> None:
    """Raises UsageError if `name` was called with an unknown option: `**options` accepts any."""
    if not given.keys() <= known.__annotations__.keys():
        from remit.engine.unknown_options import unknown_options  # noqa: PLC0415 - only if a name is wrong

        raise UsageError(
            unknown_options(name, cast("Mapping[str, object]", given), list(known.__annotations__))
        )


@overload
async def run(
    agent: Agent[None, Output], task: Task, *, deps: None = None, **options: Unpack[TypedRunOptions]
) -> Outcome[Output]: ...


@overload
async def run(
    agent: Agent[Deps, Output], task: Task, *, deps: Deps, **options: Unpack[TypedRunOptions]
) -> Outcome[Output]: ...


@with_options(RunOptions)
async def run(agent: Agent, task: Task, **options: Unpack[RunOptions]) -> Outcome:
    """Run an agent on a task until it ends, and return the outcome, whatever its status.

    Raises UsageError for a mistake in the call, StoreError for a store that cannot be opened, and TreeExists for a
    `run_id` that the store already has, all before anything runs. If the caller is cancelled, the whole tree stops before CancelledError is raised. Raises nothing else.
    """
    check_loop()
    opening = _checked("run()", agent, task, options)
    async with Running(opening.claim) as running:
        return await running.outcome()


@overload
def run_sync(
    agent: Agent[None, Output], task: Task, *, deps: None = None, **options: Unpack[TypedRunOptions]
) -> Outcome[Output]: ...


@overload
def run_sync(
    agent: Agent[Deps, Output], task: Task, *, deps: Deps, **options: Unpack[TypedRunOptions]
) -> Outcome[Output]: ...


@with_options(RunOptions)
def run_sync(agent: Agent, task: Task, **options: Unpack[RunOptions]) -> Outcome:
    """`run` for code without an event loop.

    The first Ctrl-C stops the tree in order, the second at once; both raise KeyboardInterrupt.
    """
    _check_no_loop("run_sync", "run")
    check_options("run_sync()", options, RunOptions)
    # In a sync tool, run_sync waits in one of remit's threads. The new tree may need all the others.
    with threads.aside():
        return run_interruptible(lambda: run(agent, task, **cast("dict[str, Any]", options)))


@overload
def start(
    agent: Agent[None, Output], task: Task, *, deps: None = None, **options: Unpack[TypedRunOptions]
) -> Running[Output]: ...


@overload
def start(
    agent: Agent[Deps, Output], task: Task, *, deps: Deps, **options: Unpack[TypedRunOptions]
) -> Running[Output]: ...


@with_options(RunOptions)
def start(agent: Agent, task: Task, **options: Unpack[RunOptions]) -> Running:
    """A tree that runs inside `async with start(...) as running:`. Raises UsageError at once for a mistake in the call."""
    return Running(_checked("start()", agent, task, options).claim)


class _Opening(Struct, frozen=True):
    """A tree that is checked but not opened."""

    ready: Ready
    plan: Plan
    limits: Limits
    history: tuple[Message, ...]
    options: RunOptions

    async def claim(self) -> Opened:
        """Open the tree. A store that other processes can reach is claimed first. Raises StoreError."""
        journal = self.ready.journal(self.options.get("run_id") or new_root_id.get()())
        if journal.shared:
            await self._claim(journal)
        return self._open(journal)

    async def _claim(self, journal: Journal) -> None:
        try:
            await self.ready.check_reach(self.plan.agent)
            await journal.claim(new=True)
        except BaseException:
            from anyio import CancelScope  # noqa: PLC0415 - only if the store fails

            with CancelScope(shield=True):
                await journal.leave()
            raise

    def _open(self, journal: Journal) -> Opened:
        ready = self.ready
        tree = open_tree(journal, self.options, ready.workspace)
        root = Engine(tree, ready.models).root(
            self.plan,
            limits=self.limits,
            policies=ready.policies,
            sandbox=ready.sandbox,
            history=self.history,
        )
        return Opened(tree, root, ready.models.close)


def open_tree(
    journal: Journal, options: TreeOptions, workspace: Path | None, past: Tree | None = None
) -> TreeContext:
    """The context of a tree with the caller's options. `past` is the recorded part of a tree that is resumed."""
    approver, showing = options.get("approver"), None
    if options.get("show"):
        from remit.observe.display.showing import open_showing  # noqa: PLC0415 - only with `show`

        showing = open_showing(past, asyncio.get_running_loop())
        if showing is not None and approver is not None:
            approver = showing.hiding(approver)
    tree = TreeContext(
        journal.root,
        journal=journal,
        approver=approver,
        deps=options.get("deps"),
        workspace=workspace,
        on_call=hooks_on_call("run()", options.get("on_call")),
        on_result=hooks_on_result("run()", options.get("on_result")),
        past=past,
    )
    on_event = options.get("on_event")
    if on_event is not None:
        tree.stream.watch(cast("Callable[[Event], object]", on_event), tree.loop)
    if showing is not None:
        tree.stream.watch(showing.see, tree.loop, "show")
        tree.showing = showing
    return tree


def _checked(name: str, agent: Agent, task: Task, options: RunOptions) -> _Opening:
    """Raises UsageError for a mistake in the call."""
    check_options(name, options, RunOptions)
    ready = prepare(agent, options, options.get("store"))
    limits = root_limits(agent, options.get("limits"), ROOT_DEFAULTS)
    ready.models.check(agent, needs_price=limits.usd is not None)
    prompt = as_message(task)
    history = checks.check_history(options.get("history", ()))
    checks.check_new_run_id(options.get("run_id"))
    if history and agent.program is not None:
        raise UsageError(
            f"Agent {agent.name!r} is a program: it has no conversation that history= could continue."
        )
    text = task if isinstance(task, str) else prompt.text
    plan = Plan(agent=agent, prompt=prompt, task=text, summary=agent.summary)
    return _Opening(ready, plan, limits, history, options)


class Ready(Struct, frozen=True):
    """The checked options that a tree is started or resumed with."""

    store: Store | None
    ours: bool
    """Whether the store was opened for this tree alone."""
    models: Models
    policies: tuple[PolicyFunction | None, ...]
    sandbox: Sandbox
    workspace: Path | None
    strict: bool
    above: tuple[str, ...] = ()
    """Trees that this process must own too before it sends a request: the batch of a row's tree."""

    async def check_reach(self, agent: Agent) -> None:
        """Raises UsageError if a sandboxed command of the tree could write the store: approvals come from people."""
        exposed = cast("_Exposed | None", getattr(self.store, "exposed", None))
        if exposed is None or not (sandboxes := _sandboxes(agent, self.sandbox)):
            return
        from pathlib import Path  # noqa: PLC0415 - only with a sandbox

        if why := await exposed(sandboxes, self.workspace or Path.cwd()):
            raise UsageError(why)

    def journal(self, root: str) -> Journal:
        if self.store is None:
            return Journal(MemoryStore(), root, ours=True)
        return Journal(self.store, root, ours=self.ours, strict=self.strict, above=self.above)


def prepare(agent: Agent, options: TreeOptions, store: Store | str | None) -> Ready:
    """Check the options and find the adapters they name. Raises UsageError for a mistake in the call."""
    checks.check_call(agent, options.get("limits"), options.get("approver"), options.get("on_event"))
    checks.check_show(options.get("show", False))
    hooks_on_call("run()", options.get("on_call"))
    hooks_on_result("run()", options.get("on_result"))
    opened = None if store is None else _open_store(store)
    models = Models(options.get("model"), options.get("models"), _NamedModels)
    tools = checks.check_tools(agent)
    policy, caller = options.get("policy"), None
    if policy is not None:
        caller = compile_policy(policy, "run()")
        checks.check_rules(caller, tools, "run()")
    given = options.get("sandbox")
    outer = OPEN if given is None else read_sandbox(given, "run()") or OPEN
    sandbox = outer if agent.sandbox is None else agent.sandbox.within(outer)
    workspace = options.get("workspace")
    folder = None if workspace is None else checks.check_workspace(workspace)
    strict = checks.check_strict(options.get("strict"), opened)
    policies = (caller, agent.policy)
    return Ready(opened, isinstance(store, str), models, policies, sandbox, folder, strict, _above.get())


def _sandboxes(agent: Agent, own: Sandbox) -> set[Sandbox]:
    """The sandboxes that commands of a tree may run in; `own` is its root's."""
    seen: set[tuple[Agent, Sandbox]] = set()
    left = [(agent, own)]
    while left:
        one, box = left.pop()
        if (one, box) not in seen:
            seen.add((one, box))
            left += [(a, box if a.sandbox is None else a.sandbox.within(box)) for a in one.subagents]
    return {box for _, box in seen if not box.is_open}


class _NamedModels:
    """Finds models by name. The providers are loaded with the first name."""

    def __init__(self) -> None:
        self._shelf: Shelf | None = None

    @property
    def close(self) -> Callable[[], Awaitable[None]] | None:
        return None if self._shelf is None else self._shelf.close

    def find(self, name: str) -> Model:
        if name == "offline":
            from remit.models.offline import Offline  # noqa: PLC0415 - only if it is named

            return Offline()
        if self._shelf is None:
            from remit.models import Shelf  # noqa: PLC0415 - as above

            self._shelf = Shelf()
        return self._shelf.find(name)


def _open_store(store: Store | str) -> Store:
    """Creates nothing yet: a store does that when it is first used."""
    if isinstance(store, str):
        from remit.stores import open_store  # noqa: PLC0415 - only if a URL is given

        return open_store(store)
    checks.check_store(store)
    return store


def _check_no_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{name}() cannot be called inside a running event loop (as in Jupyter): use `await {instead}(...)`."
    )
