"""Asking a person: one request at a time, from any depth, without holding up anybody else.

While a request waits, the clocks of the asker and of its ancestors stand still and the asker does not
work. With nobody to ask, the answer is no.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import remit.foreign as foreign
from remit.events import ApprovalAnswered, ApprovalRequested
from remit.limits import total
from remit.phase import Phase, wake
from remit.policy import ApprovalRequest, Decision, allow, deny
from remit.text import clean_json

if TYPE_CHECKING:
    from remit.messages import JsonObject
    from remit.scope import Scope

log = logging.getLogger("remit")

Approver = Callable[[ApprovalRequest], Awaitable[Decision]]


class Desk:
    """The queue in front of the root's approver, and what it has allowed for the whole tree."""

    def __init__(self, approver: Approver | None) -> None:
        self._approver = approver
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._count = 0
        self._granted: set[str] = set()

    async def ask(
        self, scope: Scope, *, call: str, tool: str, context: str, args: JsonObject, works: bool
    ) -> Decision:
        """The person's answer; `works` says that the asking call counts as work. Raises Stopped."""
        if tool in self._granted or tool in scope.grants:
            return allow()
        self._count += 1
        request = f"{scope.tree.root}/approval{self._count}"
        scope.emit(ApprovalRequested, request=request, call=call, tool=tool, context=context)
        decision = deny("nobody can be asked: no approver was given to run()")
        try:
            if self._approver is not None:
                decision = deny("the run was stopped before there was an answer")
                decision = await self._waited(self._approver, scope, request, tool, args, works=works)
        finally:
            self._answered(scope, request, call, tool, decision)
        return decision

    def _answered(self, scope: Scope, request: str, call: str, tool: str, decision: Decision) -> None:
        if decision.allowed and decision.scope == "run":
            scope.grants.add(tool)
        if decision.allowed and decision.scope == "tree":
            self._granted.add(tool)
        scope.emit(
            ApprovalAnswered,
            request=request,
            call=call,
            allowed=decision.allowed,
            scope=decision.scope,
            reason=decision.reason,
        )

    async def _waited(
        self, approver: Approver, scope: Scope, request: str, tool: str, args: JsonObject, *, works: bool
    ) -> Decision:
        lineage = tuple(scope.lineage())
        for run in lineage:
            run.deadline.pause()
        if works:
            scope.seat.leave()
        try:
            decision = await self._in_turn(approver, scope, request, tool, args)
        finally:
            for run in lineage:
                run.deadline.resume()
        if works:
            await scope.seat.enter(scope.phase)
        return decision

    async def _in_turn(
        self, approver: Approver, scope: Scope, request: str, tool: str, args: JsonObject
    ) -> Decision:
        await self._wait_for_turn(scope.phase)
        try:
            if tool in self._granted or tool in scope.grants:
                return allow()
            question = ApprovalRequest(
                id=request,
                path=scope.path,
                agent=scope.agent,
                task=scope.task,
                tool=tool,
                args=cast("JsonObject", clean_json(args)),
                total_usage=total(scope.tree.spent),
            )
            ended = await foreign.run(
                _call(approver, question), scope.phase, name="approver", on_abandoned=scope.left_behind
            )
        finally:
            self._next()
        if ended.how == "returned" and isinstance(ended.value, Decision):
            return ended.value
        log.warning("the approver failed, so the call is denied: %r", ended.error or ended.value)
        what = (
            f"it raised {type(ended.error).__name__}: {ended.error}"
            if ended.error
            else "it returned no decision"
        )
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


async def _call(approver: Approver, question: ApprovalRequest) -> object:
    return await approver(question)
