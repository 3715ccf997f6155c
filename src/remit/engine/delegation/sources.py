"""How a run gets the tools of its sources: borrowed when the run begins, given back when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from remit.engine.delegation.delegate_tools import wider_kit
from remit.engine.run.state import Run
from remit.engine.run.state_restored import restore_grants
from remit.engine.tree.bounds import Kit
from remit.engine.tree.context import Sent
from remit.tools.source import Choice, ToolSource
from remit.tools.tool import Tier, Tool
from remit.types.events import ToolsOpened
from remit.types.messages import user

MISSING = "[remit] Some of your tools are missing. {why} Do not invent their results."

MOST_TOLD = 5


async def borrow_tools(run: Run) -> None:
    """Give a run the tools of its sources. Tools that are missing are named to the model. Raises Stopped."""
    node, found, missing = run.node, list[Tool](), list[str]()
    for source in run.agent.sources:
        choice = await _choose(run, source)
        taken = set(run.kit.tools) | {t.name for t in found}
        new, twice = _apart(choice.tools, taken)
        trouble = "; ".join(filter(None, [choice.trouble.rstrip("."), twice]))
        names = tuple(t.name for t in new)
        node.emit(ToolsOpened(*node.stamp(), source=source.name, tools=names, trouble=trouble))
        if trouble:
            missing.append(f"{source.name}: {trouble}.")
            node.warn(f"Tools are missing. {source.name}: {trouble}.")
        found += new
    if found:
        _widen(run, found)
    if missing:
        node.inbox.append(Sent(user(MISSING.format(why=" ".join(missing))), origin="runtime"))


async def _choose(run: Run, source: ToolSource) -> Choice:
    """The tools that a run gets from a source: in a read-only sandbox, only tools with tier OBSERVE. Raises Stopped."""
    node = run.node
    # A source's tools, and whatever is opened for them, run outside the sandbox.
    read_only = node.bounds.sandbox.files == "read-only"
    if read_only and not source.observes:
        return Choice((), "not opened: its tools may change things, and the sandbox is read-only")
    node.means.borrowed.append(source)
    choice = await node.tree.sources.borrow(source, node.life.phase)
    withheld = [tool.name for tool in choice.tools if read_only and tool.tier is not Tier.OBSERVE]
    if not withheld:
        return choice
    why = f"the sandbox is read-only, and these tools may change things: {_named(withheld)}"
    kept = [tool for tool in choice.tools if tool.name not in withheld]
    return Choice(kept, "; ".join(filter(None, [choice.trouble.rstrip("."), why])))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
    return ", ".join(names[:MOST_TOLD]) + more


def _apart(tools: Sequence[Tool], taken: set[str]) -> tuple[list[Tool], str]:
    """The tools with unused names, and a note about the others: providers refuse requests with duplicate names."""
    new: dict[str, Tool] = {}
    twice: list[str] = []
    for tool in tools:
        if tool.name in taken or tool.name in new:
            twice.append(tool.name)
        else:
            new[tool.name] = tool
    return list(new.values()), f"names already used by other tools: {_named(twice)}" if twice else ""


def _widen(run: Run, found: Sequence[Tool]) -> None:
    tree, agent, may_delegate = run.node.tree, run.agent, run.node.bounds.may_delegate
    key, made = (agent, may_delegate, *found), tree.sources.made
    if key not in made:
        made[key] = wider_kit(agent, found, may_delegate=may_delegate)
    kit = cast(Kit, made[key])
    more = kit.tokens - run.kit.tokens
    run.kit = kit
    run.talk.base += more
    run.talk.tokens += more
    restore_grants(run, tree)
