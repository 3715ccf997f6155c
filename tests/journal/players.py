"""The agents and tools of the kill tests, and a model that sends requests over HTTP.

Every tool writes a line to a file outside the journal, which records what really happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remit import (
    Agent,
    AssistantMessage,
    Limits,
    ModelError,
    ProgramContext,
    Reply,
    Request,
    ToolContext,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from remit.types.messages import Message
from remit.types.ports import Emit

RESULT_CHARS = 200
OUTSIDE = "outside.txt"


class Life:
    """One process of a story: its folder and the number of its life."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number

    def note(self, what: str) -> None:
        """Write one whole line, without buffering."""
        file = os.open(self.folder / OUTSIDE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{what} {self.number}\n".encode())
        os.close(file)


def _life(ctx: ToolContext) -> Life:
    assert isinstance(ctx.deps, Life)
    return ctx.deps


@tool(tier="observe")
def look(what: str, ctx: ToolContext) -> str:
    """Look at something."""
    _life(ctx).note(f"look {what}")
    return f"{what} is there"


@tool(tier="confirm")
async def write(what: str, ctx: ToolContext) -> str:
    """Write something down."""
    _life(ctx).note(f"write {what}")
    return f"{what} is written"


@tool(tier="confirm")
def publish(what: str, ctx: ToolContext) -> str:
    """Let everybody see something."""
    _life(ctx).note(f"publish {what}")
    return f"{what} is published"


@tool(tier="observe")
async def pause(step: int) -> str:
    """Wait a little."""
    await asyncio.sleep(0.02)
    return f"step {step}"


leaf = Agent("leaf", description="Looks.", tools=[look])
writer = Agent("writer", description="Publishes.", tools=[publish], summary="always")
middle = Agent("middle", description="Writes.", tools=[write], subagents=[leaf, writer])
scout = Agent("scout", description="Looks once.", tools=[look], limits=Limits(turns=1))
lead = Agent("lead", tools=[look], subagents=[middle, scout], limits=Limits(result_chars=RESULT_CHARS))
asker = Agent("asker", tools=[publish, look])
walker = Agent("walker", tools=[pause, write], limits=Limits(turns=1000))


@tool(tier="observe")
async def spread(ctx: ToolContext) -> str:
    """Look in two places, each with a child."""
    return " ".join(one.text for one in await ctx.map(leaf, ["Look left.", "Look right."]))


mapper = Agent("mapper", description="Spreads.", tools=[spread])


async def code(ctx: ProgramContext) -> str:
    """A step, a map, a child whose tool delegates, and a step."""
    life = ctx.deps
    assert isinstance(life, Life)

    def note(what: str) -> str:
        life.note(f"step {what}")
        return what

    plan = await ctx.step("plan", note, "plan")
    found = await ctx.map(leaf, [f"Look for {plan} {n}." for n in range(3)])
    spread_out = await ctx.delegate(mapper, "Spread.", key="spread")
    texts = [one.text for one in (*found, spread_out)]
    return f"{await ctx.step('join', note, 'join')}: {' '.join(texts)}"


coder = Agent("coder", program=code)

AGENTS = {agent.name: agent for agent in (lead, asker, walker, coder)}


def digest(messages: Sequence[Message]) -> int:
    """A digest of a conversation without remit's notes, whose remaining limits change after a kill."""
    bare = [msgspec.structs.replace(m, note="") if isinstance(m, ToolMessage) else m for m in messages]
    return zlib.crc32(msgspec.json.encode(bare))


class HttpModel:
    """Sends each request to the server of the test, on its own connection."""

    name = "http"

    def __init__(self, port: int, story: str, life: int) -> None:
        self._port = port
        self._story = story
        self._life = life

    async def reply(self, request: Request, emit: Emit) -> Reply:
        said = sum(isinstance(m, AssistantMessage) for m in request.messages)
        body = {
            "agent": request.agent,
            "run": request.run_id,
            "turn": said + 1,
            "choice": request.tool_choice,
            "heard": [m.text for m in request.messages if isinstance(m, UserMessage)],
            "digest": digest(request.messages),
            "life": self._life,
        }
        status, answer = await self._post(json.dumps(body).encode())
        if status != 200:
            raise ModelError("try again", kind="overloaded", retry_after=0.001, usage=Usage(requests=1))
        return msgspec.json.decode(answer, type=Reply)

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = f"POST /{self._story} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        top, _, rest = answer.partition(b"\r\n\r\n")
        return int(top.split()[1]), rest
