"""Parse web addresses in exactly one way, so that the address that is checked, shown and requested is the same.

Forms that programs read differently (numbers as hosts, backslashes, user names) are refused, not repaired.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin

from remit.tools.words import Refused, show
from remit.types.text import shorten

MOST_CHARS = 8000
"""The longest address."""

Address = IPv4Address | IPv6Address

_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_BAD = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\\]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_BYTE = re.compile(r"0|[1-9][0-9]{0,2}")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_SAFE = "/!$&'()*+,;=:@~%[]"
_QUERY_SAFE = _PATH_SAFE + "?"
_SLASHES = re.compile(r"/{2,}")


class Target(NamedTuple):
    """A parsed address. `host` is lower case, in punycode, without a final dot."""

    scheme: str
    host: str
    port: int
    path: str
    """With the query; never empty, without dot segments."""
    literal: Address | None
    """The host if it is an IP address; None for a name."""

    @property
    def authority(self) -> str:
        """Host and port as sent; the scheme's default port is omitted."""
        host = f"[{self.host}]" if isinstance(self.literal, IPv6Address) else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_clear(self) -> bool:
        """False if a server may read the path as another one: escapes that hide `..`."""
        path = self.path.partition("?")[0]
        for _ in range(4):
            decoded = unquote(path).replace("\\", "/")
            if any(part.partition(";")[0] == ".." for part in decoded.split("/")):
                return False
            if decoded == path:
                return True
            path = decoded
        return False

    def readings(self) -> tuple[str, ...]:
        """Other addresses that a server may treat as the same."""
        start, path = f"{self.scheme}://{self.authority}", self.path
        plain = _SLASHES.sub("/", unquote(path.partition("?")[0]))
        return tuple(dict.fromkeys(start + p for p in (_SLASHES.sub("/", path), plain) if p != path))


def read_url(text: str) -> Target:
    """Parse an address. Raises Refused unless it is one plain http or https address."""
    text = text.strip(" \t\r\n")
    if len(text) > MOST_CHARS:
        raise Refused(f"The address is too long: {len(text):,} characters, and the limit is {MOST_CHARS:,}.")
    if bad := _BAD.search(text):
        raise Refused(
            f"{_brief(text)} is not a valid address: it contains {_name(bad[0])}, which must be escaped."
        )
    scheme, rest = _read_scheme(text)
    authority, path, query = _split(rest)
    if "@" in authority:
        raise Refused("The address contains a user name or password. Remove the part before the @.")
    name, port = _split_port(authority)
    host, literal = _read_host(name)
    path = _without_dots(_escaped(path, _PATH_SAFE) or "/")
    if query is not None:
        path += "?" + _escaped(query, _QUERY_SAFE)
    target = Target(scheme, host, _read_port(port, scheme), path, literal)
    if len(target.url) > MOST_CHARS:
        raise Refused(f"The address is too long after escaping; the limit is {MOST_CHARS:,} characters.")
    return target


def follow(base: Target, location: str) -> Target:
    """The target of a redirect. Raises Refused as `read_url` does."""
    if len(location) > MOST_CHARS:
        raise Refused(f"Its target has {len(location):,} characters, and the limit is {MOST_CHARS:,}.")
    if _BAD.search(location.strip(" \t\r\n")):
        # Check before joining: urljoin drops some of these characters.
        return read_url(location)
    try:
        joined = urljoin(base.url, location)
    except ValueError:
        joined = location
    return read_url(joined)


def read_host(name: str) -> tuple[str, Address | None]:
    """A host in lower case and punycode, and its IP address if it is one. Raises Refused."""
    return _read_host(name)


def _brief(text: str) -> str:
    return show(shorten(text, 200, 197))


def _name(char: str) -> str:
    named = {"\\": "a backslash", " ": "a space", "\t": "a tab", "\n": "a line break", "\r": "a line break"}
    return named.get(char, "a control character")


def _read_scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.match(text)
    scheme = found[1].lower() if found else ""
    if scheme in _PORTS:
        rest = text[len(scheme) + 1 :]
        if rest.startswith("//"):
            return scheme, rest[2:]
    elif found and "." not in scheme and scheme != "localhost":
        raise Refused(f"Only http and https addresses are fetched, not {shorten(scheme, 40, 37)}:.")
    raise Refused(f"{_brief(text) or 'That'} is not a full address. Write it as https://host/path.")


def _split(rest: str) -> tuple[str, str, str | None]:
    rest = rest.partition("#")[0]
    before, mark, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    return authority, slash + path, query if mark else None


def _split_port(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        name, bracket, rest = authority.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise Refused(f"{_brief(authority)} is not a valid host: its brackets do not match.")
        return name + bracket, rest[1:]
    name, _, port = authority.partition(":")
    return name, port


def _read_port(port: str, scheme: str) -> int:
    if not port:
        return _PORTS[scheme]
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise Refused(f"{_brief(port)} is not a valid port.")
    return int(port)


def _read_host(name: str) -> tuple[str, Address | None]:
    if name.startswith("["):
        return _read_ipv6(name)
    host = (name if name.isascii() else _punycode(name)).lower().removesuffix(".")
    if not host:
        raise Refused("The address has no host. Write it as https://host/path.")
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise Refused(f"{_brief(name)} is not a valid host name.")
    if not _NUMBER.fullmatch(labels[-1]):
        return host, None
    if len(labels) != 4 or not all(_BYTE.fullmatch(part) and int(part) < 256 for part in labels):
        raise Refused(
            f"{_brief(name)} is an ambiguous IP address. Write four decimal numbers, such as 192.0.2.1."
        )
    literal = IPv4Address(host)
    return str(literal), literal


def _read_ipv6(name: str) -> tuple[str, Address]:
    try:
        if not name.isascii() or "%" in name:
            raise ValueError(name)
        literal = IPv6Address(name[1:-1])
    except ValueError:
        raise Refused(f"{_brief(name)} is not a valid IPv6 address.") from None
    return str(literal), literal


def _punycode(name: str) -> str:
    # Imported here: its tables are large, and few addresses need them.
    import idna  # noqa: PLC0415 - see above

    try:
        if len(name) > 253:
            raise idna.IDNAError
        return idna.encode(name, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise Refused(f"{_brief(name)} is not a valid host name.") from None


def _escaped(text: str, safe: str) -> str:
    """Escape every character that must be escaped, and no other."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%25"
        char = chr(int(found[1], 16))
        return char if char in _UNRESERVED else f"%{found[1].upper()}"

    return quote(_ESCAPE.sub(one, text), safe=safe, errors="replace")


def _without_dots(path: str) -> str:
    out: list[str] = []
    *parts, last = path.split("/")[1:]
    for part in parts:
        if part == "..":
            del out[-1:]
        elif part != ".":
            out.append(part)
    if last == "..":
        del out[-1:]
    out.append("" if last in (".", "..") else last)
    return "/" + "/".join(out)
