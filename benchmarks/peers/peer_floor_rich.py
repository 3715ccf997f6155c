"""The floor plus the minimum of a lean but complete runtime: typed messages, argument checks, a task per child with a
deadline, usage counts, an event per step to a subscriber, a journal line per step to a file (flushed to the kernel,
no fsync), and an incremental request body: each message is encoded to JSON once, and a request is the join of the
encoded parts.
"""

import asyncio
import json
import os
import tempfile
import time
from dataclasses import dataclass, field

from common import SYSTEM_CHILD, SYSTEM_PARENT

DIST = None
IMPORT = "import asyncio, json, dataclasses"

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


@dataclass(slots=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Message:
    role: str
    content: str | None
    calls: list | None = None
    call_id: str | None = None

    def wire(self):
        d = {"role": self.role, "content": self.content}
        if self.calls:
            d["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.calls]
        if self.call_id:
            d["tool_call_id"] = self.call_id
        return encode(d).encode()


@dataclass(slots=True)
class Tool:
    name: str
    func: object
    schema: dict = field(
        default_factory=lambda: {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        }
    )

    def check(self, args):
        props = self.schema["properties"]
        for k in self.schema["required"]:
            if k not in args:
                raise ValueError(f"missing {k}")
        for k, v in args.items():
            if props[k]["type"] == "string" and not isinstance(v, str):
                raise ValueError(f"{k} must be a string")
        return args


class Journal:
    def __init__(self):
        self.fd, path = tempfile.mkstemp()
        os.unlink(path)

    def write(self, run, kind, data):
        os.write(self.fd, b'{"run":%d,"kind":"%s","t":%f,"data":%s}\n' % (run, kind, time.time(), data))


class Runtime:
    def __init__(self):
        self.journal = Journal()
        self.runs = 0
        self.usage = {"requests": 0, "input": 0, "output": 0}
        self.subscribers = [self.count]
        self.seen = 0

    def count(self, event):
        self.seen += 1

    def emit(self, *event):
        for s in self.subscribers:
            s(event)

    async def run(self, brain, system, prompt, tools):
        self.runs += 1
        run = self.runs
        head = encode({"model": "m", "tools": [t.schema for t in tools.values()]})[:-1].encode()
        messages, parts = [], []

        def add(m):
            messages.append(m)
            data = m.wire()
            parts.append(data)
            self.journal.write(run, b"message", data)
            self.emit("message", run, m)

        add(Message("system", system))
        add(Message("user", prompt))
        while True:
            body = head + b',"messages":[' + b",".join(parts) + b"]}"
            reply = json.loads(await self.ask(brain, messages, body))
            self.usage["requests"] += 1
            self.usage["input"] += reply["usage"]["input"]
            self.usage["output"] += reply["usage"]["output"]
            calls = [Call(c["id"], c["name"], c["arguments"]) for c in reply.get("tool_calls") or ()]
            add(Message("assistant", reply.get("content"), calls))
            if not calls:
                return reply["content"]
            work = [asyncio.create_task(self.call(run, tools, c)) for c in calls]
            for c, w in zip(calls, work):
                add(Message("tool", await w, None, c.id))

    async def ask(self, brain, messages, body):
        out = await brain.step(messages, results)
        d = {"usage": {"input": 1, "output": 1}}
        if isinstance(out, str):
            d["content"] = out
        else:
            d["tool_calls"] = [{"id": c, "name": t, "arguments": encode({"text": v})} for c, t, v in out]
        return encode(d)

    async def call(self, run, tools, c):
        tool = tools[c.name]
        self.emit("call", run, c)
        try:
            async with asyncio.timeout(600):
                return await tool.func(**tool.check(json.loads(c.arguments)))
        except (ValueError, TimeoutError) as e:
            return f"error: {e}"


def results(messages):
    return [m.content for m in messages if m.role == "tool"]


async def echo_tool(text):
    return text


def echo(brain):
    rt, tools = Runtime(), {"echo": Tool("echo", echo_tool)}
    return lambda: rt.run(brain, SYSTEM_PARENT, "go", tools)


def chain(brains):
    rt = Runtime()

    def level(k):
        tools = {} if k == len(brains) - 1 else {"delegate": Tool("delegate", level(k + 1))}
        system = SYSTEM_PARENT if k == 0 else SYSTEM_CHILD
        return lambda text: rt.run(brains[k], system, text, tools)

    top = level(0)
    return lambda: top("go")


def fanout(parent, child):
    return chain([parent, child])
