"""Text for people and models: making it valid, shortening it, converting values to text, and call logs.

Nothing here has side effects or raises: arguments and results come from models and tools.
"""

from __future__ import annotations

import functools
import itertools
import re
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import cast

import msgspec
from msgspec import Struct

from remit.types.messages import Json, JsonObject

FOREIGN = (Exception, SystemExit, GeneratorExit, CancelledError)
"""Exceptions of user code that must not end remit's own code. Not KeyboardInterrupt: a person pressed Ctrl-C."""

NO_OUTPUT = "(no output)"
"""The result that a model reads when a tool returned nothing."""

CONTEXT_CHARS = 200
"""Longest context of a call; commands have a shorter limit."""

_PIECE_CHARS = 1_000_000
_QUOTED_CHARS = 100
_QUOTED_ITEMS = 40

_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), " ")


def clean(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD; valid text is returned unchanged.

    An instance of a `str` subclass, as template engines create, becomes a plain `str`: only that can be encoded as JSON.
    """
    text = str.__str__(text)
    if text.isascii():
        return text
    try:
        # In pieces, so that other threads can run in between.
        for start in range(0, len(text), _PIECE_CHARS):
            text[start : start + _PIECE_CHARS].encode()
    except UnicodeEncodeError:
        # UTF-16 joins the two halves of a character that arrived separately.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Json) -> Json:
    """A copy of a JSON value in which every string, keys included, is clean."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(k): clean_json(v) for k, v in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [clean_json(v) for v in cast(list[Json], value)]
    return value


def cut_chars(text: str, most: int) -> str:
    """The first `most` characters."""
    return text[: max(most, 0)]


def cut_bytes(text: str, most: int) -> str:
    """The longest prefix that fits into `most` bytes of UTF-8; no character is split."""
    head = clean(text[: max(most, 0)])
    if head.isascii():
        return head
    return head.encode()[: max(most, 0)].decode("utf-8", "ignore")


def shorten(text: str, most: int, keep: int) -> str:
    """The text, or its first `keep` characters and "..." when it has more than `most`."""
    return text if len(text) <= most else text[:keep] + "..."


def quote(value: Json) -> str:
    """A JSON value for a message, shortened if it is long."""
    try:
        text = msgspec.json.encode(clean_json(_head(value, _QUOTED_ITEMS))).decode()
    except Exception:  # noqa: BLE001 - the message matters more than the value
        return "this value"
    return shorten(text, 80, 77)


def _head(value: Json, width: int) -> Json:
    """The part of a value that a quote shows: the value may be large and is quoted once per problem."""
    if isinstance(value, str):
        return value[:_QUOTED_CHARS]
    if isinstance(value, list):
        items = cast(list[Json], value)
        return [_head(v, width // 4) for v in items[:width]] + ["..."] * (len(items) > width)
    if isinstance(value, dict):
        pairs = itertools.islice(cast(JsonObject, value).items(), width)
        found = {key[:_QUOTED_CHARS]: _head(inner, width // 4) for key, inner in pairs}
        return found if len(cast(JsonObject, value)) <= width else {**found, "...": "..."}
    return value


# Characters that count as printable but are invisible or cover the character before them.
_BLANK = "[\u034f\u0334-\u0338\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]|[\U000e0100-\U000e01ef]|[\u0300-\u036f]{4,}"


def visible(text: str) -> str:
    """The text with invisible, reordering and terminal-control characters escaped, line breaks included."""
    if text.isascii() and text.isprintable():
        return text
    text = re.sub(_BLANK, lambda found: found[0].encode("unicode_escape").decode(), text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The text with every line break and control character replaced by a space."""
    return text.translate(_CONTROLS)


def seconds(value: float) -> str:
    """A duration for people: "90 s", "0.25 s", "under 0.01 s"."""
    return f"{value:.4g} s" if value == 0 or value >= 0.01 else "under 0.01 s"


def count_lines(text: str) -> int:
    """The number of lines; a line break at the end does not start another line."""
    if not text:
        return 0
    return text.count("\n") + (not text.endswith("\n"))


def text_of(value: object) -> str:
    """Any value as text: a string unchanged, None as "(no output)", everything else as JSON if possible, else `str()`.

    A value whose JSON is a string (a path, a date) becomes that string without quotes.
    """
    if isinstance(value, str):
        return clean(str.__str__(value))
    if value is None:
        return NO_OUTPUT
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    try:
        text = _encode(value)
        return cast(str, _decode(text)) if text.startswith('"') else text
    except Exception:  # noqa: BLE001 - users' objects may fail in any way
        return clean(safe_str(value))


def to_json(value: object) -> Json:
    """Any value as a new plain JSON value; `str()` if it cannot be encoded."""
    try:
        return _decode(_encode(value))
    except Exception:  # noqa: BLE001 - as above
        return clean(safe_str(value))


def safe_str(value: object) -> str:
    """`str(value)`, or the name of the type if that raises."""
    try:
        return str(value)
    except FOREIGN:
        return type(value).__name__


def safe_repr(value: object) -> str:
    """`repr(value)`, or the name of the type if that raises."""
    try:
        return clean(repr(value))
    except FOREIGN:
        return type(value).__name__


def describe_error(error: BaseException) -> str:
    """The type and the message of an exception as valid text."""
    return clean(f"{type(error).__name__}: {safe_str(error)}")


def _encode(value: object) -> str:
    if isinstance(value, AbstractSet):
        value = _in_order(cast(AbstractSet[object], value))
    try:
        return msgspec.json.encode(value, enc_hook=_simpler).decode()
    except Exception:  # noqa: BLE001 - invalid text, or keys that msgspec rejects; the slower json may accept them
        import json  # noqa: PLC0415 - few values need it

        return clean(json.dumps(msgspec.to_builtins(value, enc_hook=_simpler), ensure_ascii=False))


def _decode(text: str) -> Json:
    import json  # noqa: PLC0415 - as above

    return json.loads(text)


def _simpler(value: object) -> object:
    """For the encoders: replace a value of an unsupported type by one of a supported type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return cast(Callable[..., object], dump)(value, mode="json")
    if isinstance(value, Mapping):
        return dict(cast(Mapping[object, object], value))
    if isinstance(value, AbstractSet):
        return _in_order(cast(AbstractSet[object], value))
    if isinstance(value, Sequence) and not isinstance(value, tuple):
        return list(cast(Sequence[object], value))
    return clean(safe_str(cast(object, value)))


def _in_order(values: AbstractSet[object]) -> list[object]:
    # The order of a set differs between processes; a result must not.
    return sorted(
        values, key=lambda v: (type(v).__name__, v if isinstance(v, (int, float)) else 0, safe_str(v))
    )


_PATH = ("file_path", "path")
_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("read", "read_file", "write", "write_file", "edit", "edit_file", "ls"), _PATH),
    **dict.fromkeys(("glob", "grep"), ("pattern",)),
    "web_search": ("query",),
    "fetch": ("url",),
}
_COMMANDS = ("bash", "terminal")
_PROMPTS = ("label", "prompt", "task_prompt", "task")
_SUBAGENT = "subagent_"
_COUNTED = {
    **dict.fromkeys(("read", "read_file"), ("line", "lines")),
    **dict.fromkeys(("glob", "ls"), ("file", "files")),
    "grep": ("match", "matches"),
}
_FIXED = {"write": "wrote file", "write_file": "wrote file", "edit": "edited", "edit_file": "edited"}


class Manner(Struct, frozen=True):
    """How the call log describes calls of a tool. Depends only on the tool's name: computed once per tool."""

    context: Callable[[Mapping[str, Json]], str] | None
    """The most important argument, on one line and shortened; None for tools not known here."""
    fixed: str
    """The summary of every successful result, if it is always the same."""
    nothing: str
    one: str
    many: str
    """`nothing`: the summary of an empty result; `one`: of a single line; `many`: the word after the number of lines."""
    quotes: bool
    """Whether the summary of a single-line result is that line."""

    def summary(self, content: str, ok: bool) -> str:
        """A few words about a result, on one line."""
        if not ok:
            return _brief(_first_line(content)) or "Error"
        if self.fixed:
            return self.fixed
        bare = content.strip()
        if not bare or bare == NO_OUTPUT:
            return self.nothing
        if "\n" not in content or (lines := count_lines(content)) == 1:
            return _brief(_first_line(content)) if self.quotes else self.one
        return f"{lines} {self.many}"


def manner_of(tool_name: str) -> Manner:
    name = tool_name.lower()
    one, many = _COUNTED.get(name, ("line", "lines"))
    return Manner(
        _context_by(tool_name),
        _FIXED.get(name, ""),
        f"0 {many}" if name in _COUNTED else "done",
        f"1 {one}",
        many,
        quotes=name in _COMMANDS,
    )


def call_context(tool_name: str, args: object) -> str:
    """The most important argument, on one line and shortened; empty for tools not known here."""
    by = _context_by(tool_name)
    return by(cast("Mapping[str, Json]", args)) if by is not None and isinstance(args, Mapping) else ""


def result_summary(tool_name: str, content: str, ok: bool) -> str:
    """A few words about a result, on one line."""
    return manner_of(tool_name).summary(content, ok)


def _context_by(tool_name: str) -> Callable[[Mapping[str, Json]], str] | None:
    name = tool_name.lower()
    if name in _COMMANDS:
        return _command_context
    if name in ("task", "subagent"):
        return _delegation_context
    if name.startswith(_SUBAGENT):
        return functools.partial(_delegation_context, agent=tool_name[len(_SUBAGENT) :])
    keys = _KEYS.get(name)
    return None if keys is None else functools.partial(_key_context, keys)


def _command_context(args: Mapping[str, Json]) -> str:
    return _tidy(shorten(_first(args, ("command",)), 60, 57))


def _key_context(keys: tuple[str, ...], args: Mapping[str, Json]) -> str:
    return _tidy(shorten(_first(args, keys), CONTEXT_CHARS, CONTEXT_CHARS - 3))


def _delegation_context(args: Mapping[str, Json], agent: str | None = None) -> str:
    if agent is None:
        named = args.get("agent")
        agent = named if isinstance(named, str) else ""
    said = args.get("label") or args.get("prompt")
    what = (said if said and isinstance(said, str) else _first(args, _PROMPTS)).strip()
    if len(what) > 60:
        what = what[:57] + "..."
    if len(agent) > 60:
        agent = agent[:57] + "..."
    return _tidy(f"{agent}: {what}" if agent and what else agent or what)


def _first(args: Mapping[str, Json], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = args.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _tidy(text: str) -> str:
    return text if text.isascii() and text.isprintable() else one_line(clean(text))


def _first_line(content: str) -> str:
    return content.lstrip().partition("\n")[0].rstrip()


def _brief(line: str) -> str:
    return _tidy(shorten(line, 50, 47))
