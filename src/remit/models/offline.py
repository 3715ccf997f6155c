"""`offline`: a set of rules, not a language model, for users without a key or a network.

The rules do one job with the real engine and the real tools: survey a folder. They list the folder, delegate one
surveyor per part, and combine the facts. Every fact comes from a tool result in the conversation; the rules never read
the disk. Any other task gets the answer that they cannot do it.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from remit.models.survey_facts import Facts, merge, of_listing, parse, render
from remit.types.limits import Usage
from remit.types.messages import (
    MARK,
    AssistantMessage,
    Call,
    JsonObject,
    Reply,
    Request,
    ToolMessage,
    UserMessage,
)
from remit.types.ports import Emit, Price
from remit.types.text import clean

LABEL = "remit's offline rules, not a language model"
MOST_PARTS = 24
"""The most folders that are delegated; the report lists the others as not surveyed."""

LARGE = 300
"""A folder whose listing has more lines than this is delegated in parts."""

TODO = r"\b(TODO|FIXME)\b"
_NAMED = re.compile(r'folder ("(?:[^"\\]|\\.)*")')
_FOLDER = re.compile(r"`([^`\n]+)`")
_SURVEY = re.compile(r"survey\w*", re.IGNORECASE)
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_FILLER = re.compile(
    r"an?|the|this|my|our|whole|entire|current|working|of|folder|directory|repo|repository|project|workspace|code|base"
    r"|codebase|it|all|here|everything|please|now|again",
    re.IGNORECASE,
)
_AND_THEN = frozenset(("and", "then", "to", "for", "with"))
"""Words after one of these do not name the folder."""
UNCLEAR = (
    "The task does not name one folder, so the whole workspace was surveyed. Name one folder: Survey docs"
)
_AGENT = re.compile(r'^- "([A-Za-z0-9_-]+)":', re.MULTILINE)
_READ = re.compile(r"(LICEN[CS]E|COPYING)[^/]*|pyproject\.toml|package\.json", re.IGNORECASE)


class Done(NamedTuple):
    """A call that was made, and its result."""

    call: Call
    result: ToolMessage

    @property
    def args(self) -> JsonObject:
        return self.call.args if isinstance(self.call.args, dict) else {}


class Offline:
    """Rules that survey a folder, without cost and without streaming."""

    name = "offline"
    price = Price(0.0, 0.0)

    async def reply(self, request: Request, emit: Emit) -> Reply:
        del emit
        usage = Usage(requests=1, usd=0.0)
        survey = _Survey(request)
        calls = survey.calls()
        if calls:
            return Reply(calls=calls, stop="calls", usage=usage, model=self.name)
        return Reply(survey.report(), usage=usage, model=self.name)


def is_survey(task: str) -> bool:
    """Whether these rules can do a task."""
    return bool(re.search(r"survey|folder|directory|repository|code ?base", task, re.IGNORECASE))


def _folder_in(task: str) -> str | None:
    """The folder in a task, quoted or not; None if it is unclear.

    Only the first line counts: attachments are on later lines.
    """
    line = task.strip().partition("\n")[0]
    if named := _NAMED.search(line):
        try:
            return clean(json.loads(named[1]))
        except ValueError:
            # Not valid JSON: a Windows path with single backslashes.
            return named[1][1:-1]
    if found := _FOLDER.search(line):
        return found[1]
    behind = _SURVEY.search(line)
    rest = line[behind.end() :] if behind else ""
    if quoted := _QUOTED.search(rest):
        return quoted[1] or quoted[2]
    words = [word.rstrip(".,;:!?") for word in rest.split() if not word.startswith("@")]
    names = [word for word in words if word and not _FILLER.fullmatch(word)]
    if not names or names[0].lower() in _AND_THEN:
        return "."
    return names[0].rstrip("/") or "/" if len(names) == 1 else None


class _Survey:
    """A run's knowledge of its folder so far, and its next calls."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tools = {spec.name: spec for spec in request.tools}
        said = [m.text for m in request.messages if isinstance(m, UserMessage)]
        task = next((text for text in reversed(said) if not text.startswith(MARK)), "")
        self.asked = is_survey(task)
        self.named = _folder_in(task)
        self.folder = self.named or "."
        self.can = self.asked and "ls" in self.tools
        self.done = list(_results(request))
        self.listing = next((d.result for d in self.done if d.call.name == "ls"), None)

    def calls(self) -> tuple[Call, ...]:
        """The next calls; none if the survey is complete."""
        if self.request.tool_choice == "none" or not self.can:
            return ()
        if not self.done:
            return self._look()
        if not any(d.call.name == "task" for d in self.done):
            return self._hand_on()
        return ()

    def _look(self) -> tuple[Call, ...]:
        calls = [Call("ls", "ls", {"path": self.folder, "depth": 10})]
        if "grep" in self.tools:
            calls.append(Call("todo", "grep", {"pattern": TODO, "path": self.folder, "mode": "count"}))
        return tuple(calls)

    def _hand_on(self) -> tuple[Call, ...]:
        """One surveyor per part if the folder is large, and calls to read the licence and project files."""
        listing = self._own_listing()
        calls: list[Call] = []
        if "read" in self.tools and self.folder == "." and not any(d.call.name == "read" for d in self.done):
            named = [name for name in listing.files if _READ.fullmatch(name)]
            calls += [
                Call(f"read{n}", "read", {"path": name, "limit": 60}) for n, name in enumerate(named[:6])
            ]
        surveyor = _AGENT.search(self.tools["task"].description) if "task" in self.tools else None
        if surveyor and listing.folders and (self.folder == "." or listing.lines > LARGE):
            for number, name in enumerate(listing.folders[:MOST_PARTS]):
                path = name if self.folder == "." else f"{self.folder}/{name}"
                prompt = f"Survey the folder {json.dumps(path, ensure_ascii=False)} and report what is in it."
                args: JsonObject = {"agent": surveyor[1], "prompt": prompt, "description": path}
                calls.append(Call(f"part{number}", "task", args))
        return tuple(calls)

    def _own_listing(self) -> Facts:
        if self.listing is None or not self.listing.ok:
            return Facts(self.folder)
        return of_listing(self.folder, self.listing.content)

    def report(self) -> str:
        """The report, from the tool results alone."""
        if not self.can:
            return (
                f"This is {LABEL}. They can only survey a folder, with the tools ls, grep and read. For other tasks,"
                ' choose a real model, such as model="anthropic:claude-haiku-4-5".'
            )
        if self.listing is not None and not self.listing.ok:
            return f"The folder `{self.folder}` could not be listed: {self.listing.content}\n\n({LABEL})"
        parts = [d for d in self.done if d.call.name == "task"]
        facts = self._own_listing()
        facts = facts.own() if parts else facts
        facts.add_todo(
            next((d.result.content for d in self.done if d.call.id == "todo"), ""), own=bool(parts)
        )
        for read in (d for d in self.done if d.call.name == "read" and d.result.ok):
            facts.add_read(str(read.args.get("path", "")), read.result.content)
        for part in parts:
            found = parse(part.result.content)
            if found is None:
                facts.missing.append(f"{part.args.get('description')} ({_why(part.result)})")
            else:
                facts = merge(facts, found)
        if parts:
            facts.missing += [
                f"{name} (too many folders)" for name in self._own_listing().folders[MOST_PARTS:]
            ]
        report = render(facts, LABEL, for_people=self.request.depth == 0)
        return report if self.named else f"{report}\n\n{UNCLEAR}"


def _results(request: Request) -> list[Done]:
    found: list[Done] = []
    calls: dict[str, Call] = {}
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            calls = {call.id: call for call in message.calls}
        elif isinstance(message, ToolMessage) and message.call_id in calls:
            found.append(Done(calls[message.call_id], message))
    return found


def _why(result: ToolMessage) -> str:
    return result.content.split("\n", 1)[0][:80].rstrip(".") or "no answer"
