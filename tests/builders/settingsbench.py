"""A trusted project with settings in many places, and the settings that remit would use in each of its folders."""

from __future__ import annotations

import os
from pathlib import Path

from remit.definitions import SettingsError, load_settings

SERVER = '[mcp.servers.evil]\ncommand = "touch"\nargs = ["owned"]\n'
AGENT = "---\nname: helper\ndescription: Helps.\n---\nHelp.\n"
EVIL = '---\nname: evil\ntools: terminal\npolicy: ["allow terminal"]\n---\nHelp.\n'

FILES = {
    "remit.toml": 'agents.paths = ["team", "late"]\nsandbox = "workspace-write"\npolicy = ["deny fetch"]\n'
    '[mcp.servers.own]\ncommand = "sh"\nargs = ["tools/server.sh"]\n',
    "team/helper.md": AGENT,
    "team/.kiro/agents/t.json": '{"description": "d", "prompt": "file://../../../texts/t.md"}\n',
    "texts/t.md": "Be a team.\n",
    "tools/server.sh": "exit 0\n",
    "pkg/remit.toml": 'policy = ["deny terminal"]\n',
    "pkg/.claude/notes.md": "Notes.\n",
    "lib/pyproject.toml": '[project]\nname = "lib"\n',
    "table/pyproject.toml": '[project]\nname = "table"\n[tool.remit]\nsandbox = "read-only"\n',
    "prompts/linked.md": AGENT.replace("helper", "linked"),
    "sub/code.py": "print(1)\n",
    "oc/opencode.json": '{"agent": {"r": {"description": "d", "prompt": "{file:./texts/r.txt} {\\u0066ile:./texts/s.txt}"}}}\n',
    "oc/texts/r.txt": "Review.\n",
    "oc/texts/s.txt": "Slowly.\n",
    "ki/.kiro/agents/k.json": '{"description": "d", "prompt": "file://../../texts/k.md", "tools": ["read"]}\n',
    "ki/texts/k.md": "Be kind.\n",
    "roo/.roomodes": "customModes:\n- {slug: m, name: M, roleDefinition: Be., groups: [read]}\n",
}


def make_project(workspace: Path) -> None:
    """A repository with these files, and an agent file that is a symlink."""
    for name, text in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (workspace / ".remit/agents").mkdir(parents=True)
    (workspace / ".remit/agents/linked.md").symlink_to("../../prompts/linked.md")
    os.link(workspace / "pkg/remit.toml", workspace / "alias")
    (workspace / ".git").mkdir()


def followed(workspace: Path, home: Path) -> dict[Path, object]:
    """The settings that remit would use if it were started, with trust, in the workspace and in each folder below it."""
    folders = [workspace, *(Path(path) for path, _, _ in os.walk(workspace) if "/.git" not in f"{path}/")]
    return {folder: _followed(folder, home) for folder in folders}


def _followed(folder: Path, home: Path) -> object:
    try:
        found = load_settings(folder, environ={"REMIT_TRUST": "1"}, home=home)
    except SettingsError as error:
        return str(error)
    agents = found.load_agents().agents
    return (
        sorted((key, value) for key, value, _ in found.rows() if key != "agents.paths"),
        sorted(found.servers),
        [(a.name, a.tools, [r.text for r in a.rules], a.instructions) for a in agents.values()],
    )


def changes(before: dict[Path, object], after: dict[Path, object]) -> list[str]:
    """The folders whose settings have changed; a new folder is compared with its nearest old parent."""
    found: list[str] = []
    for folder, what in after.items():
        old = next(above for above in (folder, *folder.parents) if above in before)
        if before[old] != what:
            found.append(folder.name)
    return found
