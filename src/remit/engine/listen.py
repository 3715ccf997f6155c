"""Commands from other processes: heard through the store, obeyed once, recorded as events."""

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
"""How long a store that did not wait for a command is left alone."""

AGAIN_S = 5.0
"""How long a store that failed to say what was posted is left alone."""


async def listen(tree: TreeContext, after: int | None) -> None:
    """Obey what is posted above a number, until cancelled. A store that fails is asked again; that is all it can break.

    None: what was posted while nobody ran the tree is not known yet, and the first answer is taken for it.
    """
    complained = False
    while True:
        last = after
        try:
            posted = await tree.journal.commands(after or 0, wait=after is not None)
            if after is None:
                after, posted = catch_up(tree, posted), []
            for one in posted:
                after = one.number
                obey(tree, one.command)
        except Exception as error:  # noqa: BLE001 - a broken store, or a broken command, never breaks a run
            if not complained:
                log.warning("commands from other processes cannot be heard: %s", error)
            complained = True
            await asyncio.sleep(AGAIN_S)
            continue
        if after == last:
            await asyncio.sleep(LEAST_WAIT_S)


def catch_up(tree: TreeContext, posted: Sequence[Posted]) -> int:
    """Obey what was posted while nobody ran the tree, and return the last number.

    A cancel is passed over: whoever resumed the tree afterwards wants it to run.
    """
    for one in posted:
        if not isinstance(one.command, Cancel):
            obey(tree, one.command)
    return posted[-1].number if posted else 0


def obey(tree: TreeContext, command: AnyCommand) -> None:
    """Do what was asked, unless that has been done. Raises nothing for what cannot be done any more."""
    if command.id in tree.past.commands:
        return
    tree.past.commands.add(command.id)
    if isinstance(command, Answer):
        decision = Decision(command.allowed, command.scope, text.clean(command.reason))
        tree.desk.answer(command.request, decision, command.id)
        return
    node = tree.runs.get(command.run)
    if isinstance(command, Cancel) and node is not None:
        node.life.cancel(text.clean(command.by) or "another process", command.reason, command.id)
    elif isinstance(command, Send):
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
        root.warn(f"A message to {text.clean(command.run)[:100]!r} came too late to join a turn.")
