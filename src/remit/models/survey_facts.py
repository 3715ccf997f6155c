"""Facts about a folder for the offline rules: read from listings, merged, rendered as a report, parsed from a report."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec
from msgspec import Struct

LANGUAGES = {
    "py": "Python", "pyi": "Python", "js": "JavaScript", "mjs": "JavaScript", "jsx": "JavaScript",
    "ts": "TypeScript", "tsx": "TypeScript", "go": "Go", "rs": "Rust", "java": "Java", "kt": "Kotlin",
    "c": "C", "h": "C", "cc": "C++", "cpp": "C++", "hpp": "C++", "cs": "C#", "rb": "Ruby", "php": "PHP",
    "swift": "Swift", "scala": "Scala", "sh": "Shell", "bash": "Shell", "sql": "SQL", "html": "HTML",
    "css": "CSS", "md": "Markdown", "rst": "reStructuredText", "json": "JSON", "jsonl": "JSON",
    "toml": "TOML", "yaml": "YAML", "yml": "YAML", "txt": "text", "lua": "Lua", "r": "R", "ipynb": "notebook",
}  # fmt: skip
LICENCES = {
    "MIT": r"\bMIT License\b|Permission is hereby granted, free of charge",
    "Apache-2.0": r"Apache License",
    "GPL": r"GNU GENERAL PUBLIC LICENSE",
    "LGPL": r"GNU LESSER GENERAL PUBLIC LICENSE",
    "AGPL": r"GNU AFFERO GENERAL PUBLIC LICENSE",
    "BSD": r"Redistribution and use in source and binary forms",
    "MPL-2.0": r"Mozilla Public License",
}
_ENTRIES = re.compile(
    r"__main__\.py|main\.(py|go|rs|c|cpp|ts|js)|index\.(js|ts)|manage\.py|Makefile|Dockerfile|package\.json"
    r"|pyproject\.toml|Cargo\.toml|go\.mod",
)
_TEST = re.compile(r"test_.*|.*_test\.\w+|.*\.(test|spec)\.\w+|conftest\.py")
_LICENCE = re.compile(r"(LICEN[CS]E|COPYING)[^/]*", re.IGNORECASE)
_FILE = re.compile(r"^( *)(.+?)  ([\d.]+) (bytes?|KB|MB|GB|TB)$")
_FOLDER = re.compile(r"^( *)(.+?)/(  \(.*\))?$")
_MORE = re.compile(r"^\.\.\. ([\d,]+) more")
_COUNT = re.compile(r"^(.+?):\s*(\d+)$", re.MULTILINE)
_UNITS = {"byte": 1, "bytes": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}

DEEPEST = 10
"""The most levels of one listing."""

LARGEST = 8
LISTED = 12


@dataclass(slots=True)
class Facts:
    """The facts about a folder. Sizes come from listings, which round them."""

    folder: str
    files: dict[str, float] = field(default_factory=dict[str, float])
    """The files directly in it, with their sizes."""
    folders: list[str] = field(default_factory=list[str])
    """The folders directly in it."""
    lines: int = 0
    count: int = 0
    size: float = 0.0
    languages: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    largest: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    todo: dict[str, int] = field(default_factory=dict[str, int])
    tests: int = 0
    licences: list[str] = field(default_factory=list[str])
    entries: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    """Folders that were not surveyed, with the reason."""
    more: dict[str, int] = field(default_factory=dict[str, int])
    """The number of items omitted from each long list in the reports of parts."""

    def add_file(self, path: str, size: float) -> None:
        name = PurePosixPath(path).name
        language = LANGUAGES.get(name.rpartition(".")[2].lower() if "." in name else "", "other")
        files, total = self.languages.get(language, (0, 0.0))
        self.languages[language] = (files + 1, total + size)
        self.count += 1
        self.size += size
        self.largest = sorted([*self.largest, (size, path)], reverse=True)[:LARGEST]
        self.tests += bool(_TEST.fullmatch(name))
        if _LICENCE.fullmatch(name):
            self.licences.append(path)
        if _ENTRIES.fullmatch(name):
            self.entries.append(path)

    def own(self) -> Facts:
        """The facts about the files directly in the folder."""
        facts = Facts(self.folder)
        for name, size in self.files.items():
            facts.add_file(join(self.folder, name), size)
        return facts

    def add_todo(self, counted: str, *, own: bool) -> None:
        """Add counts of TODO and FIXME; with `own`, only for files directly in the folder."""
        for path, number in _COUNT.findall(counted):
            parent = str(PurePosixPath(path).parent)
            if not own or parent == self.folder:
                self.todo[path] = int(number)

    def add_read(self, path: str, content: str) -> None:
        """Add the licence that the beginning of a file names."""
        if path in self.licences:
            known = next((name for name, shape in LICENCES.items() if re.search(shape, content)), "")
            self.licences[self.licences.index(path)] = f"{path} ({known})" if known else path


def join(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def of_listing(folder: str, listing: str) -> Facts:
    """The facts in the output of `ls`."""
    facts = Facts(folder)
    above: list[str] = []
    for line in listing.split("\n"):
        facts.lines += 1
        if more := _MORE.match(line):
            facts.lines += int(more[1].replace(",", ""))
            facts.missing.append(f"{folder} ({more[1]} entries were not listed)")
        elif found := _FILE.match(line):
            depth = len(found[1]) // 2
            size = float(found[3]) * _UNITS[found[4]]
            if depth == 0:
                facts.files[found[2]] = size
            facts.add_file(join(folder, "/".join([*above[:depth], found[2]])), size)
        elif found := _FOLDER.match(line):
            depth = len(found[1]) // 2
            above = [*above[:depth], found[2]]
            if depth == DEEPEST - 1:
                facts.missing.append(f"{join(folder, '/'.join(above))} (too deep)")
            if depth == 0:
                facts.folders.append(found[2])
    return facts


def merge(facts: Facts, part: Facts) -> Facts:
    """Merge the facts of a part into the facts of its folder."""
    for language, (files, size) in part.languages.items():
        before = facts.languages.get(language, (0, 0.0))
        facts.languages[language] = (before[0] + files, before[1] + size)
    facts.count += part.count
    facts.size += part.size
    facts.largest = sorted([*facts.largest, *part.largest], reverse=True)[:LARGEST]
    facts.todo |= part.todo
    facts.tests += part.tests
    facts.licences += part.licences
    facts.entries += part.entries
    facts.missing += part.missing
    for name, count in part.more.items():
        facts.more[name] = facts.more.get(name, 0) + count
    return facts


class Note(Struct, omit_defaults=True):
    """Facts in a surveyor's report: exact numbers, the beginning of each long list, and the number of omitted items."""

    folder: str
    count: int = 0
    size: float = 0.0
    languages: dict[str, tuple[int, float]] = {}
    largest: list[tuple[float, str]] = []
    todo: list[tuple[int, str]] = []
    tests: int = 0
    licences: list[str] = []
    entries: list[str] = []
    missing: list[str] = []
    more: dict[str, int] = {}


def render(facts: Facts, label: str, *, for_people: bool) -> str:
    """A report; unless it is for people, its second line holds the facts for `parse`."""
    languages = sorted(facts.languages.items(), key=lambda item: (-item[1][1], item[0]))
    todo = [f"{path} {n}" for path, n in _by_count(facts.todo)]
    more = facts.more
    lines = [
        f"# Survey of `{facts.folder}`",
        *([] if for_people else [f"<!-- {msgspec.json.encode(_note(facts)).decode()} -->"]),
        f"(by {label})",
        "",
        f"- files: {facts.count:,}, about {_size(facts.size)}",
        f"- languages: {_listed([f'{name} {_files(n)} about {_size(size)}' for name, (n, size) in languages], 0)}",
        f"- largest: {_listed([f'{path} {_size(size)}' for size, path in facts.largest], 0)}",
        f"- TODO and FIXME: {_listed(todo, more.get('todo', 0))}",
        f"- tests: {_files(facts.tests)}",
        f"- licences: {_listed(facts.licences, more.get('licences', 0))}",
        f"- entry points: {_listed(facts.entries, more.get('entries', 0))}",
    ]
    if facts.missing:
        lines.append(f"- not surveyed: {_listed(facts.missing, more.get('missing', 0))}")
    return "\n".join(lines)


def parse(report: str) -> Facts | None:
    """The facts in a report; None if the text is not a report."""
    found = re.search(r"^# Survey of .*\n<!-- (\{.*\}) -->$", report, re.MULTILINE)
    if found is None:
        return None
    try:
        note = msgspec.json.decode(found[1], type=Note)
    except msgspec.DecodeError:
        return None
    facts = Facts(note.folder, count=note.count, size=note.size, languages=note.languages, tests=note.tests)
    facts.largest, facts.todo = note.largest, {path: n for n, path in note.todo}
    facts.licences, facts.entries, facts.missing = note.licences, note.entries, note.missing
    facts.more = note.more
    return facts


def _note(facts: Facts) -> Note:
    todo = [(n, path) for path, n in _by_count(facts.todo)]
    lists = {"todo": todo, "licences": facts.licences, "entries": facts.entries, "missing": facts.missing}
    more = {name: max(0, len(items) - LISTED) + facts.more.get(name, 0) for name, items in lists.items()}
    return Note(
        folder=facts.folder,
        count=facts.count,
        size=facts.size,
        languages=facts.languages,
        largest=facts.largest,
        todo=todo[:LISTED],
        tests=facts.tests,
        licences=facts.licences[:LISTED],
        entries=facts.entries[:LISTED],
        missing=facts.missing[:LISTED],
        more={name: count for name, count in more.items() if count},
    )


def _by_count(todo: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(todo.items(), key=lambda item: (-item[1], item[0]))


def _listed(items: list[str], more: int) -> str:
    more += max(0, len(items) - LISTED)
    if not items:
        return "none"
    return "; ".join([*items[:LISTED], *([f"and {more} more"] if more else [])])


def _size(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} bytes"
    power = min(3, (len(f"{size:.0f}") - 1) // 3)
    amount, unit = size / 1000**power, ("bytes", "KB", "MB", "GB")[power]
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"


def _files(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"
