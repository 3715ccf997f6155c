"""Single YAML values: whether they need quotes, how to quote them, and how to resolve escapes."""

from __future__ import annotations

import re

from remit.definitions.syntax.header_lines import COLON

BLOCK = re.compile(r"([|>])[-+0-9]{0,3}\s*(?:#.*)?")
"""Announces a block of text on the lines below."""

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\n", "0": "", "a": "", "b": "", "e": "", "f": "", "v": "", "_": " "}
_REFERENCE = re.compile(r"[*&][A-Za-z_][\w-]*(?:\s|$)|!\S")
_QUOTED = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\x85": "\\x85", "\u2028": "\\u2028"}
    | {"\u2029": "\\u2029", "\ufeff": "\\ufeff"}
)


def as_yaml(text: str) -> str:
    """The text in quotes, on one line."""
    return f'"{text.translate(_QUOTED)}"'


def needs_quotes(text: str) -> bool:
    """Whether YAML would refuse or misread a plain value. References and tags are left as they are."""
    if COLON.search(text):
        return True
    return text[:1] in tuple("@`%*&!|>,]}") and not _REFERENCE.match(text)


def unescape(written: str) -> str:
    """The text with the escapes of double quotes resolved; control characters are removed."""
    return _ESCAPE.sub(_meant, written)


def _meant(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    if digits:
        code = int(digits, 16)
        return chr(code) if 0x20 <= code <= 0x10FFFF and not 0x7F <= code < 0xA0 else ""
    return _ESCAPES.get(found[4], found[4])
