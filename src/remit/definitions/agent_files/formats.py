"""Which system an agent file was written for, by its name and folder, and which files beside agents are not agents."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Literal

from remit.tools.settings_files import OPENCODE_FILES, ROO_FILE

Format = Literal["plain", "copilot", "cursor", "kiro", "opencode", "roo"]
"""The system that a file was written for. `plain` covers remit, Claude Code and systems with the same keys."""

FOREIGN: frozenset[Format] = frozenset({"copilot", "cursor", "kiro", "opencode", "roo"})

_BY_FOLDER: dict[tuple[str, str], Format] = {
    (".github", "agents"): "copilot",
    (".cursor", "agents"): "cursor",
    (".kiro", "agents"): "kiro",
    (".opencode", "agents"): "opencode",
    (".opencode", "agent"): "opencode",
    ("opencode", "agents"): "opencode",
    ("opencode", "agent"): "opencode",
}

_OTHER_FILES = {
    ".prompt.md": "a prompt",
    ".instructions.md": "a file of instructions",
}
COMMAND_FOLDERS = frozenset({"commands", "command"})
SKILL = "skill.md"


def format_of(path: Path) -> Format:
    """By the file's name, else by its folder."""
    name = path.name.lower()
    if name == ROO_FILE:
        return "roo"
    if name in OPENCODE_FILES:
        return "opencode"
    if name.endswith((".agent.md", ".chatmode.md")):
        return "copilot"
    parts = [part.lower() for part in path.absolute().parts[:-1]]
    for pair in reversed([*pairwise(parts)]):
        if pair in _BY_FOLDER:
            return _BY_FOLDER[pair]
    # Only Kiro has agents in JSON files, so a JSON file in any other folder is Kiro's.
    return "kiro" if name.endswith(".json") else "plain"


def name_of(path: Path) -> str:
    """The agent's name if its file does not give one."""
    stem = path.stem
    return stem.removesuffix(".agent").removesuffix(".chatmode") or stem


def why_no_agent(name: str) -> str:
    """Why a file beside agents is not an agent; empty if it may be one."""
    name = name.lower()
    if name == SKILL:
        return "This is a skill, not an agent; it was ignored."
    what = next((what for ending, what in _OTHER_FILES.items() if name.endswith(ending)), "")
    return f"This is {what}, not an agent; it was ignored." if what else ""
