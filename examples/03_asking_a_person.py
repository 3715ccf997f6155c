"""Example 3: a tool that changes things needs a person's approval, at any depth of the tree.

The model and the person are scripts: the approver below answers by a rule, so that the example runs unattended.
A real approver shows the request to a person and waits; timeouts pause meanwhile.

    .venv/bin/python examples/03_asking_a_person.py
"""

import asyncio

from remit import (
    Agent,
    ApprovalRequest,
    Approver,
    Event,
    Request,
    ToolContext,
    ToolMessage,
    allow,
    deny,
    start,
    tool,
)
from remit.events import ApprovalAnswered, ApprovalRequested, CallEnded, RunEnded, RunStarted
from remit.testing import ScriptedModel, call, say

published: list[str] = []


@tool  # Without a tier, a tool may change things, so it needs approval.
async def publish(page: str, ctx: ToolContext) -> str:
    """Put a page on the web site."""
    published.append(page)
    return f"{page} is public (by {ctx.path[-1]})"


# A grandchild publishes: lead › editor › reviewer.
reviewer = Agent("reviewer", description="Reads a page and publishes it.", tools=[publish])
editor = Agent("editor", description="Gets pages ready.", subagents=[reviewer])
lead = Agent("lead", subagents=[editor])


def pass_on(request: Request):
    """Answers with the results in its conversation."""
    return say("\n".join(m.content for m in request.messages if isinstance(m, ToolMessage)))


model = ScriptedModel(
    {
        "lead": [call("task", agent="editor", prompt="Bring out the news"), pass_on],
        "editor": [call("task", agent="reviewer", prompt="Check and publish"), pass_on],
        "reviewer": [
            call("publish", page="news.html"),
            call("publish", page="salaries.html"),
            pass_on,
        ],
    }
)


async def ask(request: ApprovalRequest):
    """Prints the request, waits for a moment, and answers."""
    who = " › ".join((*request.path, request.tool))
    print(f"\n  Approval request from {who}")
    print(f"    arguments {request.args}; spent so far: {request.total_usage.requests} model calls")
    await asyncio.sleep(0.5)
    if request.args["page"] == "salaries.html":
        print("    the person says no\n")
        return deny("that page is private")
    print("    the person says yes\n")
    return allow()


def show(event: Event) -> None:
    """Print events, indented by depth."""
    if isinstance(event, RunStarted):
        words = f"{event.agent} starts: {event.task.text}"
    elif isinstance(event, ApprovalRequested):
        words = f"{event.agent} waits for approval: {event.tool}"
    elif isinstance(event, ApprovalAnswered):
        words = f"{event.agent}: {'approved' if event.allowed else f'denied: {event.reason}'}"
    elif isinstance(event, CallEnded) and event.tool == "publish":
        words = f"publish {'done' if event.success else 'not done'}"
    elif isinstance(event, RunEnded):
        words = f"{event.agent} {event.outcome.status}"
    else:
        return
    print("  " * event.depth + words, flush=True)


async def bring_out(approver: Approver | None) -> None:
    """Run the tree, print its events, and print the result."""
    published.clear()
    async with start(lead, "Bring out the news", model=model, approver=approver) as tree:
        async for event in tree.events():
            show(event)
        outcome = await tree.outcome()
    print("\nThe lead answers:\n  " + outcome.text.replace("\n", "\n  "))
    print(f"Published: {', '.join(published) or 'nothing'}")


async def main() -> None:
    print("The model and the person are scripts.\n")
    await bring_out(ask)
    print("\nThe same without an approver: each call is denied, and every run continues.\n")
    await bring_out(None)
    print("\nTry next\n  .venv/bin/python examples/04_your_own_model.py")


if __name__ == "__main__":
    asyncio.run(main())
