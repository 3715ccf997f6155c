"""Tool names of other systems, and the tools of remit that they mean: `Bash(git *)`, `web/fetch`, `@git/log`,
`mcp__x__y`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from remit.definitions.agent_files.formats import Format

_MEANT = {
    "read": "read readfile readmanyfiles readfiles readmultiplefiles view viewfile openfile cat notebookread readmediafile"
    " getnotebooksummary readnotebookcelloutput",
    "write": "write writefile createfile create savefile newfile writetofile fsappend createdirectory",
    "edit": "edit multiedit editfile editfiles replace strreplace strreplaceeditor strreplacefile applypatch patch"
    " update replaceinfile searchreplace editcode editnotebook insertedit applydiff",
    "glob": "glob globfiles findfiles find filesearch",
    "grep": "grep grepsearch searchfilecontent search searchfiles searchcode ripgrep textsearch codebase codebasesearch"
    " findtextinfiles",
    "ls": "ls list listdirectory listdir listfiles dir",
    "terminal": "terminal bash shell sh runshellcommand runcommand runcommands execute executecommand exec"
    " execcommand runterminalcmd runinterminal runterminalcommand shellcommand localshell powershell cmd process executebash"
    " executecmd executepwsh",
    "fetch": "fetch webfetch fetchurl fetchwebpage readurl web",
}
_SEVERAL = {"fsread": "read ls grep", "fswrite": "write edit"}
_DELEGATE = "task agent subagent spawnagent delegate delegatetask runsubagent customagent usesubagent"
_MISSING = (
    "websearch googlewebsearch searchweb todowrite todoread todo todos updateplan plan notebookedit slashcommand skill skills"
    " activateskill exitplanmode enterplanmode askuserquestion askuser question lsp savememory memory listmcpresources"
    " listmcpresourcestool readmcpresource readmcpresourcetool bashoutput killshell killbash taskoutput taskstop taskcreate"
    " taskupdate tasklist taskget sendmessage listagents waitagent followuptask toolsearch monitor enterworktree"
    " exitworktree structuredoutput computer browser croncreate crondelete cronlist pushnotification workflow"
    " generateimage imagegeneration viewimage codeinterpreter think thinking completetask attemptcompletion"
    " teamcreate teamdelete usebrowser listcodedefinitionnames externaldirectory doomloop"
    # opencode's search of public code
    " codesearch"
    # VS Code's
    " problems usages changes testfailure findtestfiles searchresults githubrepo githubtextsearch extensions new vscodeapi"
    " terminallastcommand terminalselection terminalcommand opensimplebrowser runtests runtasks runtask createandruntask"
    " gettaskoutput getterminaloutput awaitterminal killterminal sendtoterminal runnotebooks runnotebookcell readcelloutput"
    " vscode getprojectsetupinfo installextension newworkspace askquestions activepullrequest copilotcodingagent"
    " createjupyternotebook rename searchsubagent switchagent"
    # Kiro's and Roo Code's
    " useaws aws knowledge introspect reportissue todolist context code session getdiagnostics deletefile"
    " remotewebsearch controlpwshprocess browseraction switchmode askfollowupquestion updatetodolist"
)

_BY_WORD = {
    **{word: ours for ours, listed in _MEANT.items() for word in listed.split()},
    **_SEVERAL,
    **dict.fromkeys(_DELEGATE.split(), "delegate"),
    **dict.fromkeys(_MISSING.split(), "missing"),
}
_OF_FORMAT: dict[Format, dict[str, str]] = {
    "copilot": {
        **dict.fromkeys(("edit", "editfiles"), "edit write"),
        "search": "grep glob ls",
    },
    "kiro": {"read": "read ls glob grep", "write": "write edit"},
}
"""Words that name one tool elsewhere and several tools here."""

_SETS = frozenset(("read", "edit", "search", "execute", "web", "agent", "todo", "runcommands", "runtasks"))
"""Tool sets of VS Code, written before a slash; any other word before a slash is a server."""
_EDITORS = frozenset(("vscode", "browser"))
"""Tool sets that remit does not have: their `runCommand` is not a shell."""

ALSO = {"edit": ("write",)}
"""Other tools that a permission covers: in opencode, `edit` covers every change to a file."""

_CALL = re.compile(r"([\w.*?/@-]+)\s*\((.*)\)", re.DOTALL)
_MCP = re.compile(r"mcp__(.+?)(?:__(.*))?", re.DOTALL)

Kind = Literal["tool", "all", "delegate", "server", "missing", "other"]


@dataclass(frozen=True, slots=True)
class ToolWord:
    """One entry of a list of tools."""

    kind: Kind
    name: str
    """The tool in remit's words; for a server the server's name; for `missing` and `other` the word as written."""
    within: str = ""
    """The text between the brackets: a pattern for a tool, names of agents for delegation."""
    tool: str = ""
    """For a server: the single tool that is meant."""
    line: int = 0
    written: str = ""
    asks: bool = False
    """Whether the pattern only narrows, so that matching calls still need approval."""


def read_word(written: str, line: int) -> ToolWord:
    """The meaning of an entry; `other` may still be one of the user's tools. For several tools, the first."""
    return read_words(written, line)[0]


def read_words(written: str, line: int, form: Format = "plain") -> list[ToolWord]:
    """Like `read_word`, for the file of one system, in which a word may mean several tools."""
    name, within = written.strip(), ""
    if found := _CALL.fullmatch(name):
        name, within = found[1], found[2].strip()
        within = "" if within == "*" else within
    base = ToolWord("other", name, within, line=line, written=written)
    if name in ("*", "all", "default", "@builtin"):
        return [ToolWord("all", "*", line=line, written=written)]
    server = _server(name)
    if server is not None:
        return [replace(base, kind="server", name=server[0], tool="" if server[1] == "*" else server[1])]
    plain = _plain(name)
    # Only VS Code writes edit/editFiles, in any folder.
    form = "copilot" if "/" in name else form
    meant = "missing" if plain is None else _OF_FORMAT.get(form, {}).get(plain) or _BY_WORD.get(plain)
    if meant is None:
        return [base]
    if meant == "delegate":
        return [replace(base, kind="delegate")]
    if meant == "missing":
        return [replace(base, kind="missing")]
    return [replace(base, kind="tool", name=tool) for tool in meant.split()]


def _server(name: str) -> tuple[str, str] | None:
    """A server and the tool that is meant: `mcp__git__log`, `@git/log`, `git/log`; `@mcp` for all servers."""
    if found := _MCP.fullmatch(name):
        return found[1], found[2] or ""
    if name == "@mcp":
        return "*", ""
    first, slash, tool = name.removeprefix("@").partition("/")
    if name.startswith("@"):
        return (first, tool) if first else None
    if slash and first and tool and first.lower() not in (*_SETS, *_EDITORS):
        return first, tool
    return None


def _plain(name: str) -> str | None:
    """The word in lower case, without prefixes and separators; None for an editor's tool."""
    prefix, slash, rest = name.lower().partition("/")
    if slash and prefix in _EDITORS:
        return None
    word = (rest if slash else prefix).rpartition(".")[2]
    return word.replace("_", "").replace("-", "").replace(" ", "").removesuffix("tool")


def known_words() -> Iterable[str]:
    """Words to suggest for a misspelled name."""
    return _MEANT.keys() | {"task"}
