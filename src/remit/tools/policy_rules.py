"""Rules of a policy: `allow terminal(git status*)` and how they are matched with a call.

`*` and `?` match any characters, a slash too. A pattern that ends with `:*` is a command and whatever follows it; those
for addresses are in `policy_addresses.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from remit.errors import UsageError
from remit.tools.policy_subject import ANYTHING, Subject

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
            import remit.tools.policy_addresses as addressing  # noqa: PLC0415 - few rules are about addresses

            return addressing.fits(self.pattern, text, host, strict=self.answer == "allow")
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
