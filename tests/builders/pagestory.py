"""Trees to look at on the page: one with everything, a hostile one, a large one, a long one; and a server in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from commandbench import Bench
from msgspec.structs import replace

import remit.tools
from remit import Agent, Limits, tool
from remit.observe.page import app
from remit.observe.page.hosting import Starter
from remit.observe.page.site import Page
from remit.testing import ScriptedModel, call, calls, fail, say
from remit.types.events import CallEnded, CallStarted, Event, ReplyReceived, RunEnded, RunStarted, TurnStarted
from remit.types.limits import Usage
from remit.types.ports import Price

TOKEN = "a-token-that-only-the-tests-know"
PRICE = Price(input=3.0, output=15.0)
USED = Usage(requests=1, input_tokens=240, output_tokens=60, cache_read_tokens=170)

REPORT = """## Findings

The change is **sound**, with two remarks:

1. `parse()` accepts an empty list.
2. See the [manual](https://example.com/manual) for the *expected* order.

| file | lines | state |
|---|--:|---|
| cli/x.py | 120 | fine |
| cli/y.py | 48 | one remark |

```python
def parse(items: list[str]) -> int:
    return len(items)  # never negative
```
"""


@tool(tier="observe")
def look(path: str) -> str:
    """Look at a file."""
    return f"{path}:\n1  import sys\n2  sys.exit(0)"


@tool(tier="observe")
def broken(path: str) -> str:
    """Fail."""
    raise ValueError(f"{path} does not exist")


def cast(scribe_edits: bool = True) -> Agent:
    explorer = Agent("explorer", description="Explores.", tools=[look, broken])
    reviewer = Agent("reviewer", description="Reviews.", tools=[look], subagents=[explorer])
    scribe = Agent("scribe", description="Writes.", tools=remit.tools.all() if scribe_edits else [look])
    return Agent("lead", description="Leads.", subagents=[explorer, reviewer, scribe], tools=[look])


def story(pace: float = 0.0) -> ScriptedModel:
    """A lead with explorers, one of which fails, a reviewer with a child, and a scribe that must ask."""
    parts = [
        call("task", agent="explorer", prompt=f"Explore {what}", description=what) for what in ("cli", "docs")
    ]
    parts += [
        call("task", agent="reviewer", prompt="Review the change in cli/x.py", description="review"),
        call("task", agent="scribe", prompt="Note the change in CHANGELOG.md", description="changelog"),
    ]
    edit = call(
        "edit",
        path="CHANGELOG.md",
        old_text="# Changes\n",
        new_text="# Changes\n\n- Fix the order.\n",
        usage=USED,
    )
    return ScriptedModel(
        {
            "lead": [
                call("look", path="README.md", said="I look first.", usage=USED, delay=pace),
                calls(*parts, said="Four parts, at the same time.", usage=USED, delay=pace),
                say(REPORT, usage=USED, delay=pace, thinking="All four reported. I sum up.", chunks=8),
            ],
            "explorer": lambda request: (
                fail("the provider is overloaded", retryable=False)
                if "docs" in request.messages[0].text and len(request.messages) > 2
                else calls(call("look", path="a.py"), call("broken", path="b.py"), usage=USED, delay=pace)
                if len(request.messages) < 2
                else say("Two files; `b.py` is missing.", usage=USED, delay=pace)
            ),
            "reviewer": [
                call(
                    "task",
                    agent="explorer",
                    prompt="Explore cli/x.py",
                    description="x.py",
                    usage=USED,
                    delay=pace,
                ),
                call("look", path="cli/x.py", usage=USED, delay=pace),
                say("One remark.", usage=USED, delay=pace),
            ],
            "scribe": [
                call("read", path="CHANGELOG.md", usage=USED),
                edit,
                say("Noted.", usage=USED, delay=pace),
            ],
        },
        name="sonnet",
        price=PRICE,
        streams=True,
    )


LIMITS = Limits(usd=20.0, tokens=2_000_000, seconds=600, requests=80)


def write_changelog() -> None:
    """The file that the scribe edits, in the current folder."""
    Path("CHANGELOG.md").write_text("# Changes\n", encoding="utf-8")


EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def hostile() -> tuple[Agent, ScriptedModel, str]:
    """Markup and scripts in the task, in replies, in arguments and in results."""

    @tool(tier="observe")
    def echo(text: str) -> str:
        """Give the text back."""
        return f"{text}\n{EVIL}\n\x1b[31mred\u202eesrever"

    agent = Agent("mallory", description=EVIL, instructions=EVIL, tools=[echo])
    text = (
        f"# {EVIL}\n\n{EVIL}\n\n[click](javascript:window.hacked=1) [data](data:text/html,<script>1</script>)\n\n"
        f"![pixel](http://127.0.0.1:9/pixel.png)\n\n```html\n{EVIL}\n```\n\n| {EVIL} |\n|---|\n| {EVIL} |\n"
    )
    model = ScriptedModel(
        {"mallory": [call("echo", text=EVIL, said=text), say(text, thinking=EVIL)]}, name=EVIL[:30]
    )
    return agent, model, f"Say {EVIL}"


# --- Large journals -------------------------------------------------------------------------------


def enlarge(bench: Bench, root: str, events: Callable[[list[Event]], Sequence[Event]]) -> None:
    """Replace the events of a recorded tree by others that are made from them."""
    asyncio.run(bench._rewrite(root, lambda history: list(events(history))))


def wide_tree(children: int) -> Callable[[list[Event]], Sequence[Event]]:
    """A tree of `children` runs in three levels, made of the events of one small tree."""

    def make(history: list[Event]) -> list[Event]:
        root = history[0].run
        child = [event for event in history if event.run == f"{root}.1"]
        start, end = history[0].at, history[0].at + children / 10
        found: list[Event] = [event for event in history if event.run == root and event.seq < child[0].seq]
        made = 0
        for branch in range(1, children):
            if made >= children:
                break
            ids = [f"{root}.{branch}", *(f"{root}.{branch}.{n}" for n in range(1, 25))]
            for run in ids:
                if made >= children:
                    break
                made += 1
                depth = run.count(".")
                for step, event in enumerate(child):
                    where = replace(
                        event.where,
                        run=run,
                        parent=run.rpartition(".")[0],
                        depth=depth,
                        path=("lead", *["scout"] * depth),
                    )
                    changed: dict[str, object] = {"where": where, "at": start + made / 10 + step * 0.2}
                    if isinstance(event, RunEnded):
                        changed["outcome"] = replace(event.outcome, run_id=run)
                    if isinstance(event, RunStarted):
                        changed["label"] = f"part {made}"
                    found.append(replace(event, **changed))
        last = [event for event in history if event.run == root and isinstance(event, RunEnded)]
        found += [replace(event, at=end + 1) for event in last]
        return [replace(event, seq=n) for n, event in enumerate(found, 1)]

    return make


def long_run(events: int) -> Callable[[list[Event]], Sequence[Event]]:
    """One run with so many events: turns with one call each."""

    def make(history: list[Event]) -> list[Event]:
        kinds = (TurnStarted, ReplyReceived, CallStarted, CallEnded)
        turn = [next(event for event in history if isinstance(event, kind)) for kind in kinds]
        found: list[Event] = [history[0]]
        for number in range(1, events // 4 + 1):
            for event in turn:
                changed: dict[str, object] = {"at": history[0].at + number * 0.5}
                if isinstance(event, (TurnStarted, ReplyReceived)):
                    changed["turn"] = number
                if isinstance(event, ReplyReceived):
                    ids = tuple(replace(one, id=f"c{number}") for one in event.reply.calls[:1])
                    changed["reply"] = replace(event.reply, calls=ids, text=f"Turn {number}: I look again.")
                if isinstance(event, (CallStarted, CallEnded)):
                    changed["call"] = f"c{number}"
                found.append(replace(event, **changed))
        found.append(replace(history[-1], at=history[0].at + events))
        return [replace(event, seq=n) for n, event in enumerate(found, 1)]

    return make


# --- A server -------------------------------------------------------------------------------------


class Served:
    """A server in a thread."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.port = port
        self.url = f"http://127.0.0.1:{port}/?token={TOKEN}"


@contextmanager
def serving(url: str, starter: Starter | None = None, *, port: int = 0) -> Iterator[Served]:
    """The page on a port of its own, with its own event loop, as `remit serve` runs it."""
    ready = threading.Event()
    found: list[Served] = []
    stop: list[Callable[[], object]] = []

    async def work() -> None:
        page = app(url, token=TOKEN, hosts={"127.0.0.1"}, starter=starter, place="the tests' journal")
        config = uvicorn.Config(
            page, host="127.0.0.1", port=port, lifespan="on", log_config=None, access_log=False, ws="none"
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()

        def end() -> None:
            page.end_streams()
            server.should_exit = True

        stop.append(lambda: loop.call_soon_threadsafe(end))
        found.append(Served(page, server.servers[0].sockets[0].getsockname()[1]))
        ready.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield found[0]
    finally:
        stop[0]()
        thread.join(20)


def wait_until(true: Callable[[], object], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def aside(work: Callable[[], object]) -> None:
    """Do something in a thread: playwright's own event loop runs in the thread of the tests."""
    failed: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join(60)
    if failed:
        raise failed[0]
