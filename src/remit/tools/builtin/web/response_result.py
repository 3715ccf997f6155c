"""Turn a server's response into a tool result: web pages and other text, images, or a message about unreadable data."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

import remit.tools.builtin.files.file_contents as file_contents
from remit.tools.builtin.web.html_to_text import plain, to_text
from remit.tools.builtin.web.urls import Target
from remit.tools.result import ToolResult
from remit.tools.words import size
from remit.types.messages import ImagePart
from remit.types.text import shorten

MOST_HTML = 2_000_000
"""The most characters of HTML that are converted to text."""
MOST_IMAGE = 5_000_000
MOST_ERROR_BYTES = 100_000
MOST_ERROR_CHARS = 1500
"""The most characters shown of an error page."""

_MEDIA = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
_OPAQUE = re.compile(
    r"(?:audio|video|font|model)/.*|application/(?:pdf|zip|gzip|x-tar|x-7z-compressed|x-bzip2?|x-xz|zstd|x-rar\S*"
    r"|vnd\.rar|wasm|java-archive|msword|vnd\.(?:ms-|openxmlformats|oasis)\S*|epub\+zip|x-msdownload)"
)
_HTML = ("text/html", "application/xhtml+xml")
_LOOKS_HTML = re.compile(r"\s{0,1000}<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE | re.ASCII)
_IN_XML = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_IN_HTML = re.compile(rb"""<meta\s[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
# Not every codec of Python: some are slow on hostile bytes, and some do not encode text.
_CODECS = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|ascii|iso8859-\d+|cp125\d|cp(?:866|874|932|949|950)|koi8-[ru]|mac-(?:roman|cyrillic)"
    r"|gb2312|gbk|gb18030|big5|big5hkscs|shift_jis|euc_jp|iso2022_jp|euc_kr|tis-620"
)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class FetchedPage(NamedTuple):
    """A server's response."""

    target: Target
    status: int
    headers: Mapping[str, str]
    data: bytes
    whole: bool
    """Whether the whole body was read."""

    @property
    def media(self) -> str:
        """The media type in the response; empty if it has none."""
        return _media(self.headers)


def _media(headers: Mapping[str, str]) -> str:
    found = _MEDIA.match(headers.get("content-type", ""))
    return found[0].lower() if found else ""


def _length(headers: Mapping[str, str]) -> int:
    """The length in the response; 0 if it has none, or the body is compressed."""
    told = headers.get("content-length", "")
    return (
        int(told)
        if told.isascii() and told.isdigit() and len(told) < 16 and "content-encoding" not in headers
        else 0
    )


def wanted(status: int, headers: Mapping[str, str], most: int) -> int:
    """How many bytes of a body to read: none if models cannot read its type."""
    media = _media(headers)
    if status >= 400:
        return min(most, MOST_ERROR_BYTES)
    if _is_image(media):
        return 0 if _length(headers) > MOST_IMAGE else min(most, MOST_IMAGE)
    return 0 if _OPAQUE.fullmatch(media) else most


def _is_image(media: str) -> bool:
    return media.startswith("image/") and not media.startswith("image/svg")


def as_result(page: FetchedPage, *, raw: bool) -> ToolResult:
    """The result: a first line with address, status, type and size, then the page."""
    kind = file_contents.image_type(page.data) if page.whole else ""
    if page.status < 400 and kind and len(page.data) <= MOST_IMAGE:
        head = f"{page.target.url} ({page.status}, {kind}, {size(len(page.data))})"
        return ToolResult(f"{head}\nAn image.", details=_details(page), parts=(ImagePart(kind, page.data),))
    if what := _unreadable(page):
        return ToolResult(
            f"{_head(page)}\nThe response is {what}; fetch cannot read it.", details=_details(page), ok=False
        )
    text, whole = _text(page, raw=raw)
    if page.status >= 400:
        return _error(page, text)
    if not text.strip():
        why = "The page has no text; a script may create it." if page.data else "The response is empty."
        return ToolResult(f"{_head(page)}\n({why})", details=_details(page))
    cut = "" if whole else ", truncated"
    return ToolResult(f"{_head(page, cut)}\n\n{text}", details=_details(page))


def _head(page: FetchedPage, more: str = "") -> str:
    number = len(page.data) or _length(page.headers)
    length = size(number) if number or page.whole else "size unknown"
    return f"{page.target.url} ({page.status}, {page.media or 'type unknown'}, {length}{more})"


def _details(page: FetchedPage) -> dict[str, object]:
    return {
        "url": page.target.url,
        "status": page.status,
        "type": page.media,
        "bytes": len(page.data) or _length(page.headers),
        "whole": page.whole,
    }


def _unreadable(page: FetchedPage) -> str:
    """The kind of a response that is not text; empty for text."""
    media = page.media
    if page.status >= 400:
        return "binary data" if file_contents.binary_kind(page.data) else ""
    if _is_image(media):
        large = _length(page.headers) > MOST_IMAGE or not page.whole
        return (
            f"an image of more than {size(MOST_IMAGE)}"
            if large
            else "an image in a format that models do not accept"
        )
    if _OPAQUE.fullmatch(media):
        return "a PDF document" if media == "application/pdf" else "a file"
    # UTF-16 without a byte order mark looks like binary data.
    return "" if _told_codec(page).startswith("utf-16") else file_contents.binary_kind(page.data)


def _text(page: FetchedPage, *, raw: bool) -> tuple[str, bool]:
    """The text of the page, and whether it is complete."""
    source = _decode(page)
    is_html = page.media in _HTML or (page.media in ("", "text/plain") and bool(_LOOKS_HTML.match(source)))
    if raw or not is_html:
        return plain(source), page.whole
    text, whole = to_text(source[:MOST_HTML], page.target.url)
    return text, whole and page.whole and len(source) <= MOST_HTML


def _decode(page: FetchedPage) -> str:
    data = page.data
    for mark, codec in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    codec = _told_codec(page)
    if not codec:
        start = data[:2048]
        inside = _IN_XML.match(start) or (_IN_HTML.search(start) if page.media in _HTML else None)
        # This regex matches ASCII bytes, so the page cannot be UTF-16, even if it says so.
        codec = _codec(inside[1].decode("ascii", "replace")) if inside and b"16" not in inside[1] else ""
    return data.decode(codec or "utf-8", "replace")


def _told_codec(page: FetchedPage) -> str:
    named = _CHARSET.search(page.headers.get("content-type", ""))
    return _codec(named[1]) if named else ""


def _codec(name: str) -> str:
    """Python's name of an encoding; empty for one that web pages do not use."""
    try:
        found = codecs.lookup(name).name if name else ""
    except (LookupError, ValueError):
        return ""
    # As in browsers: pages that declare one of these mean the other.
    found = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}.get(
        found, found
    )
    return found if _CODECS.fullmatch(found) else ""


def _error(page: FetchedPage, text: str) -> ToolResult:
    reason = _REASONS.get(page.status, "an error")
    words = [f"{page.target.url} answered {page.status} {reason}."]
    if page.status in (401, 407):
        words.append("The page needs credentials, and fetch has none.")
    wait = page.headers.get("retry-after", "")
    if wait.isascii() and wait.isdigit() and len(wait) < 7:
        words.append(f"The server asks to wait {int(wait)} seconds before a retry.")
    body = shorten(text.strip(), MOST_ERROR_CHARS, MOST_ERROR_CHARS - 3)
    return ToolResult(" ".join(words) + (f"\n\n{body}" if body else ""), ok=False, details=_details(page))
