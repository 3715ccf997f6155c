"""The contexts that remit passes to user code.

`ToolContext` goes to a tool, `ProgramContext` to a program, `RunContext` to hooks, validators and instructions.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

from remit.errors import UsageError
from remit.types.sandbox import OPEN, Sandbox
from remit.types.text import clean
from remit.types.type_variables import DepsOut, Output

if TYPE_CHECKING:
    from pathlib import Path

    from remit.agent import Agent
    from remit.types.limits import Left, Limits
    from remit.types.messages import Json, UserMessage
    from remit.types.outcome import Outcome, Rejection
    from remit.types.ports import ModelChoice
    from remit.types.task_message import Task
else:
    # Type hints can be read at run time, and importing pathlib is slow.
    from os import PathLike as Path

AllowedBy = Literal["default", "pattern", "person"]
"""Why a call may run: a person approved it, a rule with a pattern allowed it, or ("default") its tool is allowed in general."""

T = TypeVar("T")
P = ParamSpec("P")


def _explain_wrong_arguments(method: Callable[P, T]) -> Callable[P, T]:
    """Make a method raise UsageError if an argument is missing or has an unknown name."""

    @functools.wraps(method)
    def call(*unnamed: P.args, **named: P.kwargs) -> T:
        try:
            return method(*unnamed, **named)
        except TypeError:
            _check_arguments(method, unnamed, named)
            raise

    return call


def _check_arguments(
    method: Callable[..., object], unnamed: tuple[object, ...], named: Mapping[str, object]
) -> None:
    from inspect import signature  # noqa: PLC0415 - needed only for this error

    from remit.types.spelling import wrong_names  # noqa: PLC0415 - as above

    known = list(signature(method).parameters)[1:]
    what = f"ctx.{method.__name__}()"
    example = f"ctx.{method.__name__}({known[0]}, {known[1]}, label=...)"
    wrong = wrong_names(what, unnamed[3:], named, known=known, others={}, example=example)
    missing = [name for name in known[len(unnamed) - 1 : 2] if name not in named]
    if not wrong and missing:
        wrong = f"{what} needs {' and '.join(map(repr, missing))}: {example}."
    if wrong:
        raise UsageError(wrong) from None


class Delegating(Protocol):
    """Starts children of a run from code. Implemented in `engine/run/from_code.py`."""

    @property
    def left(self) -> Left: ...

    def delegate(
        self,
        agent: Agent[Any, Output] | str,
        prompt: Task,
        *,
        label: str,
        limits: Limits | None,
        model: ModelChoice | None,
        key: str | None,
    ) -> Awaitable[Outcome[Output] | Rejection]: ...

    def map(
        self,
        agent: Agent[Any, Output] | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None,
        concurrency: int | None,
        label: str,
        limits: Limits | None,
        model: ModelChoice | None,
    ) -> Awaitable[list[Outcome[Output] | Rejection]]: ...

    def from_thread(
        self, name: str, make: Callable[[], Awaitable[T]], rejected: Callable[[Rejection], T]
    ) -> T:
        """From a sync tool's thread: run an awaitable on the tree's event loop and wait for its result.

        `rejected` makes the result if the call has ended.
        """
        ...


class RunContext(Generic[DepsOut]):
    """The run that a hook, a validator or a function for instructions works for."""

    __slots__ = ("deps", "depth", "path", "run_id", "sandbox", "task", "workspace")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: DepsOut,
        sandbox: Sandbox = OPEN,
        task: str = "",
    ) -> None:
        self.run_id = run_id
        self.path = path
        """Agent names from the root down to this run."""
        self.depth = depth
        self.workspace = workspace
        self.deps: DepsOut = deps
        """The caller's own object, as given to `run(deps=...)`."""
        self.sandbox = sandbox
        """What the run's tools may touch. Your own tools should respect it."""
        self.task = task
        """The run's task as text."""


class CodeContext(RunContext[DepsOut]):
    """Shared by tools and programs: the run they work for, and delegation."""

    __slots__ = ("_cancelled", "_code", "_emit")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: DepsOut,
        emit: Callable[[str], None],
        cancelled: Callable[[], bool],
        sandbox: Sandbox = OPEN,
        task: str = "",
        code: Callable[[], Delegating] | None = None,
    ) -> None:
        super().__init__(
            run_id=run_id,
            path=path,
            depth=depth,
            workspace=workspace,
            deps=deps,
            sandbox=sandbox,
            task=task,
        )
        self._emit = emit
        self._cancelled = cancelled
        self._code = code

    def emit(self, text: str) -> None:
        """Report progress to people who watch the run. The model does not see it."""
        self._emit(clean(text))

    @property
    def cancelled(self) -> bool:
        """True once the run must stop. A long sync tool should check this and return."""
        return self._cancelled()

    @_explain_wrong_arguments
    async def delegate(
        self,
        agent: Agent[DepsOut, Output] | str,
        prompt: Task,
        *,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
        key: str | None = None,
    ) -> Outcome[Output] | Rejection:
        """Start a child of this run on a task, and wait for it.

        `agent` is an Agent or the name of one of the run's subagents. Of `limits` and the agent's own limits, the tighter
        apply. `key` identifies the child when the tree resumes (default: made from the prompt). However the child ends, the
        result is an Outcome; a child that cannot start is a Rejection, also if no subagent has the name `agent`. Both have
        `ok`, `text` and `reason`. Raises UsageError for wrong arguments.
        """
        return await self._delegating().delegate(
            agent, prompt, label=label, limits=limits, model=model, key=key
        )

    @_explain_wrong_arguments
    async def map(
        self,
        agent: Agent[DepsOut, Output] | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None = None,
        concurrency: int | None = None,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
    ) -> list[Outcome[Output] | Rejection]:
        """Start one child per prompt, at most `concurrency` at once. The results are in the order of the prompts."""
        return await self._delegating().map(
            agent, prompts, keys=keys, concurrency=concurrency, label=label, limits=limits, model=model
        )

    @property
    def left(self) -> Left:
        """The limits that children of this run have left."""
        return self._delegating().left

    def _delegating(self) -> Delegating:
        if self._code is None:
            raise UsageError(
                "This context cannot delegate: previews, and contexts made outside a run, cannot start children."
            )
        return self._code()


class ToolContext(CodeContext[DepsOut]):
    """A tool's view of the run that called it. remit passes one to the parameter with this annotation."""

    __slots__ = ("allowed_by", "approved")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: DepsOut,
        emit: Callable[[str], None],
        cancelled: Callable[[], bool],
        sandbox: Sandbox = OPEN,
        task: str = "",
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
            task=task,
            code=code,
        )
        self.approved = approved
        """The text that `must_ask` returned, once a person has approved it for this call; otherwise empty."""
        self.allowed_by = allowed_by
        """Why the call may run. "pattern": a rule with a pattern allows it, so do no more than the pattern covers."""

    @_explain_wrong_arguments
    def delegate_sync(
        self,
        agent: Agent[DepsOut, Output] | str,
        prompt: Task,
        *,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
        key: str | None = None,
    ) -> Outcome[Output] | Rejection:
        """`delegate` for a tool that is a plain `def`."""
        code = self._delegating()
        return code.from_thread(
            "delegate",
            lambda: code.delegate(agent, prompt, label=label, limits=limits, model=model, key=key),
            lambda rejection: rejection,
        )

    @_explain_wrong_arguments
    def map_sync(
        self,
        agent: Agent[DepsOut, Output] | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None = None,
        concurrency: int | None = None,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
    ) -> list[Outcome[Output] | Rejection]:
        """`map` for a tool that is a plain `def`."""
        code = self._delegating()
        return code.from_thread(
            "map",
            lambda: code.map(
                agent, prompts, keys=keys, concurrency=concurrency, label=label, limits=limits, model=model
            ),
            lambda rejection: [rejection for _ in prompts],
        )


class ProgramContext(CodeContext[DepsOut]):
    """A program's view of its run: its task, its children, its recorded steps."""

    __slots__ = ("_step", "prompt")

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[str, ...],
        depth: int,
        workspace: Path | None,
        deps: DepsOut,
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
            task=prompt.text,
            code=code,
        )
        self.prompt = prompt
        """The task as given, including images and files."""
        self._step = step

    async def step(self, name: str, function: Callable[..., object], /, *args: object) -> Json:
        """Run a function, async or not, and record its JSON result, so that a resumed program does not run it again.

        `name` must be unique among the run's steps. If the process dies after the function ran and before the result is
        recorded, the function runs again. Exceptions of the function pass through and are not recorded. Raises UsageError for
        a result that is not JSON.
        """
        return await self._step(name, function, args)
