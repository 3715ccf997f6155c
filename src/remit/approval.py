"""Asking a person: one request at a time, from any depth, without holding up anybody else.

While a request waits, the clocks of the asker and of its ancestors stand still and the asker does not
work. With nobody to ask, the answer is no.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import remit.foreign as foreign
from remit.events import ApprovalAnswered, ApprovalRequested
from remit.limits import total
from remit.phase import Phase, wake
from remit.policy import ApprovalRequest, Decision, allow, deny
from remit.text import clean, clean_json, describe_error, safe_str

if TYPE_CHECKING:
    from remit.messages import JsonObject
    from remit.scope import Scope
    from remit.tool import Tool

log = logging.getLogger("remit")

Approver = Callable[[ApprovalRequest], Awaitable[Decision] | Decision]


class Desk:
    """The queue in front of the root's approver, and what it has allowed for the whole tree."""

    def __init__(self, approver: Approver | None) -> None:
        self._approver = approver
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._count = 0
        self._granted: set[object] = set()

    async def ask(self, scope: Scope, *, call: str, tool: Tool, context: str, args: JsonObject) -> Decision:
        """The person's answer. Raises Stopped when the run is stopped while it waits."""
        if self._is_granted(scope, tool):
            return allow()
        self._count += 1
        request = f"{scope.tree.root}/approval{self._count}"
        question = ApprovalRequest(
            id=request,
            path=scope.path,
            agent=scope.agent,
            task=scope.task,
            tool=tool.name,
            args=cast("JsonObject", clean_json(args)),
            total_usage=total(scope.tree.spent),
        )
        scope.emit(ApprovalRequested, request=request, call=call, tool=tool.name, context=context)
        decision = deny("nobody can be asked: no approver was given to run()")
        try:
            if self._approver is not None:
                decision = deny("the run was stopped before there was an answer")
                decision = await self._waited(self._approver, scope, tool, question)
        finally:
            self._answered(scope, request, call, tool, decision)
        return decision

    def _is_granted(self, scope: Scope, tool: Tool) -> bool:
        return _what(tool) in self._granted or _what(tool) in scope.grants

    def _answered(self, scope: Scope, request: str, call: str, tool: Tool, decision: Decision) -> None:
        if decision.allowed and decision.scope == "run":
            scope.grants.add(_what(tool))
        if decision.allowed and decision.scope == "tree":
            self._granted.add(_what(tool))
        scope.emit(
            ApprovalAnswered,
            request=request,
            call=call,
            allowed=decision.allowed,
            scope=decision.scope,
            reason=decision.reason,
        )

    async def _waited(
        self, approver: Approver, scope: Scope, tool: Tool, question: ApprovalRequest
    ) -> Decision:
        lineage = tuple(scope.lineage())
        for run in lineage:
            run.deadline.pause()
        # A delegating call is no work of the run's own; any other one is not while it waits.
        if not tool.delegates:
            scope.seat.leave()
        try:
            decision = await self._in_turn(approver, scope, tool, question)
        except BaseException:
            if not tool.delegates:
                scope.seat.count()
            raise
        finally:
            for run in lineage:
                run.deadline.resume()
        if not tool.delegates:
            await scope.seat.enter(scope.phase)
        return decision

    async def _in_turn(
        self, approver: Approver, scope: Scope, tool: Tool, question: ApprovalRequest
    ) -> Decision:
        await self._wait_for_turn(scope.phase)
        try:
            if self._is_granted(scope, tool):
                return allow()
            ended = await _answer(approver, question, scope)
        finally:
            self._next()
        decision = _tidy(ended.value)
        if ended.how == "returned" and decision is not None:
            return decision
        what = (
            f"it raised {describe_error(ended.error)}" if ended.error else "it returned no allow() or deny()"
        )
        log.warning("the approver failed, so %s is denied: %s", tool.name, what, exc_info=ended.error)
        scope.warn(f"The approver failed, so {tool.name} was denied: {what}.")
        return deny(f"the approver failed: {what}")

    async def _wait_for_turn(self, phase: Phase) -> None:
        if not self._busy:
            self._busy = True
            return
        future: asyncio.Future[None] = phase.loop.create_future()
        self._queue.append(future)
        try:
            await phase.wait(future)
        except BaseException:
            if future in self._queue:
                self._queue.remove(future)
            else:
                self._next()
            raise

    def _next(self) -> None:
        """Hand the desk to the next in line; it stays busy unless there is none."""
        if self._queue:
            wake(self._queue.popleft())
        else:
            self._busy = False


def _tidy(answer: object) -> Decision | None:
    """An answer as it can be recorded; None when it is none."""
    if not isinstance(answer, Decision) or answer.scope not in ("once", "run", "tree"):
        return None
    return Decision(answer.allowed is True, answer.scope, clean(safe_str(answer.reason or "")))


def _what(tool: Tool) -> object:
    """What an allowance is about: this very tool. Another agent's may only share its name."""
    return tool.name if tool.delegates else tool


async def _answer(approver: Approver, question: ApprovalRequest, scope: Scope) -> foreign.Ended:
    """An async approver in a task; a plain one in a thread, where it may wait for a key to be pressed."""
    name, lost = "the approver", scope.left_behind
    if foreign.is_async(approver):
        return await foreign.run(_call(approver, question), scope.phase, name=name, on_abandoned=lost)
    ended = await foreign.run_in_thread(
        lambda: approver(question), scope.phase, name=name, urgent=True, on_abandoned=lost
    )
    if not inspect.isawaitable(ended.value):
        return ended
    return await foreign.run(ended.value, scope.phase, name=name, on_abandoned=lost)


async def _call(approver: Approver, question: ApprovalRequest) -> object:
    answer = approver(question)
    return await answer if inspect.isawaitable(answer) else answer
