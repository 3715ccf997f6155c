"""Access control: a token in the printed address, then a cookie, and requests from our own page only.

The cookie holds below one path that is derived from the token (`door`). Browsers send cookies to every port of a
host, but not to other paths: a page that another user of this machine serves is not sent ours.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remit.observe.page.errors import problem

COOKIE = "remit"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

LOGIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>remit: sign in</title>
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"></head>
<body><main><h1>This page needs its token</h1>
<p>Open the address that <code>remit serve</code> printed in its terminal. It ends with <code>?token=…</code></p>
<p>A server that was started anew has a new token. <code>remit serve --open</code> opens the page with it.</p>
</main></body></html>
"""


class Guard:
    """Lets requests through to the app that may come through, and adds the headers that keep the page safe."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str] | None) -> None:
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self.door = _derived(token or "", "door")[:16]
        self._session = _derived(token or "", "session")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope)
        if answer is None:
            await self._app(scope, receive, send_safely)
        else:
            await answer(scope, receive, send_safely)

    def _answer(self, scope: Scope) -> Response | None:
        """What a request is answered that does not get through; None for the others."""
        headers = Headers(scope=scope)
        if not self._is_our_host(headers.get("host", "")):
            return problem(
                403, "This server is not reached by that name. Use the address that remit serve printed."
            )
        if not _is_our_origin(scope, headers):
            return problem(403, "Requests of other web sites are refused.")
        if self._token is None:
            return None
        return self._sign_in(scope, headers)

    def _sign_in(self, scope: Scope, headers: Headers) -> Response | None:
        assert self._token is not None
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == "/" and b"token=" in scope["query_string"]:
            return self._exchange(scope)
        door = f"/{self.door}"
        inside = path == door or path.startswith(f"{door}/")
        if inside and self._has_cookie(headers):
            if path == door:
                return RedirectResponse(f"{scope.get('root_path', '')}{door}/", 303)
            # As if the app were mounted there.
            scope["root_path"] = scope.get("root_path", "") + door
            return None
        given = headers.get("authorization", "")
        if given.startswith("Bearer ") and _same(given.removeprefix("Bearer ").strip(), self._token):
            return None
        if "text/html" in headers.get("accept", ""):
            return HTMLResponse(LOGIN, 401)
        return problem(401, "The token is missing or wrong. Send it as: Authorization: Bearer TOKEN")

    def _exchange(self, scope: Scope) -> Response:
        """A token in the address becomes a cookie, and goes away from the address."""
        assert self._token is not None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _same(given, self._token):
            return HTMLResponse(LOGIN, 401)
        target = f"{scope.get('root_path', '')}/{self.door}/"
        response = RedirectResponse(target, 303)
        response.set_cookie(
            COOKIE,
            self._session,
            path=target,
            httponly=True,
            samesite="lax",
            secure=scope["scheme"] == "https",
        )
        response.headers["Cache-Control"] = "no-store"
        return response

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookies: Mapping[str, object] = SimpleCookie(headers.get("cookie", "")[:8000])
        except CookieError:
            return False
        found = cookies.get(COOKIE)
        return found is not None and _same(str(getattr(found, "value", "")), self._session)

    def _is_our_host(self, host: str) -> bool:
        """Whether the Host header names this server. Other names that resolve to it are DNS rebinding."""
        if self._hosts is None:
            return True
        name = _host_name(host)
        if name in self._hosts:
            return True
        return "*" in self._hosts and _is_address(name)


def _is_our_origin(scope: Scope, headers: Headers) -> bool:
    """Whether a request comes from our own page, from no page at all, or only reads by a link."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
        except ValueError:
            return False
    site = headers.get("sec-fetch-site", "none")
    if scope["method"] not in ("GET", "HEAD"):
        return site in ("none", "same-origin")
    # A link from elsewhere may open the page, and nothing else of it.
    return site in ("none", "same-origin") or headers.get("sec-fetch-mode") == "navigate"


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def _derived(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()
