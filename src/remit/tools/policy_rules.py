"""Policy rules such as `allow terminal(git status*)`: a call's subjects, and the rules that match them.

`*` and `?` match any characters, including a slash. A pattern that ends with `:*` matches a command with any arguments. In
a pattern for addresses (`domain:example.com`, `https://docs.example.com/guide/*`, `example.com`) host and path are matched
separately: a star in the host never matches part of the path.

A tool names the subjects of a call (`subjects=`); otherwise they are the texts among its arguments.
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
"""The most texts of a call that rules are matched against. A call with more is unclear."""
ANYTHING = "\0"
"""A placeholder in `Subject.also` for text known only when the call runs. No command or path contains this character."""


class Subject(Struct, frozen=True):
    """One text that rules such as `terminal(git status*)` are matched against: a command, a path, an address."""

    text: str
    also: tuple[str, ...] = ()
    """Other readings of the text, for rules that ask or deny only. They may contain `ANYTHING`."""
    clear: bool = True
    """False if the effect is unknown before the call runs. No pattern allows an unclear subject."""
    host: str = ""
    """The host of an address, in lower case, for patterns such as `domain:example.com`."""
    assigned: tuple[str, ...] = ()
    """Variables set for the command. A pattern that allows the command must contain each of them as `NAME=`."""


def texts(args: JsonObject) -> tuple[Subject, ...]:
    """Every text among the arguments at any depth; numbers as text. Beyond `MOST_TEXTS`, an unclear subject is added."""
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
    """A path relative to the workspace with symlinks resolved, so that a symlink cannot bypass a rule."""
    root = os.path.realpath(workspace or ".")
    try:
        real = os.path.relpath(os.path.realpath(os.path.join(root, path)), root)  # noqa: PTH118 - as the tool will
    except (OSError, ValueError):
        return Subject(path, clear=False)
    return Subject(real.replace(os.sep, "/"), also=(path, os.path.normpath(path)))


Answer = Literal["allow", "ask", "deny"]

_RULE = r"(?s)(?P<answer>allow|ask|deny)\s+(?P<name>[^\s()]+)(\((?P<pattern>.*)\))?"


class Rule(Struct, frozen=True):
    """One rule. Without a pattern it matches every call of the tools it names."""

    answer: Answer
    name: str
    pattern: str = ""

    def names(self, tool: str) -> bool:
        return _matches(tool, self.name)

    def matches(self, subject: Subject) -> bool:
        """Whether the rule matches. An allowing pattern needs a clear subject; ask and deny try every reading."""
        if not self.pattern:
            return True
        if self.answer == "allow":
            named = all(f"{name}=" in self.pattern for name in subject.assigned)
            return subject.clear and named and self._fits(subject.text, subject.host)
        return any(self._fits(text, subject.host) for text in (subject.text, *subject.also))

    def may_match(self, subject: Subject) -> bool:
        """Whether an ask or deny rule could match text that is known only when the call runs."""
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
    import fnmatch  # noqa: PLC0415 - needed only for rules

    return fnmatch.fnmatchcase(text, pattern)


_BRACKETS = re.compile(r"\[!?\]?[^\]]*\]")


def _overlaps(text: str, pattern: str) -> bool:
    """Whether the pattern could match the text once its `ANYTHING` is known.

    Comparing both ends is enough: in the middle, `ANYTHING` or `*` can match what the other side has.
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
    """Read a rule. Raises UsageError for an invalid one."""
    found = re.fullmatch(_RULE, rule.strip()) if isinstance(rule, str) else None
    if found is None and isinstance(rule, str) and "(" in rule and not rule.rstrip().endswith(")"):
        raise UsageError(f"{where}: policy rule {rule!r} must end with a closing bracket.")
    if found is None:
        raise UsageError(
            f'{where}: policy rule {rule!r} must be "allow", "ask" or "deny" and a tool name or pattern, such as'
            ' "ask terminal" or "allow terminal(git status*)".'
        )
    pattern = found["pattern"]
    if pattern is not None and not pattern.strip():
        raise UsageError(f"{where}: policy rule {rule!r} has an empty pattern between its brackets.")
    answer: Answer = "allow" if found["answer"] == "allow" else "ask" if found["answer"] == "ask" else "deny"
    # `(*)` covers every call, unclear ones too, so it equals a rule without a pattern.
    return Rule(answer, found["name"], "" if pattern in (None, "*") else pattern.strip())


class Ruling(Struct, frozen=True):
    """The answer for a call, and the reasons: the matching rules as they are written.

    Reasons to ask also include `NO_RULE` for a part that no rule allows, `UNCLEAR` for an unclear part, `SETTINGS` for a
    change that no rule can allow, and "" for a tool whose tier requires approval.
    """

    answer: Answer
    reasons: tuple[str, ...]
    by_pattern: bool = False
    """True if a rule with a pattern allows the call."""


NO_RULE = "no rule allows all of this"
SETTINGS = "remit reads this file as settings, so a person must approve each change"
UNCLEAR = "the effect is unknown before it runs, and an ask or deny rule might match it"


def decide(rules: Sequence[Rule], subjects: Sequence[Subject]) -> Ruling | None:
    """The ruling on a call; None if no rule denies or asks, and not every subject is allowed.

    The strictest rule that matches any subject wins; "allow" needs a rule for every subject.
    An unclear subject is asked about if an ask or deny rule has a pattern.
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
    """The strictest rule; among allowing rules, one without a pattern comes first."""
    return min(rules, key=_strictness, default=None)


def _strictness(rule: Rule) -> tuple[int, bool]:
    return _ORDER.index(rule.answer), rule.answer == "allow" and bool(rule.pattern)


_DOMAIN = "domain:"
_PORTS = {"https": ":443", "http": ":80"}
_SCHEME = r"(?i)\s*(?:([a-z*?]+)://)?"


def _fits_address(pattern: str, address: str, host: str, *, strict: bool) -> bool:
    """Whether a pattern matches an address. `strict`: a pattern with a scheme and no path matches the start page only."""
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
    # In a pattern a question mark matches one character, so it does not end the host.
    at = min((place for place in (rest.find("/"), rest.find("#")) if place >= 0), default=len(rest))
    return (found[1] or "").lower(), rest[:at].lower(), rest[at:]


def _host(authority: str, scheme: str = "", *, keep_port: bool = False) -> str:
    """An authority as in a parsed address: in punycode, without the scheme's default port."""
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
