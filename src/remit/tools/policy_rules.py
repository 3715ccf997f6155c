"""Rules of a policy, `allow terminal(git status*)`: what a call is about, and which rules match it.

`*` and `?` match any characters, a slash too. A pattern that ends with `:*` is a command and whatever follows it. In a
pattern for addresses (`domain:example.com`, `https://docs.example.com/guide/*`, `example.com`) host and path are matched
apart: a star that stands for a part of a host never reaches into the path.

Tools say what a call is about (`subjects=`), or it is read from the call's arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from remit.errors import UsageError
from remit.types.messages import Json, JsonObject
from remit.types.text import text_of

if TYPE_CHECKING:
    from pathlib import Path

MOST_TEXTS = 1000
"""Texts of a call that rules look at; what has more is asked about."""
ANYTHING = "\0"
"""In a reading of a subject: text that is known only when the call runs. No command or path contains this character."""


class Subject(Struct, frozen=True):
    """One thing that a call is about, for rules such as `terminal(git status*)`."""

    text: str
    also: tuple[str, ...] = ()
    """Other ways to read it: only rules that ask or deny are matched with these. They may hold `ANYTHING`."""
    clear: bool = True
    """Whether it can be told what it would do; what is not clear no pattern allows."""
    host: str = ""
    """The host of an address, in lower case, for patterns such as `domain:example.com`."""
    assigned: tuple[str, ...] = ()
    """Variables that are set for a command. A pattern that allows the command must name each of them: `NAME=`."""


def texts(args: JsonObject) -> tuple[Subject, ...]:
    """Every text among the arguments, however deep; numbers as they are written. Beyond the bound it is unclear."""
    found: list[Subject] = []
    left: list[Json] = list(args.values())
    while left and len(found) < MOST_TEXTS:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *cast(JsonObject, value).values()]
        elif isinstance(value, list):
            left += cast("list[Json]", value)
        elif value is not None:
            found.append(Subject(text_of(value)))
    return tuple(found) if not left else (*found, Subject("", clear=False))


def place(path: str, workspace: Path | None) -> Subject:
    """Where a path really leads, from the workspace; a link must not go round a rule."""
    root = os.path.realpath(workspace or ".")
    try:
        real = os.path.relpath(os.path.realpath(os.path.join(root, path)), root)  # noqa: PTH118 - as the tool will
    except (OSError, ValueError):
        return Subject(path, clear=False)
    return Subject(real.replace(os.sep, "/"), also=(path, os.path.normpath(path)))


Answer = Literal["allow", "ask", "deny"]

_RULE = r"(?s)(?P<answer>allow|ask|deny)\s+(?P<name>[^\s()]+)(\((?P<pattern>.*)\))?"


class Rule(Struct, frozen=True):
    """One rule. Without a pattern it is about every call of the tools it names."""

    answer: Answer
    name: str
    pattern: str = ""

    def names(self, tool: str) -> bool:
        return _matches(tool, self.name)

    def matches(self, subject: Subject) -> bool:
        """An allowing pattern needs to know what it allows; the others look at every way to read it."""
        if not self.pattern:
            return True
        if self.answer == "allow":
            named = all(f"{name}=" in self.pattern for name in subject.assigned)
            return subject.clear and named and self._fits(subject.text, subject.host)
        return any(self._fits(text, subject.host) for text in (subject.text, *subject.also))

    def may_match(self, subject: Subject) -> bool:
        """Whether a rule that asks or denies could match something that is known only when the call runs."""
        if not self.pattern or self.answer == "allow":
            return False
        return not subject.clear or any(_overlaps(text, self.pattern) for text in subject.also)

    def _fits(self, text: str, host: str) -> bool:
        if host:
            return _fits_address(self.pattern, text, host, strict=self.answer == "allow")
        if self.pattern.endswith(":*"):
            stem = self.pattern.removesuffix(":*")
            return text == stem or text.startswith(f"{stem} ")
        return _matches(text, self.pattern)

    def __str__(self) -> str:
        return f"{self.answer} {self.name}" + (f"({self.pattern})" if self.pattern else "")


def _matches(text: str, pattern: str) -> bool:
    import fnmatch  # noqa: PLC0415 - for those who have rules

    return fnmatch.fnmatchcase(text, pattern)


_BRACKETS = re.compile(r"\[!?\]?[^\]]*\]")


def _overlaps(text: str, pattern: str) -> bool:
    """Whether a text with `ANYTHING` in it could become one that the pattern matches.

    Only the two ends have to agree: between them, both can stand for whatever the other needs.
    """
    if ANYTHING not in text:
        return False
    stem = pattern.removesuffix(":*")
    if stem != pattern:
        return _overlaps(text, stem) or _overlaps(text, f"{stem} *")
    pattern = _BRACKETS.sub("?", pattern)
    first, last = text.partition(ANYTHING)[0], text.rpartition(ANYTHING)[2]
    if "*" not in pattern:
        ends = (pattern, pattern) if len(first) + len(last) <= len(pattern) else None
    else:
        ends = (pattern.partition("*")[0], pattern.rpartition("*")[2])
    return ends is not None and _agree(ends[0], first) and _agree(ends[1][::-1], last[::-1])


def _agree(pattern: str, text: str) -> bool:
    return all(wanted in ("?", char) for wanted, char in zip(pattern, text, strict=False))


def parse(rule: object, where: str) -> Rule:
    """Raises UsageError for what is no rule."""
    found = re.fullmatch(_RULE, rule.strip()) if isinstance(rule, str) else None
    if found is None and isinstance(rule, str) and "(" in rule and not rule.rstrip().endswith(")"):
        raise UsageError(f"{where}: policy rule {rule!r} has no closing bracket at its end.")
    if found is None:
        raise UsageError(
            f'{where}: policy rule {rule!r} must be "allow", "ask" or "deny" and a tool name or pattern, such as'
            ' "ask terminal" or "allow terminal(git status*)".'
        )
    pattern = found["pattern"]
    if pattern is not None and not pattern.strip():
        raise UsageError(f"{where}: policy rule {rule!r} has nothing between its brackets.")
    answer: Answer = "allow" if found["answer"] == "allow" else "ask" if found["answer"] == "ask" else "deny"
    # Everything is everything, also what cannot be told apart.
    return Rule(answer, found["name"], "" if pattern in (None, "*") else pattern.strip())


class Ruling(Struct, frozen=True):
    """What rules say of a call, and why: the rules as they are written.

    Where they ask, also `NO_RULE` for a part that no rule allows, and `UNCLEAR` for one that cannot be told apart. "" is
    for a tool whose tier has it asked, `SETTINGS` for a change that no rule can allow.
    """

    answer: Answer
    reasons: tuple[str, ...]
    by_pattern: bool = False
    """Whether it allows the call for what it does: a rule without a pattern would not have had to look."""


NO_RULE = "no rule allows all of this"
SETTINGS = "remit reads this file as settings, so that a person must approve each change"
UNCLEAR = "it cannot be told what this does, and a rule has a pattern that may speak of it"


def decide(rules: Sequence[Rule], subjects: Sequence[Subject]) -> Ruling | None:
    """What the rules say of a call; None when they have no opinion on all of it.

    The strictest that matches any part of the call wins, and an allowance holds only where every part has one.
    What cannot be told apart is asked about where a pattern would ask or deny.
    """
    if not subjects:
        found = [_strictest([rule for rule in rules if not rule.pattern])]
    else:
        found = [_strictest([rule for rule in rules if rule.matches(subject)]) for subject in subjects]
    denying = [rule for rule in found if rule is not None and rule.answer == "deny"]
    if denying:
        return Ruling("deny", (str(denying[0]),))
    reasons = {str(rule) for rule in found if rule is not None and rule.answer == "ask"}
    if any(rule.may_match(subject) for rule in rules for subject in subjects):
        reasons.add(UNCLEAR)
    if reasons:
        return Ruling("ask", tuple(sorted(reasons | {NO_RULE} if None in found else reasons)))
    allowing = [rule for rule in found if rule is not None]
    if len(allowing) < len(found):
        return None
    return Ruling("allow", tuple(sorted(map(str, {*allowing}))), any(rule.pattern for rule in allowing))


_ORDER = ("deny", "ask", "allow")


def _strictest(rules: Sequence[Rule]) -> Rule | None:
    """Of several that allow, the one without a pattern: it allows more."""
    return min(rules, key=_strictness, default=None)


def _strictness(rule: Rule) -> tuple[int, bool]:
    return _ORDER.index(rule.answer), rule.answer == "allow" and bool(rule.pattern)


_DOMAIN = "domain:"
_PORTS = {"https": ":443", "http": ":80"}
_SCHEME = r"(?i)\s*(?:([a-z*?]+)://)?"


def _fits_address(pattern: str, address: str, host: str, *, strict: bool) -> bool:
    """Whether a pattern speaks of an address. `strict`: without a path it means the start page alone, not all pages."""
    if pattern.startswith(_DOMAIN):
        wanted = _host(_split_address(pattern.removeprefix(_DOMAIN))[1]).removeprefix("*.")
        return bool(wanted) and (host == wanted or host.endswith(f".{wanted}"))
    scheme, authority, path = _split_address(pattern)
    its_scheme, its_authority, its_path = _split_address(address)
    if scheme and not _matches(its_scheme, scheme):
        return False
    # Without a scheme, as people write a site's name, the port does not matter.
    its_place = its_authority if scheme else host
    place = _host(authority, scheme or "", keep_port=bool(scheme))
    if not _matches(its_place, place.replace("[", "[[]")):
        return False
    if not path:
        return not (strict and scheme) or its_path in ("", "/")
    return _matches(its_path or "/", path)


def _split_address(text: str) -> tuple[str, str, str]:
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
