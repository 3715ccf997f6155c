"""Turn a server's answer to a call into a result: text, images and documents within bounds, a note about the rest."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from remit.tools.result import ToolResult
from remit.types.messages import FilePart, ImagePart, Json, unforge
from remit.types.text import one_line, shorten, text_of, to_json

if TYPE_CHECKING:
    import mcp_types as types

PART_BYTES = 5_000_000
"""The most bytes of one image or document; providers accept little more."""

MOST_PARTS = 20
PARTS_BYTES = 20_000_000
DETAILS_BYTES = 100_000

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_FILES = ("application/pdf",)
_WORDS = 200


def to_result(answer: types.CallToolResult) -> ToolResult:
    """The answer for the model. Structured content is kept as details, and shown if there is no text."""
    reader = _Reader()
    for block in answer.content:
        reader.read(block)
    structured = to_json(answer.structured_content) if answer.structured_content is not None else None
    text = "\n".join(reader.texts)
    if structured is not None and not reader.said:
        text = "\n".join([*reader.texts, text_of(structured)])
    if not text and not reader.parts:
        text = "(The tool returned no output.)"
    return ToolResult(text, ok=not answer.is_error, details=_details(structured), parts=tuple(reader.parts))


def _details(structured: Json) -> Json:
    if structured is None:
        return None
    size = len(msgspec.json.encode(structured))
    return structured if size <= DETAILS_BYTES else f"(structured content of {size:,} bytes)"


class _Reader:
    """Reads an answer block by block."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.parts: list[ImagePart | FilePart] = []
        self.said = False
        """Whether the answer contains text of the server."""
        self._bytes = 0

    def read(self, block: types.ContentBlock) -> None:
        match block.type:
            case "text":
                self._say(block.text)
            case "image":
                self._media("image", block.data, block.mime_type, "")
            case "audio":
                self._media("audio", block.data, block.mime_type, "")
            case "resource_link":
                self._link(block)
            case "resource":
                self._resource(block.resource)

    def _say(self, text: str) -> None:
        self.said = True
        self.texts.append(text)

    def _link(self, link: types.ResourceLink) -> None:
        title = link.title or link.name
        kind = f", {_brief(link.mime_type)}" if link.mime_type else ""
        about = f": {_brief(link.description)}" if link.description else ""
        self._say(f"(link to {_brief(title)} at {_brief(link.uri)}{kind}{about})")

    def _resource(self, resource: types.TextResourceContents | types.BlobResourceContents) -> None:
        kind = _brief(resource.mime_type or "unknown kind")
        # By the field that only one of them has: isinstance would import the package.
        blob = getattr(resource, "blob", None)
        if isinstance(blob, str):
            self._media("resource", blob, resource.mime_type or "", resource.uri)
        else:
            self._say(f"(resource {_brief(resource.uri)}, {kind})\n{text_of(getattr(resource, 'text', ''))}")

    def _media(self, word: str, data: str, media_type: str, uri: str) -> None:
        kind = media_type.partition(";")[0].strip().lower()
        what = f"{word} {_brief(uri)}".strip() + f", {_brief(kind) or 'unknown kind'}"
        size = len(data) * 3 // 4
        if kind not in _IMAGES + _FILES:
            self.texts.append(f"({what}, {size:,} bytes: unsupported type)")
        elif size > PART_BYTES or self._bytes + size > PARTS_BYTES or len(self.parts) >= MOST_PARTS:
            self.texts.append(f"({what}, {size:,} bytes: too large to show)")
        else:
            self._part(what, data, kind, uri)

    def _part(self, what: str, data: str, kind: str, uri: str) -> None:
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            self.texts.append(f"({what}: invalid base64)")
            return
        self._bytes += len(content)
        if kind in _IMAGES:
            self.parts.append(ImagePart(kind, content))
        else:
            self.parts.append(FilePart(unforge(_brief(uri.rpartition("/")[2])) or "document", kind, content))
        self.texts.append(f"({what}, {len(content):,} bytes)")


def _brief(text: str) -> str:
    return shorten(one_line(text).strip(), _WORDS, _WORDS - 3)
