"""Which system a file of agents was written for, by its name and folder, and which files beside agents are none."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Literal

from remit.tools.settings_files import OPENCODE_FILES, ROO_FILE

Format = Literal["plain", "copilot", "cursor", "kiro", "opencode", "roo"]
"""Whose words a file has. `plain` is remit's own, Claude Code's and all that write like it."""

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
    """By its name, else by the folder that it is in."""
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
    # A JSON file that somebody names can only be one of Kiro.
    return "kiro" if name.endswith(".json") else "plain"


def name_of(path: Path) -> str:
    """What an agent is called when its file does not say."""
    stem = path.stem
    return stem.removesuffix(".agent").removesuffix(".chatmode") or stem


def why_no_agent(name: str) -> str:
    """Why a file that lies beside agents is none; empty for others."""
    name = name.lower()
    if name == SKILL:
        return "This is a skill, not an agent; it was passed over."
    what = next((what for ending, what in _OTHER_FILES.items() if name.endswith(ending)), "")
    return f"This is {what}, not an agent; it was passed over." if what else ""
