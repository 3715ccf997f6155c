"""A model behind HTTP on loopback. It counts requests; its replies depend only on the request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import msgspec

from remit import Call, Reply, Usage

LONG = "".join(f"Fact {n} of many. " for n in range(40))


class Asked(NamedTuple):
    """A request as the server received it."""

    run: str
    turn: int
    life: int
    digest: int
    """Of the conversation in the request."""

    @property
    def key(self) -> tuple[str, int]:
        return self.run, self.turn


Wish = tuple[str, dict[str, object]]
"""A tool and its arguments."""


def wishes(agent: str, run: str, turn: int, heard: list[str]) -> list[Wish]:
    """The calls of one turn; none if the model answers."""
    scripts: dict[str, list[list[Wish]]] = {
        "lead": [
            [
                ("task", {"agent": "middle", "prompt": "Do much."}),
                ("task", {"agent": "scout", "prompt": "Look."}),
                ("look", {"what": "lead"}),
            ],
            [("read_artifact", {"artifact": f"{run}.1/text", "start": 200, "length": 300})],
        ],
        "middle": [
            [("task", {"agent": "leaf", "prompt": "Look."})],
            [("task", {"agent": "writer", "prompt": "Publish."}), ("write", {"what": "middle"})],
        ],
        "leaf": [[("look", {"what": "leaf"})]],
        "mapper": [[("spread", {})]],
        "scout": [[("look", {"what": "scout"})]],
        "writer": [[("publish", {"what": "writer"})]],
        "asker": [[("publish", {"what": "asker"})], [("look", {"what": "asker"})]],
    }
    if agent == "walker":
        step: Wish = ("write", {"what": f"step{turn}"}) if turn % 2 else ("pause", {"step": turn})
        return [step] if len(heard) == 1 else []
    script = scripts[agent]
    return script[turn - 1] if turn <= len(script) else []


def play(agent: str, run: str, turn: int, choice: str, heard: list[str]) -> Reply:
    """The model's reply. A resumed run sends the same request, so it gets the same reply."""
    wanted = [] if choice == "none" else wishes(agent, run, turn, heard)
    calls = tuple(Call(f"{agent}_{turn}_{n}", name, args) for n, (name, args) in enumerate(wanted))
    usage = Usage(requests=1, input_tokens=10 + turn, output_tokens=5)
    if calls:
        return Reply("", calls, stop="calls", usage=usage)
    texts = {
        "middle": LONG,
        "asker": f"I heard: {' | '.join(heard)}",
        "walker": f"I heard: {' | '.join(heard)}",
    }
    text = f"{agent} in short." if choice == "none" else texts.get(agent, f"{agent} has its answer.")
    return Reply(text, usage=usage)


class ModelServer:
    """Serves many stories at once, each with its own log."""

    def __init__(self) -> None:
        self.logs: defaultdict[str, list[Asked]] = defaultdict(list)
        self.paces: dict[str, float] = {}
        """Seconds that each reply of a story takes."""
        self._open: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    def is_quiet(self, story: str) -> bool:
        """Whether every request sent has been counted, and answered or dropped."""
        return not self._open[story]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        story = ""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            story = head.split()[1].removeprefix("/")
            self._open[story] += 1
            size = int(head.partition("Content-Length: ")[2].split()[0])
            body = json.loads(await reader.readexactly(size))
            writer.write(await self._answer(story, body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client was killed.
        finally:
            self._open[story] -= 1
            writer.close()

    async def _answer(self, story: str, body: dict[str, Any]) -> bytes:
        log = self.logs[story]
        asked = Asked(body["run"], body["turn"], body["life"], body["digest"])
        first = all(one.key != asked.key for one in log)
        log.append(asked)
        await asyncio.sleep(self.paces.get(story, 0.0))
        if first and body["agent"] == "leaf" and body["turn"] == 1:
            return b"HTTP/1.1 503 Busy\r\n\r\n"
        reply = play(body["agent"], body["run"], body["turn"], body["choice"], body["heard"])
        return b"HTTP/1.1 200 OK\r\n\r\n" + msgspec.json.encode(reply)
