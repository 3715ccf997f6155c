"""Asking a person: one request at a time, from any depth, without holding up anybody else.

While a request waits, the clocks of the asker and of its ancestors stand still and the asker does not
work. With nobody to ask, the answer is no.
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
from remit.tools.policy import ApprovalRequest, Decision, allow, deny
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
"""How long an approver is waited for when another process has answered in its place."""

Approver = Callable[[ApprovalRequest], Awaitable[Decision] | Decision]


class Desk:
    """The queue in front of the root's approver, and what it has allowed for the whole tree."""

    _warned: frozenset[str] = frozenset()
    """Tools of which it was said that nobody can be asked about them."""

    def __init__(self, approver: Approver | None, past: Tree | None = None) -> None:
        self._approver = approver
        self._expected = _asked_before(past) if past is not None else frozenset[str]()
        """Requests from before the tree was resumed, which are asked again under the same ids."""
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._count = past.asked if past is not None else 0
        self._granted: set[object] = set()
        self._open: dict[str, _Question] = {}
        self._answers: dict[str, tuple[Decision, str]] = {}
        """Answers from other processes to what has not been asked again yet."""

    def answer(self, request: str, decision: Decision, command: str) -> None:
        """An answer from another process: the first one counts, whoever gives it."""
        question = self._open.get(request)
        if question is None:
            # An answer to what nobody asked must not allow what comes to have that id.
            if request in self._expected:
                self._answers.setdefault(request, (decision, command))
        elif question.answer is None:
            question.answer = (decision, command)
            # Whoever else is being asked need not answer any more.
            question.phase.grace_s = LET_GO_S
            question.phase.stop()

    def grant(self, tool: Tool, reasons: Iterable[str]) -> None:
        """Allow a tool for the whole tree, as somebody did before the tree was resumed."""
        self._granted |= what(tool, reasons)

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
        """The person's answer. Raises Stopped when the run is stopped while it waits.

        `request` is the id under which it was asked before the tree was resumed, `reasons` why it is
        asked.
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
        """Wait for the answer and record it, also if there is none because the run was stopped. Raises Stopped."""
        request = asked.request.id
        self._open[request] = asked
        asked.answer = self._answers.pop(request, None)
        decision = deny("approval needed, but run() has no approver=")
        stopped = False
        try:
            if asked.answer is None and self._approver is None:
                self._warn(node, tool, asked.reasons)
            elif asked.answer is None and self._approver is not None:
                decision, stopped = deny("the run was stopped before there was an answer"), True
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
        """Tell the author of the program, once for each tool: the model reads the denial, the author may not."""
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
        wanted = what(tool, reasons)
        return len(wanted) == len(reasons) and wanted <= (self._granted | node.grants)

    def _answered(
        self, node: Node, asked: _Question, call: str, tool: Tool, decision: Decision, *, stopped: bool
    ) -> None:
        if decision.allowed and decision.scope == "run":
            node.grants |= what(tool, asked.reasons)
        if decision.allowed and decision.scope == "tree":
            self._granted |= what(tool, asked.reasons)
        node.emit(
            ApprovalAnswered(
                *node.stamp(),
                request=asked.request.id,
                call=call,
                allowed=decision.allowed,
                scope=decision.scope,
                reason=decision.reason,
                stopped=stopped,
                # An answer that was not acted on is given again when the run is resumed.
                command=asked.answer[1] if asked.answer is not None and not stopped else "",
            )
        )

    async def _waited(self, approver: Approver, node: Node, tool: Tool, asked: _Question) -> Decision:
        lineage = tuple(node.lineage())
        for run in lineage:
            run.life.deadline.pause()
        # A delegating call is no work of the run's own; any other one is not while it waits.
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
        """Hand the desk to the next in line; it stays busy unless there is none."""
        if self._queue:
            wake(self._queue.popleft())
        else:
            self._busy = False


def _asked_before(past: Tree) -> frozenset[str]:
    calls = [c for record in past.runs.values() for c in record.last_turn()]
    return frozenset(c.request for c in calls if c.request and c.answer is None)


def _tidy(answer: object) -> Decision | None:
    """An answer as it can be recorded; None when it is none."""
    if not isinstance(answer, Decision) or answer.scope not in ("once", "run", "tree"):
        return None
    return Decision(answer.allowed is True, answer.scope, clean(safe_str(answer.reason or "")))


class _Question:
    """A request that waits. Its phase ends with the run's, or when somebody has answered."""

    def __init__(self, request: ApprovalRequest, node: Node, reasons: tuple[str, ...]) -> None:
        self.request = request
        self.reasons = reasons
        self.answer: tuple[Decision, str] | None = None
        """From another process, with the command it came by."""
        self.phase = SubPhase(node.life.phase)

    def close(self) -> None:
        self.phase.leave()


def what(tool: Tool, reasons: Iterable[str]) -> set[object]:
    """What an allowance is about: this very tool, as far as it is asked about for these reasons.

    Another agent's may only share its name; who allows commands has not allowed those with a rule of their own; and
    what no rule allows besides, what cannot be told apart, or what changes settings, is asked about every time.
    """
    about = tool.name if tool.delegates else tool
    return {(about, reason) for reason in reasons if reason not in (NO_RULE, SETTINGS, UNCLEAR)}


async def _answer(approver: Approver, question: ApprovalRequest, node: Node, phase: Phase) -> foreign.Ended:
    """An async approver in a task; a plain one in a thread, where it may wait for a key to be pressed."""
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
