"""The content of a file: text, an image, or binary data that models cannot read."""

from __future__ import annotations

import codecs
import os
import re

from remit.tools.builtin.workspace import ResolvedPath, open_file, read_bytes
from remit.tools.words import Refused, size

MOST_BYTES = 10_000_000
"""The largest file that `read` accepts."""

_IMAGES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)
_KINDS = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a program (Windows)"),
    (b"\xca\xfe\xba\xbe", "a program (Mach-O or Java)"),
    (b"\xcf\xfa\xed\xfe", "a program (Mach-O)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"BM", "a BMP image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"OggS", "Ogg audio or video"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"RIFF", "audio or video (RIFF)"),
    (b"\x00asm", "a WebAssembly program"),
)


def load(place: ResolvedPath, most: int = MOST_BYTES) -> bytes:
    """The whole content of a regular file. Raises Refused if it is missing or too large."""
    fd, info = open_file(place)
    try:
        data = read_bytes(fd, most) if info.st_size <= most else None
    finally:
        os.close(fd)
    if data is None or len(data) > most:
        how_large = size(max(info.st_size, most + 1))
        raise Refused(
            f"{place.shown} is too large: {how_large}, and the limit is {size(most)}. Use grep to find parts of it."
        )
    return data


def image_type(data: bytes) -> str:
    """The media type of an image that models accept; empty for everything else."""
    return next((media for mark, media in _IMAGES if mark.match(data)), "")


def binary_kind(data: bytes) -> str:
    """The kind of binary data; empty for text."""
    if data.startswith(b"%PDF-"):
        return "a PDF document"
    if b"\0" not in data or is_wide(data):
        return ""
    return next((words for mark, words in _KINDS if data.startswith(mark)), "binary data")


def is_wide(data: bytes) -> bool:
    """Whether the data is UTF-16 with a byte order mark."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and len(data) % 2 == 0


def decode(data: bytes) -> tuple[str, bool]:
    """The text without a byte order mark, and whether every byte was valid."""
    if is_wide(data):
        text = data.decode("utf-16", "replace")
        return text, "�" not in text
    try:
        return data.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace"), False


def as_lines(data: bytes) -> bytes:
    """Text as UTF-8 with \\n line endings, for the search engines."""
    if is_wide(data):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            data = data.decode("utf-8", "replace").encode()
    return data.replace(b"\r\n", b"\n")
