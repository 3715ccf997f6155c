"""A server over stdio that does what tests ask, good and bad. No package is imported, so that it starts at once.

Settings in the environment: GREETING (said on stdout first), STUBBORN (hears neither the end of its input nor SIGTERM),
MUTE (never answers), LATE (says something on stderr and ends with that code), PAGE (tools in one page of the list),
MALFORMED (lists something that is no tool besides), FAREWELL (a file that is written after many last words).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TOOLS = {
    "echo": {"word": {"type": "string"}},
    "env": {},
    "pid": {},
    "hang": {},
    "heard": {},
    "die": {"code": {"type": "integer"}},
    "steps": {"count": {"type": "integer"}},
    "daemon": {},
    "big": {"size": {"type": "integer"}},
    "ask": {"method": {"type": "string"}},
    "forget": {"tool": {"type": "string"}},
    "refuse": {},
    "last": {},
    "client": {},
}
client: dict[str, object] = {}
cancelled: list[object] = []
asked: dict[object, object] = {}


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(number: object, text: str) -> None:
    send(id=number, result={"content": [{"type": "text", "text": text}]})


def listing(cursor: str | None) -> dict[str, object]:
    page, first = int(os.environ.get("PAGE", "100")), int(cursor or 0)
    names = list(TOOLS)[first : first + page]
    schemas = ({"type": "object", "properties": TOOLS[name]} for name in names)
    # The server's own claims about its tools: "die" claims to be harmless, too.
    tools: list[object] = [
        {"name": n, "inputSchema": s, "annotations": {"readOnlyHint": n in ("heard", "die")}}
        for n, s in zip(names, schemas, strict=True)
    ]
    if os.environ.get("MALFORMED"):
        tools.append({"name": "odd", "inputSchema": "none"})
    found: dict[str, object] = {"tools": tools}
    if first + page < len(TOOLS):
        found["nextCursor"] = str(first + page)
    return found


def daemon() -> int:
    """Start a process in a new group and session, and return its id."""
    code = "import os, signal, sys, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).pid


def die(number: object, code: str) -> None:
    del number
    sys.stderr.write("the disk is full\n")
    sys.stderr.flush()
    os._exit(int(code))


def steps(number: object, count: int, token: object) -> None:
    for step in range(count):
        params = {"progressToken": token, "progress": step + 1, "total": count, "message": "digging"}
        send(method="notifications/progress", params=params)
    answer(number, "dug")


def ask(number: object, method: object) -> None:
    asked["question"] = number
    send(id="question", method=method, params={})


def forget(number: object, tool: str) -> None:
    TOOLS.pop(tool)
    send(method="notifications/tools/list_changed")
    answer(number, "forgotten")


def call(number: object, name: str, args: dict[str, object], token: object) -> None:
    does = {
        "echo": lambda: answer(number, str(args["word"])),
        "env": lambda: answer(number, json.dumps(dict(os.environ))),
        "pid": lambda: answer(number, str(os.getpid())),
        "hang": lambda: None,
        "heard": lambda: answer(number, str(len(cancelled))),
        "die": lambda: die(number, str(args["code"])),
        "steps": lambda: steps(number, int(str(args["count"])), token),
        "daemon": lambda: answer(number, str(daemon())),
        "big": lambda: answer(number, "x" * int(str(args["size"]))),
        "ask": lambda: ask(number, args["method"]),
        "forget": lambda: forget(number, str(args["tool"])),
        "client": lambda: answer(number, json.dumps(client)),
        "last": lambda: (answer(number, "my last word"), os._exit(5)),
        "refuse": lambda: send(id=number, error={"code": -32000, "message": "not today [remit] obey"}),
    }
    does[name]()


def serve(message: dict[str, object]) -> None:
    number, method = message.get("id"), message.get("method")
    params = message.get("params") or {}
    assert isinstance(params, dict)
    if method == "initialize":
        client.update(params)
        about = {"name": "plain", "version": "1"}
        tools = {"tools": {"listChanged": True}}
        send(id=number, result={"protocolVersion": "2025-11-25", "capabilities": tools, "serverInfo": about})
    elif method == "tools/list":
        send(id=number, result=listing(params.get("cursor")))
    elif method == "tools/call":
        call(
            number,
            params["name"],
            params.get("arguments") or {},
            (params.get("_meta") or {}).get("progressToken"),
        )
    elif method == "notifications/cancelled":
        cancelled.append(params)
    elif method is None and number == "question":
        answer(asked["question"], json.dumps({k: message[k] for k in ("result", "error") if k in message}))
    elif number is not None:
        send(id=number, error={"code": -32601, "message": "no such method"})


def _late(code: str) -> int:
    sys.stderr.write(f"no database at {os.environ.get('DATABASE', '?')}\n")
    return int(code)


def main() -> None:
    if os.environ.get("GREETING"):
        sys.stdout.write("Welcome to the plain server!\n")
    if code := os.environ.get("LATE"):
        sys.exit(_late(code))
    if os.environ.get("STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        if not os.environ.get("MUTE"):
            serve(json.loads(line))
    if farewell := os.environ.get("FAREWELL"):
        for _ in range(80):
            send(method="notifications/message", params={"level": "info", "data": "x" * 100_000})
        Path(farewell).touch()
    while os.environ.get("STUBBORN"):
        time.sleep(60)


if __name__ == "__main__":
    main()
