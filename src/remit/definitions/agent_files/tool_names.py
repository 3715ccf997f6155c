"""What tools are called elsewhere, and which of remit's are meant: `Bash(git *)`, `read_file`, `mcp__github__search`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_MEANT = {
    "read": "read readfile readmanyfiles readfiles view viewfile openfile cat notebookread readmediafile",
    "write": "write writefile createfile create savefile newfile",
    "edit": "edit multiedit editfile editfiles replace strreplace strreplaceeditor strreplacefile applypatch patch"
    " update replaceinfile searchreplace",
    "glob": "glob globfiles findfiles find filesearch",
    "grep": "grep grepsearch searchfilecontent search searchfiles searchcode ripgrep codesearch",
    "ls": "ls list listdirectory listdir listfiles dir",
    "terminal": "terminal bash shell sh runshellcommand runcommand runcommands execute executecommand exec"
    " execcommand runterminalcmd runinterminal shellcommand localshell powershell cmd process",
    "fetch": "fetch webfetch fetchurl fetchwebpage readurl web",
}
_DELEGATE = "task agent subagent spawnagent delegate delegatetask"
_MISSING = (
    "websearch googlewebsearch searchweb todowrite todoread todo todos updateplan plan notebookedit slashcommand skill skills"
    " activateskill exitplanmode enterplanmode askuserquestion askuser question lsp savememory memory listmcpresources"
    " listmcpresourcestool readmcpresource readmcpresourcetool bashoutput killshell killbash taskoutput taskstop taskcreate"
    " taskupdate tasklist taskget sendmessage listagents waitagent followuptask toolsearch monitor enterworktree"
    " exitworktree structuredoutput computer browser croncreate crondelete cronlist pushnotification workflow"
    " generateimage imagegeneration viewimage codeinterpreter think thinking completetask attemptcompletion"
    " teamcreate teamdelete usebrowser listcodedefinitionnames externaldirectory doomloop"
)

_BY_WORD = {
    **{word: ours for ours, listed in _MEANT.items() for word in listed.split()},
    **dict.fromkeys(_DELEGATE.split(), "delegate"),
    **dict.fromkeys(_MISSING.split(), "missing"),
}

ALSO = {"edit": ("write",), "grep": ("glob",)}
"""What a word means besides, where a system has one for both: opencode's `edit`, VS Code's `search`."""

_CALL = re.compile(r"([\w.*?/@-]+)\s*\((.*)\)", re.DOTALL)
_MCP = re.compile(r"mcp__(.+?)(?:__(.*))?", re.DOTALL)

Kind = Literal["tool", "all", "delegate", "server", "missing", "other"]


@dataclass(frozen=True, slots=True)
class ToolWord:
    """One entry of a list of tools."""

    kind: Kind
    name: str
    """The tool in remit's words; the server's name for a server; the word as written for `missing` and `other`."""
    within: str = ""
    """What stands between the brackets: a pattern for a tool, the names of agents for delegating."""
    tool: str = ""
    """For a server: the one tool of it that is meant."""
    line: int = 0
    written: str = ""


def read_word(written: str, line: int) -> ToolWord:
    """What an entry means; it may still be a tool of the user's own (`other`)."""
    name, within = written.strip(), ""
    if found := _CALL.fullmatch(name):
        name, within = found[1], found[2].strip()
        within = "" if within == "*" else within
    if name in ("*", "all", "default"):
        return ToolWord("all", "*", line=line, written=written)
    if found := _MCP.fullmatch(name):
        tool = found[2] or ""
        return ToolWord("server", found[1], within, "" if tool == "*" else tool, line, written)
    ours = _BY_WORD.get(_plain(name))
    if ours == "delegate":
        return ToolWord("delegate", name, within, line=line, written=written)
    if ours == "missing":
        return ToolWord("missing", name, within, line=line, written=written)
    if ours is None:
        return ToolWord("other", name, within, line=line, written=written)
    return ToolWord("tool", ours, within, line=line, written=written)


def _plain(name: str) -> str:
    name = name.lower().rpartition(".")[2]
    return name.replace("_", "").replace("-", "").replace(" ", "").removesuffix("tool")


def known_words() -> Iterable[str]:
    """Words to suggest for a misspelt one."""
    return _MEANT.keys() | {"task"}
