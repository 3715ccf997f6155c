"""Approvals: one request at a time, from any depth, without delaying other runs.

While a request waits, the timeouts of its run and of the run's ancestors pause, and the run gives up its slot. Without
an approver, the call is denied.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, cast

import remit.tasks.guest as foreign
from remit.tasks.cancel import Phase, Stopped, SubPhase, wake
from remit.tools.policy import ApprovalRequest, Decision, allow, deny, tidy_args
from remit.tools.policy_rules import NO_RULE, SETTINGS, UNCLEAR
from remit.types.events import ApprovalAnswered, ApprovalRequested
from remit.types.limits import total
from remit.types.text import clean, clean_json, describe_error, safe_repr, safe_str, shorten

if TYPE_CHECKING:
    from remit.engine.tree.node import Node
    from remit.history.records import Tree
    from remit.tools.tool import Tool
    from remit.types.messages import JsonObject

log = logging.getLogger("remit")

LET_GO_S = 0.2
"""How long to wait for an approver after another process has answered in its place."""

Approver = Callable[[ApprovalRequest], Awaitable[Decision] | Decision]


class Desk:
    """The queue of requests to the caller's approver, and the approvals that hold for the whole tree."""

    _warned: frozenset[str] = frozenset()
    """Tools with a warning that no approver was given."""

    def __init__(self, approver: Approver | None, past: Tree | None = None) -> None:
        self._approver = approver
        self._expected = _asked_before(past) if past is not None else frozenset[str]()
        """Requests from before the tree was resumed; they are asked again under the same ids."""
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._count = past.asked if past is not None else 0
        self._granted: set[object] = set()
        self._open: dict[str, _Question] = {}
        self._answers: dict[str, tuple[Decision, str]] = {}
        """Answers from other processes to requests that have not been asked again yet."""

    def answer(self, request: str, decision: Decision, command: str) -> None:
        """Accept an answer from another process. Only the first answer to a request counts."""
        question = self._open.get(request)
        if question is None:
            # Accept answers only to known ids: an early answer must not approve a later request that gets the id.
            if request in self._expected:
                self._answers.setdefault(request, (decision, command))
        elif question.answer is None:
            question.answer = (decision, command)
            # The approver's answer is not needed any more.
            question.phase.grace_s = LET_GO_S
            question.phase.stop()

    def grant(self, tool: Tool, reasons: Iterable[str]) -> None:
        """Allow a tool for the whole tree, as recorded before the tree was resumed."""
        self._granted |= grants_for(tool, reasons)

    async def ask(
        self,
        node: Node,
        *,
        call: str,
        tool: Tool,
        context: str,
        args: JsonObject,
        request: str = "",
        preview: str = "",
        reasons: tuple[str, ...] = ("",),
    ) -> Decision:
        """The decision. Raises Stopped if the run is stopped while it waits.

        `request` is the id of a request from before a resume; `reasons` are the rules that ask.
        """
        if self._is_granted(node, tool, reasons):
            return allow()
        if not request:
            self._count += 1
            request = f"{node.tree.root}/approval{self._count}"
        question = ApprovalRequest(
            id=request,
            path=node.path,
            agent=node.agent,
            task=node.task,
            tool=tool.name,
            args=cast("JsonObject", clean_json(args)),
            total_usage=total(node.tree.spent),
            preview=preview,
            rules=tuple(filter(None, reasons)),
        )
        node.emit(
            ApprovalRequested(
                *node.stamp(),
                request=request,
                call=call,
                tool=tool.name,
                context=context,
                preview=preview,
                reasons=reasons,
            )
        )
        return await self._decided(node, call, tool, _Question(question, node, reasons))

    async def _decided(self, node: Node, call: str, tool: Tool, asked: _Question) -> Decision:
        """Wait for the answer and record it; record a denial if the run is stopped first. Raises Stopped."""
        request = asked.request.id
        self._open[request] = asked
        asked.answer = self._answers.pop(request, None)
        decision = deny("approval needed, but run() has no approver=")
        stopped = False
        try:
            if asked.answer is None and self._approver is None:
                self._warn(node, tool, asked.reasons)
            elif asked.answer is None and self._approver is not None:
                decision, stopped = deny("the run was stopped before an answer came"), True
                decision = await self._waited(self._approver, node, tool, asked)
                stopped = False
        finally:
            asked.close()
            del self._open[request]
            if asked.answer is not None and not stopped:
                decision = asked.answer[0]
            self._answered(node, asked, call, tool, decision, stopped=stopped)
        return decision

    def _warn(self, node: Node, tool: Tool, reasons: tuple[str, ...]) -> None:
        """Warn the author of the program, once per tool: the model reads the denial, but the author may not."""
        if tool.name in self._warned:
            return
        self._warned |= {tool.name}
        rule = next(filter(None, reasons), "")
        why = f"the rule {rule!r} asks for approval" if rule else "its tier is confirm"
        reads = "" if rule else ", or give the tool tier='observe' if it only reads"
        text = (
            f"{tool.name} was denied: {why}, but run() has no approver=. Pass approver=..., or a policy such as"
            f" ['allow {tool.name}']{reads}."
        )
        log.warning(text)
        node.warn_root_too(text)

    def _is_granted(self, node: Node, tool: Tool, reasons: tuple[str, ...]) -> bool:
        wanted = grants_for(tool, reasons)
        return len(wanted) == len(reasons) and wanted <= (self._granted | node.grants)

    def _answered(
        self, node: Node, asked: _Question, call: str, tool: Tool, decision: Decision, *, stopped: bool
    ) -> None:
        if decision.allowed and decision.scope == "run":
            node.grants |= grants_for(tool, asked.reasons)
        if decision.allowed and decision.scope == "tree":
            self._granted |= grants_for(tool, asked.reasons)
        node.emit(
            ApprovalAnswered(
                *node.stamp(),
                request=asked.request.id,
                call=call,
                allowed=decision.allowed,
                scope=decision.scope,
                reason=decision.reason,
                args=decision.args,
                stopped=stopped,
                # An answer without effect is given again when the run is resumed.
                command=asked.answer[1] if asked.answer is not None and not stopped else "",
            )
        )

    async def _waited(self, approver: Approver, node: Node, tool: Tool, asked: _Question) -> Decision:
        lineage = tuple(node.lineage())
        for run in lineage:
            run.life.deadline.pause()
        # A delegating call does not count as work of its run; any other call stops counting while it waits.
        works, queue = not tool.delegates, None if tool.delegates else node.means.seat.queue
        if works:
            node.means.seat.leave()
        if queue is not None:
            queue.leave()
        try:
            decision = await self._in_turn(approver, node, tool, asked)
        except BaseException:
            if works:
                node.means.seat.count()
            if queue is not None:
                queue.count()
            raise
        finally:
            for run in lineage:
                run.life.deadline.resume()
        if works:
            await node.means.seat.enter(node.life.phase)
        if queue is not None:
            await queue.come_back(node.life.phase)
        return decision

    async def _in_turn(self, approver: Approver, node: Node, tool: Tool, asked: _Question) -> Decision:
        try:
            await self._wait_for_turn(asked.phase)
            try:
                if self._is_granted(node, tool, asked.reasons):
                    return allow()
                ended = await _answer(approver, asked.request, node, asked.phase)
            finally:
                self._next()
        except Stopped:
            node.life.phase.check()
            if asked.answer is None:
                raise
            return asked.answer[0]
        decision = _tidy(ended.value)
        if ended.how == "returned" and decision is not None:
            return decision
        if ended.error:
            trouble = f"the approver raised {describe_error(ended.error).rstrip('.')}"
        else:
            trouble = (
                f"the approver must return allow() or deny(), not {shorten(safe_repr(ended.value), 60, 57)}"
            )
        log.warning("%s was denied: %s", tool.name, trouble, exc_info=ended.error)
        node.warn_root_too(f"{tool.name} was denied: {trouble}.")
        return deny(trouble)

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
        """Let the next request in the queue be asked, if there is one."""
        if self._queue:
            wake(self._queue.popleft())
        else:
            self._busy = False


def _asked_before(past: Tree) -> frozenset[str]:
    calls = [c for record in past.runs.values() for c in record.last_turn()]
    return frozenset(c.request for c in calls if c.request and c.answer is None)


def _tidy(answer: object) -> Decision | None:
    """A decision that can be recorded; None if the answer is not a valid decision."""
    if not isinstance(answer, Decision) or answer.scope not in ("once", "run", "tree"):
        return None
    args = None if answer.args is None else tidy_args(answer.args)
    if args is None and answer.args is not None:
        return None
    return Decision(answer.allowed is True, answer.scope, clean(safe_str(answer.reason or "")), args)


class _Question:
    """A request that waits. Its phase ends with the run's phase, or when another process answers."""

    def __init__(self, request: ApprovalRequest, node: Node, reasons: tuple[str, ...]) -> None:
        self.request = request
        self.reasons = reasons
        self.answer: tuple[Decision, str] | None = None
        """An answer from another process, with the id of its command."""
        self.phase = SubPhase(node.life.phase)

    def close(self) -> None:
        self.phase.leave()


def grants_for(tool: Tool, reasons: Iterable[str]) -> set[object]:
    """What an approval with scope "run" or "tree" covers: this tool, for each of these reasons.

    A tool of the same name on another agent is not covered, nor is the same tool under another rule. Three reasons are
    never covered, so such calls are asked about every time: no rule allows the call, a command cannot be parsed, or the
    call changes settings.
    """
    about = tool.name if tool.delegates else tool
    return {(about, reason) for reason in reasons if reason not in (NO_RULE, SETTINGS, UNCLEAR)}


async def _answer(approver: Approver, question: ApprovalRequest, node: Node, phase: Phase) -> foreign.Ended:
    """Run an async approver in a task, and a plain one in a thread, because it may block."""
    name, lost = "the approver", node.left_behind
    if foreign.is_async(approver):
        return await foreign.run(_call(approver, question), phase, name=name, on_abandoned=lost)
    ended = await foreign.run_in_thread(
        lambda: approver(question), phase, name=name, urgent=True, on_abandoned=lost
    )
    if not inspect.isawaitable(ended.value):
        return ended
    return await foreign.run(ended.value, phase, name=name, on_abandoned=lost)


async def _call(approver: Approver, question: ApprovalRequest) -> object:
    answer = approver(question)
    return await answer if inspect.isawaitable(answer) else answer
