"""Who may use the page: tokens, cookies, hosts, origins, and the headers that protect a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pagebench import HOST, TOKEN, Client
from starlette.applications import Starlette
from starlette.routing import Mount

from remit import UsageError
from remit.observe.page import app

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def served(folder: Path, **headers: str) -> AsyncIterator[Client]:
    page = app(f"sqlite:///{folder / 'runs.db'}", token=TOKEN, hosts={"127.0.0.1", "localhost"})
    try:
        yield Client(page, headers={"Host": HOST} | headers)
    finally:
        await page.close()


async def test_requests_without_the_token_are_refused(tmp_path: Path) -> None:
    """Without the token, and with a wrong one, every address answers 401 and shows nothing."""
    async with served(tmp_path) as client:
        for path in ("/", "/api/runs", "/api/stream", "/static/main.js", "/api/openapi.json", "/nowhere"):
            assert (await client.get(path)).status == 401
            assert (await client.get(path, Authorization="Bearer wrong")).status == 401
            assert (await client.get(path, Cookie="remit=wrong")).status == 401
        assert (await client.post("/api/runs", {"prompt": "x"})).status == 401
        assert (await client.get("/", "token=wrong", Accept="text/html")).status == 401


async def test_a_token_in_the_address_becomes_a_cookie(tmp_path: Path) -> None:
    """The token in the address is exchanged for a cookie that scripts cannot read and other paths do not get."""
    async with served(tmp_path) as client:
        answer = await client.get("/", f"token={TOKEN}")
        assert answer.status == 303
        door, cookie = answer.headers["location"], answer.headers["set-cookie"]
        assert TOKEN not in door + cookie
        assert f"Path={door}" in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        brought = cookie.partition(";")[0]
        assert (await client.get(f"{door}api/runs", Cookie=brought)).status == 200
        assert b"<title>remit" in (await client.get(door, Cookie=brought)).body
        # The cookie alone opens only the addresses below the door.
        assert (await client.get("/api/runs", Cookie=brought)).status == 401
        assert (await client.get(f"{door}api/runs")).status == 401


async def test_other_host_names_are_refused(tmp_path: Path) -> None:
    """A request for another host name is refused, even with the token: DNS rebinding."""
    async with served(tmp_path, Authorization=f"Bearer {TOKEN}") as client:
        for host in ("evil.example", "evil.example:8378", "127.0.0.1.evil.example", "", "[::"):
            assert (await client.get("/api/runs", Host=host)).status == 403
        for host in (HOST, "localhost:8378", "LOCALHOST"):
            assert (await client.get("/api/runs", Host=host)).status == 200


async def test_other_origins_are_refused(tmp_path: Path) -> None:
    """A request from another web site is refused; a link to the page works."""
    async with served(tmp_path, Authorization=f"Bearer {TOKEN}") as client:
        for origin in ("https://evil.example", "http://127.0.0.1:9999", "null", "http://[", ""):
            assert (await client.get("/api/runs", Origin=origin)).status == 403
            assert (await client.post("/api/runs", {"prompt": "x"}, Origin=origin)).status == 403
        assert (await client.get("/api/runs", Origin=f"http://{HOST}")).status == 200
        for site in ("cross-site", "same-site"):
            assert (await client.get("/api/runs", Sec_Fetch_Site=site, Sec_Fetch_Mode="cors")).status == 403
            assert (await client.get("/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")).status == 200
            refused = await client.post("/api/runs", {}, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")
            assert refused.status == 403


async def test_every_answer_has_the_protecting_headers(tmp_path: Path) -> None:
    """Answers forbid inline scripts, foreign resources, frames and sniffing, and allow no other origin to read them."""
    async with served(tmp_path, Authorization=f"Bearer {TOKEN}") as client:
        for path in ("/", "/api/runs", "/api/runs/nowhere", "/static/main.js", "/nowhere"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "access-control-allow-origin" not in headers


async def test_static_files_stay_in_their_folder(tmp_path: Path) -> None:
    """An address with `..` reaches no file outside the static folder."""
    async with served(tmp_path, Authorization=f"Bearer {TOKEN}") as client:
        assert (await client.get("/static/main.js")).status == 200
        for path in ("../site.py", "..%2fsite.py", "../../../../../../etc/passwd", "/etc/passwd"):
            assert (await client.get(f"/static/{path}")).status == 404


async def test_an_app_behind_your_own_authentication_needs_no_token(tmp_path: Path) -> None:
    """With `token=None` and `hosts=None` every request is answered, but other origins are still refused."""
    page = app(f"sqlite:///{tmp_path / 'runs.db'}", token=None)
    client = Client(page, headers={"Host": "intranet.example"})
    assert (await client.get("/api/runs")).status == 200
    assert (await client.get("/api/runs", Origin="https://evil.example")).status == 403
    await page.close()


def test_a_short_token_is_refused() -> None:
    """A token that can be guessed is a mistake in the call."""
    with pytest.raises(UsageError, match="at least 16 characters"):
        app("memory", token="short")


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_a_mounted_app(tmp_path: Path, token: str | None) -> None:
    """Below a path of another service, the page, its files and its API are found, with and without a token."""
    page = app(f"sqlite:///{tmp_path / 'runs.db'}", token=token)
    outer = Client(Starlette(routes=[Mount("/remit", page)]), headers={"Host": "intranet.example"})
    start, cookie = "/remit/", ""
    if token is not None:
        assert (await outer.get(start)).status == 401
        answer = await outer.get(start, f"token={token}")
        start, cookie = answer.headers["location"], answer.headers["set-cookie"].partition(";")[0]
        assert start.startswith("/remit/")
        assert (await outer.get("/remit/api/runs", Authorization=f"Bearer {token}")).status == 200
    assert b"<title>remit" in (await outer.get(start, Cookie=cookie)).body
    for path in ("static/main.js", "api/runs", "api/openapi.json"):
        assert (await outer.get(f"{start}{path}", Cookie=cookie)).status == 200
    await page.close()
