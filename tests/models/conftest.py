"""Fake keys, loopback addresses, and no access to other networks."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

import pytest

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY")
LOOPBACK = ("127.0.0.1", "::1", "localhost", b"localhost", None, "")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake key for each provider, and none of the machine's own settings."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_AUTH_TOKEN")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in KEYS:
        monkeypatch.setenv(name, "key-of-the-tests")


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other name is resolved and no other address is connected to; an attempt fails the test."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def refuse(where: object) -> None:
        raise AssertionError(f"a test dialled {where}")

    def checked_connect(self: socket.socket, address: tuple[object, ...]) -> None:
        if isinstance(address, tuple) and address[0] not in LOOPBACK:
            refuse(address)
        connect(self, address)

    def checked_look_up(host: object, *args: object, **kw: object) -> object:
        if host not in LOOPBACK:
            refuse(host)
        return cast(Callable[..., object], look_up)(host, *args, **kw)

    monkeypatch.setattr(socket.socket, "connect", checked_connect)
    monkeypatch.setattr(socket, "getaddrinfo", checked_look_up)


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are loaded once for each client, and these tests encrypt nothing."""
    blank = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("httpx2._transports.default.create_ssl_context", lambda *_, **__: blank)
