"""Commands from other processes: read from the store, executed once, recorded as events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import remit.types.text as text
from remit.engine.tree.context import Sent, TreeContext
from remit.engine.tree.node import Node
from remit.tools.policy import Decision
from remit.types.commands import Answer, AnyCommand, Cancel, Send
from remit.types.messages import user
from remit.types.ports import Posted

log = logging.getLogger("remit")

LEAST_WAIT_S = 0.2
"""The pause after a store returned from `commands(wait=True)` without a command."""

AGAIN_S = 5.0
"""The pause after a store failed to return the commands."""


async def listen(tree: TreeContext, after: int | None, *, cancels: bool = False) -> None:
    """Execute the commands numbered above `after` until cancelled. If the store fails, it is asked again.

    `after` is None if the commands sent while no process ran the tree are not known yet: the first answer has them.
    """
    complained = False
    while True:
        last = after
        try:
            posted = await tree.journal.commands(after or 0, wait=after is not None)
            if after is None:
                after, posted = catch_up(tree, posted, cancels=cancels), []
            for one in posted:
                after = one.number
                obey(tree, one.command)
        except Exception as error:  # noqa: BLE001 - a broken store, or a broken command, never breaks a run
            if not complained:
                log.warning("cannot read commands from other processes; trying again: %s", error)
            complained = True
            await asyncio.sleep(AGAIN_S)
            continue
        if after == last:
            await asyncio.sleep(LEAST_WAIT_S)


def catch_up(tree: TreeContext, posted: Sequence[Posted], *, cancels: bool) -> int:
    """Execute the commands sent while no process ran the tree, and return the number of the last one.

    `cancels` is False if the tree had ended: a cancel was meant for the time before that end.
    """
    for one in posted:
        if cancels or not isinstance(one.command, Cancel):
            obey(tree, one.command)
    return posted[-1].number if posted else 0


def obey(tree: TreeContext, command: AnyCommand) -> None:
    """Execute a command once. A command that can no longer have an effect is ignored."""
    if command.id in tree.past.commands:
        return
    tree.past.commands.add(command.id)
    if isinstance(command, Answer):
        decision = Decision(command.allowed, command.scope, text.clean(command.reason))
        tree.desk.answer(command.request, decision, command.id)
        return
    node = tree.runs.get(command.run)
    if isinstance(command, Cancel):
        why = text.clean(command.by) or "another process", command.reason, command.id
        if node is not None:
            node.life.cancel(*why)
        elif command.run in tree.waiting:
            tree.doomed[command.run] = why
    else:
        _send(tree, node, command)


def _send(tree: TreeContext, node: Node | None, command: Send) -> None:
    sent = Sent(user(text.clean(command.text)), command.id)
    if node is not None and node.hears:
        node.inbox.append(sent)
        return
    root = tree.runs.get(tree.root)
    if node is None and command.run in tree.waiting:
        # The run finds the message when it is resumed.
        tree.waiting[command.run].append(sent)
    elif root is not None:
        root.warn(f"A message to {text.clean(command.run)[:100]!r} arrived too late to join a turn.")
