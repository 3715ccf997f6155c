"""A simulated network: names, connections and server answers. Nothing is ever sent."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Self, cast

import anyio
import anyio.lowlevel
import httpcore2
import pytest

import remit.tools.builtin.web.addresses as addresses
import remit.tools.builtin.web.http_request as http_request
from remit.tools.builtin.web.fetch import fetch
from remit.tools.builtin.web.urls import Address
from remit.tools.result import ToolResult, render
from remit.tools.tool import Tool, ToolContext
from remit.types.sandbox import OPEN, Sandbox

PUBLIC = "93.184.216.34"
Said = bytes | list[bytes]


def page(body: str | bytes = "hello", kind: str = "text/plain", status: int = 200, **headers: str) -> bytes:
    """An answer in wire format."""
    data = body if isinstance(body, bytes) else body.encode()
    lines = {"Content-Type": kind, "Content-Length": str(len(data))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"HTTP/1.1 {status} x\r\n{head}\r\n".encode() + data


def moved(to: str, status: int = 302) -> bytes:
    """A redirect."""
    return page("moved", status=status, Location=to)


class Stream(httpcore2.AsyncNetworkStream):
    """One connection: the bytes written, and the bytes to read; then it ends."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.left: list[bytes] | None = None
        self.closed = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library's
        await anyio.lowlevel.checkpoint()
        if self.left is None:
            said = self.net.answer(self.net.requests[-1])
            self.left = list(said) if isinstance(said, list) else [said]
        if not self.left:
            if self.net.drips:
                await anyio.sleep(1)
                return b"x"
            if self.net.silent:
                await anyio.sleep_forever()
            return b""
        piece = self.left.pop(0)
        if len(piece) > max_bytes:
            self.left.insert(0, piece[max_bytes:])
        return piece[:max_bytes]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        if buffer:
            self.net.requests.append(buffer)

    async def aclose(self) -> None:
        self.closed = True

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> Self:
        self.net.tls.append((server_hostname, ssl_context.check_hostname, ssl_context.verify_mode))
        return self


class Network:
    """Replaces name resolution and connections. `names` has a name's addresses, `in_turn` answers in sequence."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, list[str]] = {}
        self.in_turn: dict[str, list[list[str]]] = {}
        self.looked_up: list[str] = []
        self.dialled: list[tuple[str, int]] = []
        self.streams: list[Stream] = []
        self.requests: list[bytes] = []
        self.tls: list[tuple[str | None, bool, ssl.VerifyMode]] = []
        self.silent = False
        """Whether servers keep the connection open after their answer."""
        self.drips = False
        """Whether they then send a byte each second."""
        self.refuse: set[str] = set()
        self.answer: Callable[[bytes], Said] = lambda request: page()
        patch.setattr(addresses, "lookup", self._lookup)
        patch.setattr(http_request, "connect", self._connect)

    def pages(self, **by_path: Said) -> None:
        """Answers by path: `a_b` means /a/b, `root` means /."""
        known = {
            "/" if name == "root" else "/" + name.replace("_", "/"): said for name, said in by_path.items()
        }
        self.answer = lambda request: known.get(path_of(request), page("no such page", status=404))

    async def _lookup(self, name: str) -> list[str]:
        self.looked_up.append(name)
        found = self.in_turn[name].pop(0) if self.in_turn.get(name) else self.names.get(name, [])
        if not found:
            raise OSError("no such name")
        return list(found)

    async def _connect(self, address: Address, port: int) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((str(address), port))
        if str(address) in self.refuse:
            try:
                raise ConnectionRefusedError
            except OSError as error:
                raise httpcore2.ConnectError("refused") from error
        stream = Stream(self)
        self.streams.append(stream)
        return stream


def path_of(request: bytes) -> str:
    return request.split(b" ", 2)[1].decode()


def header_lines(request: bytes) -> dict[str, str]:
    """The headers of a request, with names in lower case."""
    lines = request.decode().split("\r\n\r\n")[0].split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def use(url: str, tool: Tool = fetch, *, sandbox: Sandbox = OPEN, **args: object) -> ToolResult:
    """The result of a call of the tool."""
    ctx = ToolContext(
        run_id="r",
        path=("lead",),
        depth=0,
        workspace=None,
        deps=None,
        emit=lambda text: None,
        cancelled=lambda: False,
        sandbox=sandbox,
    )
    called = tool.invoke(tool.check({"url": url, **args}), ctx)
    return render(await cast(Awaitable[object], called))


def served(net: Network, names: Iterable[str] = ("site.example.org",)) -> None:
    """Resolve these names to public addresses."""
    net.names |= {name: [PUBLIC] for name in names}
