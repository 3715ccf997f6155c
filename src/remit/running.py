"""The front door: `run`, `run_sync`, `start`, and the handle on a tree that is running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import msgspec
from anyio import CancelScope

from remit.agent import Agent
from remit.approval import Approver, Desk
from remit.delegation.engine import Engine, root_limits
from remit.delegation.kit import kit_for
from remit.errors import UsageError
from remit.events import Event
from remit.execution import Plan
from remit.foreign import is_async
from remit.limits import ROOT_DEFAULTS, Limits
from remit.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolMessage,
    UserMessage,
    user,
)
from remit.outcome import Outcome
from remit.policy import Policy, compile_policy
from remit.ports import Model, Store, new_root_id
from remit.progress import ChildProgress, ProgressReader
from remit.providers import Models, ModelSource
from remit.scope import Scope, TreeContext, current_run
from remit.stores.memory import MemoryStore
from remit.text import clean, describe_error, safe_str

MOST_TASK = 5_000_000
"""Characters of a task; more is a mistake."""

Task = str | Sequence[Part]


async def run(
    agent: Agent,
    task: Task,
    *,
    model: str | Model | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    store: Store | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """Run an agent on a task to its end, whatever that is.

    Raises UsageError for a mistake in the call, before anything ran, and passes on the caller's own
    cancellation, after everything below has stopped. Nothing else.
    """
    running = start(
        agent,
        task,
        model=model,
        models=models,
        limits=limits,
        store=store,
        approver=approver,
        policy=policy,
        deps=deps,
        history=history,
        workspace=workspace,
        on_event=on_event,
    )
    async with running:
        return await running.outcome()


def run_sync(
    agent: Agent,
    task: Task,
    *,
    model: str | Model | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    store: Store | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Outcome:
    """`run` for code without an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise UsageError(
            "run_sync() cannot be called inside a running event loop (as in Jupyter): use `await run(...)`."
        )
    return asyncio.run(
        run(
            agent,
            task,
            model=model,
            models=models,
            limits=limits,
            store=store,
            approver=approver,
            policy=policy,
            deps=deps,
            history=history,
            workspace=workspace,
            on_event=on_event,
        )
    )


def start(
    agent: Agent,
    task: Task,
    *,
    model: str | Model | None = None,
    models: ModelSource | None = None,
    limits: Limits | None = None,
    store: Store | None = None,
    approver: Approver | None = None,
    policy: Policy | None = None,
    deps: object = None,
    history: Sequence[Message] = (),
    workspace: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Running:
    """A tree to be run inside `async with`. Raises UsageError at once for a mistake in the call."""
    _check_call(agent, limits, store, approver, on_event)
    found = Models(model, models)
    effective = root_limits(agent, limits, ROOT_DEFAULTS)
    found.check(agent, None, needs_price=isinstance(effective.usd, (int, float)))
    _check_tools(agent)
    policies = (compile_policy(policy, "run()"), agent.policy)
    prompt = _as_message(task)
    past = _check_history(history)
    plan = Plan(agent=agent, prompt=prompt, task=prompt.text, summary=agent.summary)

    def go(tree: TreeContext) -> Coroutine[object, object, Outcome]:
        return Engine(tree, found).root(plan, limits=effective, policies=policies, history=past)

    place = _check_workspace(workspace)

    def begin() -> TreeContext:
        return TreeContext(
            new_root_id.get()(),
            store=MemoryStore() if store is None else store,
            desk=Desk(approver),
            deps=deps,
            workspace=place,
        )

    return Running(begin, go, on_event)


class Running:
    """A tree while it runs. Leaving its `async with` block stops what is still running."""

    def __init__(
        self,
        begin: Callable[[], TreeContext],
        go: Callable[[TreeContext], Coroutine[object, object, Outcome]],
        on_event: Callable[[Event], object] | None,
    ) -> None:
        self._begin = begin
        self._go = go
        self._on_event = on_event
        self._tree: TreeContext | None = None
        self._task: asyncio.Task[Outcome] | None = None

    @property
    def run_id(self) -> str:
        """The root run's id."""
        return self._inside().root

    def __await__(self) -> Generator[None, None, None]:
        raise UsageError(
            "start() is not awaited: write `async with start(...) as running:`, or `await run(...)`."
        )

    def __enter__(self) -> None:
        raise UsageError("start() needs `async with`, not `with`.")

    def __exit__(self, *_: object) -> None:
        """Never reached; Python looks for it before it calls `__enter__`."""

    async def __aenter__(self) -> Self:
        if self._tree is not None:
            raise UsageError("This tree was started already; call start() again for another one.")
        tree = self._begin()
        if self._on_event:
            tree.stream.watch(self._on_event, tree.loop)
        self._tree = tree
        self._task = tree.loop.create_task(self._run(tree, self._go(tree)), name=f"remit {tree.root}")
        return self

    async def _run(self, tree: TreeContext, root: Coroutine[object, object, Outcome]) -> Outcome:
        try:
            return await root
        finally:
            await tree.stream.end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        if not self._task.done():
            root = self._inside().runs.get(self.run_id)
            by = "the caller" if isinstance(error, asyncio.CancelledError) else "the block that started it"
            if root:
                root.cancel(by, "it was left before the run had ended")
            await _settled(self._task)

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, from the beginning; ends when the root has ended. For several readers, call it again."""
        return self._inside().stream.reader()

    def progress(self) -> AsyncIterator[ChildProgress]:
        """What the children are doing, call by call: a projection of `events()`."""
        return ProgressReader(self.events())

    async def cancel(self, reason: str = "", *, run: str | None = None) -> bool:
        """Stop a run (the root if none is named) and everything below it; returns when nothing of it runs.

        False when it had ended, or was being stopped, already. From inside the run itself it returns at once.
        """
        if run is None and reason in self._inside().known:
            raise UsageError(
                f"cancel({reason!r}) gives a run's id as the reason: write cancel(reason, run={reason!r})."
            )
        scope = self._live(run)
        if scope is None:
            return False
        first = scope.cancel("the caller", safe_str(reason))
        here = current_run.get()
        if here != scope.run_id and not here.startswith(f"{scope.run_id}."):
            await asyncio.shield(scope.ended)
            if scope.parent is None and self._task is not None:
                await asyncio.wait({self._task})
        return first

    def send(self, text: str, *, run: str | None = None) -> bool:
        """Have a message join that run's next turn. False when it has none: it has ended, or is giving its last word."""
        if not isinstance(cast(object, text), str) or not text.strip():
            raise UsageError("send() needs a non-empty text.")
        scope = self._live(run)
        if scope is None or not scope.hears:
            return False
        scope.inbox.append(user(clean(text)))
        return True

    async def outcome(self) -> Outcome:
        """How the root ended; waits for it. Being cancelled here does not stop the tree; leaving the block does."""
        self._inside()
        assert self._task is not None
        return await asyncio.shield(self._task)

    def _inside(self) -> TreeContext:
        if self._tree is None:
            raise UsageError("The tree does not run yet: use `async with start(...) as running:`.")
        return self._tree

    def _live(self, run: str | None) -> Scope | None:
        tree = self._inside()
        name = tree.root if run is None else run
        if not isinstance(cast(object, name), str):
            raise UsageError(f"run must be a run's id, not {run!r}.")
        if name not in tree.known:
            raise UsageError(f"There is no run {name!r} in this tree; its root is {tree.root!r}.")
        return tree.runs.get(name)


async def _settled(task: asyncio.Task[Outcome]) -> None:
    """Wait for the tree to end, whatever is wished of us meanwhile; pass a cancellation on afterwards."""
    wished: asyncio.CancelledError | None = None
    with CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                wished = error
    if wished:
        raise wished


def _check_call(agent: object, limits: object, store: object, approver: object, on_event: object) -> None:
    if not isinstance(agent, Agent):
        raise UsageError(f"run() needs an Agent as its first argument, not {agent!r}.")
    if limits is not None and not isinstance(limits, Limits):
        raise UsageError(f"limits must be a Limits(...), not {limits!r}.")
    if store is not None and not isinstance(store, Store):
        raise UsageError(
            f"store must be a store such as remit.stores.memory.MemoryStore(), not {store!r}. Stores on disk are not"
            " there yet."
        )
    if approver is not None and not callable(approver):
        raise UsageError(f"approver must be an async function of one ApprovalRequest, not {approver!r}.")
    if on_event is not None and (not callable(on_event) or is_async(on_event)):
        raise UsageError(
            "on_event must be a plain function of one event; for async readers use start() and events()."
        )


def _check_workspace(workspace: object) -> Path | None:
    if workspace is None:
        return None
    if not isinstance(workspace, (str, Path)):
        raise UsageError(f"workspace must be a path, not {workspace!r}.")
    return Path(workspace)


def _check_tools(agent: Agent) -> None:
    seen: set[int] = set()
    found = [agent]
    while found:
        one = found.pop()
        if id(one) not in seen:
            seen.add(id(one))
            kit_for(one, may_delegate=True)
            found.extend(one.subagents)


def _as_message(task: object) -> UserMessage:
    parts: tuple[object, ...]
    if isinstance(task, str):
        parts = (TextPart(task),)
    elif isinstance(task, Sequence):
        parts = tuple(cast("Sequence[object]", task))
    else:
        raise UsageError(f"task must be a string or a list of parts, not {task!r}.")
    checked: list[Part] = []
    for part in parts:
        if not isinstance(part, (TextPart, ImagePart, FilePart)):
            raise UsageError(f"task has {part!r}, which is not a TextPart, ImagePart or FilePart.")
        if isinstance(part, TextPart):
            _check_text(part.text)
        checked.append(part)
    message = UserMessage(tuple(checked))
    _check_message(message, "task")
    if not message.text.strip() and not any(not isinstance(p, TextPart) for p in checked):
        raise UsageError("task is empty: say what is to be done.")
    return message


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UsageError(f"task must be text, not {text!r}.")
    if len(text) > MOST_TASK:
        raise UsageError(f"task has {len(text):,} characters; at most {MOST_TASK:,} are allowed.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"task has an unpaired surrogate at position {error.start}.") from None


def _check_message(message: object, where: str) -> None:
    """See that it can be written down and read back. Raises UsageError."""
    try:
        msgspec.json.decode(msgspec.json.encode(message), type=type(message))
    except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError) as error:
        raise UsageError(f"{where} cannot be recorded: {describe_error(error)}") from None


def _check_history(history: object) -> tuple[Message, ...]:
    if isinstance(history, Sequence) and not isinstance(history, str):
        found = tuple(cast("Sequence[object]", history))
        if all(isinstance(m, (UserMessage, AssistantMessage, ToolMessage)) for m in found):
            for number, message in enumerate(found):
                _check_message(message, f"history[{number}]")
            return cast("tuple[Message, ...]", found)
    raise UsageError("history must be the messages of an earlier outcome (outcome.messages).")
