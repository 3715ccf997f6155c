"""Patterns for addresses in rules: `domain:example.com`, `https://docs.example.com/guide/*`, `example.com`.

Host and path are matched apart: a star that stands for a part of a host never reaches into the path.
"""

from __future__ import annotations

import fnmatch
import re

_DOMAIN = "domain:"
_PORTS = {"https": ":443", "http": ":80"}
_SCHEME = r"(?i)\s*(?:([a-z*?]+)://)?"


def fits(pattern: str, address: str, host: str, *, strict: bool) -> bool:
    """Whether a pattern speaks of an address. `strict`: without a path it means the start page alone, not all pages."""
    if pattern.startswith(_DOMAIN):
        wanted = _host(_apart(pattern.removeprefix(_DOMAIN))[1]).removeprefix("*.")
        return bool(wanted) and (host == wanted or host.endswith(f".{wanted}"))
    scheme, authority, path = _apart(pattern)
    its_scheme, its_authority, its_path = _apart(address)
    if scheme and not fnmatch.fnmatchcase(its_scheme, scheme):
        return False
    # Without a scheme, as people write a site's name, the port does not matter.
    its_place = its_authority if scheme else host
    place = _host(authority, scheme or "", keep_port=bool(scheme))
    if not fnmatch.fnmatchcase(its_place, place.replace("[", "[[]")):
        return False
    if not path:
        return not (strict and scheme) or its_path in ("", "/")
    return fnmatch.fnmatchcase(its_path or "/", path)


def _apart(text: str) -> tuple[str, str, str]:
    """Scheme, authority and the rest."""
    found = re.match(_SCHEME, text)
    assert found is not None
    rest = text[found.end() :].strip()
    # In a pattern a question mark stands for a character: only a slash ends its host.
    at = min((place for place in (rest.find("/"), rest.find("#")) if place >= 0), default=len(rest))
    return (found[1] or "").lower(), rest[:at].lower(), rest[at:]


def _host(authority: str, scheme: str = "", *, keep_port: bool = False) -> str:
    """An authority as addresses have it: in punycode, without a port that goes without saying."""
    name, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    if not colon or not (port.isdigit() or port in ("*", "")):
        name, port = authority, ""
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            return authority
    name = name.strip(".")
    default = _PORTS.get(scheme, "") == f":{port}"
    return f"{name}:{port}" if keep_port and port and not default else name
