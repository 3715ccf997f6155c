"""What code of the user's is given while it runs: `ToolContext` for a tool, `ProgramContext` for a program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from remit.errors import UsageError
from remit.types.sandbox import OPEN, Sandbox
from remit.types.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from remit.agent import Agent
    from remit.types.limits import Left, Limits
    from remit.types.messages import Json, UserMessage
    from remit.types.outcome import Outcome, Rejection
    from remit.types.ports import ModelChoice
    from remit.types.task_message import Task
else:
    # For code that reads type hints at run time: pathlib takes too long to import for a hint.
    from os import PathLike as Path

AllowedBy = Literal["default", "pattern", "person"]
"""A person approved this call, or a rule with a pattern allowed it; otherwise its tool may be used for anything."""

T = TypeVar("T")


class Delegating(Protocol):
    """Asks for children of a run from code: `engine/run/from_code.py` has it."""

    @property
    def left(self) -> Left: ...

    def delegate(
        self,
        agent: Agent | str,
        prompt: Task,
        *,
        label: str,
        limits: Limits | None,
        model: ModelChoice | None,
        key: str | None,
    ) -> Awaitable[Outcome | Rejection]: ...

    def map(
        self,
        agent: Agent | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None,
        concurrency: int | None,
        label: str,
        limits: Limits | None,
        model: ModelChoice | None,
    ) -> Awaitable[list[Outcome | Rejection]]: ...

    def from_thread(
        self, name: str, make: Callable[[], Awaitable[T]], rejected: Callable[[Rejection], T]
    ) -> T:
        """Run something on the event loop of the tree and wait for it, in the thread of a sync tool.

        `rejected` makes the result if the call has ended.
        """
        ...


class CodeContext:
    """What tools and programs have in common: who they work for, and how they delegate."""

    __slots__ = ("_cancelled", "_code", "_emit", "deps", "depth", "path", "run_id", "sandbox", "workspace")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: object,
        emit: Callable[[str], None],
        cancelled: Callable[[], bool],
        sandbox: Sandbox = OPEN,
        code: Callable[[], Delegating] | None = None,
    ) -> None:
        self.run_id = run_id
        self.path = path
        """Agent names from the root down to this run."""
        self.depth = depth
        self.workspace = workspace
        self.deps = deps
        """The caller's own object, as given to `run(deps=...)`."""
        self.sandbox = sandbox
        """What the run's tools may touch. Tools of your own should respect it."""
        self._emit = emit
        self._cancelled = cancelled
        self._code = code

    def emit(self, text: str) -> None:
        """Tell people who watch the run how far the work is. The model does not read it."""
        self._emit(clean(text))

    @property
    def cancelled(self) -> bool:
        """True once the run is to stop: a long sync tool should check it, and return."""
        return self._cancelled()

    async def delegate(
        self,
        agent: Agent | str,
        prompt: Task,
        *,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
        key: str | None = None,
    ) -> Outcome | Rejection:
        """Let a child of this run do a task, and wait for it.

        `agent` is an Agent or the name of one of the run's subagents; with `limits`, the tighter of both apply. `key` names
        the child when the tree is resumed (default: made from the prompt). Whatever becomes of the child is an Outcome, and a
        child that cannot start is a Rejection; both have `ok`, `text` and `reason`. Raises UsageError for wrong arguments.
        """
        return await self._delegating().delegate(
            agent, prompt, label=label, limits=limits, model=model, key=key
        )

    async def map(
        self,
        agent: Agent | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None = None,
        concurrency: int | None = None,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
    ) -> list[Outcome | Rejection]:
        """Let a child do each of several tasks, at most `concurrency` at once; the results in the order of the prompts."""
        return await self._delegating().map(
            agent, prompts, keys=keys, concurrency=concurrency, label=label, limits=limits, model=model
        )

    @property
    def left(self) -> Left:
        """What children of this run may still spend."""
        return self._delegating().left

    def _delegating(self) -> Delegating:
        if self._code is None:
            raise UsageError(
                "This context cannot delegate: a preview may start nothing, and there is no run outside a tree."
            )
        return self._code()


class ToolContext(CodeContext):
    """What a tool may know of the run that called it; a parameter with this annotation is given one."""

    __slots__ = ("allowed_by", "approved")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: object,
        emit: Callable[[str], None],
        cancelled: Callable[[], bool],
        sandbox: Sandbox = OPEN,
        approved: str = "",
        allowed_by: AllowedBy = "default",
        code: Callable[[], Delegating] | None = None,
    ) -> None:
        super().__init__(
            run_id=run_id,
            path=path,
            depth=depth,
            workspace=workspace,
            deps=deps,
            emit=emit,
            cancelled=cancelled,
            sandbox=sandbox,
            code=code,
        )
        self.approved = approved
        """What `must_ask` named, once a person has approved it for this very call; empty otherwise."""
        self.allowed_by = allowed_by
        """Why the call may run. "pattern": a rule with a pattern allows it, so do no more than the pattern says."""

    def delegate_sync(
        self,
        agent: Agent | str,
        prompt: Task,
        *,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
        key: str | None = None,
    ) -> Outcome | Rejection:
        """`delegate` for a tool that is a plain `def`."""
        code = self._delegating()
        return code.from_thread(
            "delegate",
            lambda: code.delegate(agent, prompt, label=label, limits=limits, model=model, key=key),
            lambda rejection: rejection,
        )

    def map_sync(
        self,
        agent: Agent | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None = None,
        concurrency: int | None = None,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
    ) -> list[Outcome | Rejection]:
        """`map` for a tool that is a plain `def`."""
        code = self._delegating()
        return code.from_thread(
            "map",
            lambda: code.map(
                agent, prompts, keys=keys, concurrency=concurrency, label=label, limits=limits, model=model
            ),
            lambda rejection: [rejection for _ in prompts],
        )


class ProgramContext(CodeContext):
    """What a program knows of its run, and how it works: its task, its children, its recorded steps."""

    __slots__ = ("_step", "prompt", "task")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: object,
        emit: Callable[[str], None],
        cancelled: Callable[[], bool],
        sandbox: Sandbox,
        code: Callable[[], Delegating],
        prompt: UserMessage,
        step: Callable[..., Awaitable[Json]],
    ) -> None:
        super().__init__(
            run_id=run_id,
            path=path,
            depth=depth,
            workspace=workspace,
            deps=deps,
            emit=emit,
            cancelled=cancelled,
            sandbox=sandbox,
            code=code,
        )
        self.prompt = prompt
        """The task as it was given, with images and files if it has any."""
        self.task = prompt.text
        """The task as text."""
        self._step = step

    async def step(self, name: str, function: Callable[..., object], /, *args: object) -> Json:
        """Run a function, async or not, and record its JSON result, so that a resumed program does not run it again.

        `name` is the step's name in this run and may be used once. A process that dies between the function's effect and the
        record runs it twice. What the function raises passes through and is not recorded. Raises UsageError for a result that
        is not JSON.
        """
        return await self._step(name, function, args)
