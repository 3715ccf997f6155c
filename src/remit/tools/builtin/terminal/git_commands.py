"""Decide from its words whether a git command does only what its name says.

A command is clear if git itself does all of it: one of git's own commands, without options that name a program, change
settings or write to another file. `git_without_hooks.py` disables programs that a repository's settings name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from remit.tools.builtin.sandbox.repositories import runs_nothing
from remit.tools.builtin.terminal.git_without_hooks import WITH_VALUE, command_at
from remit.tools.builtin.terminal.shell_words import Word
from remit.tools.policy_rules import ANYTHING

# fmt: off
_COMMANDS = frozenset({
    "add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file", "check-attr",
    "check-ignore", "check-ref-format", "checkout", "checkout-index", "cherry", "cherry-pick", "clean", "clone", "commit",
    "commit-graph", "commit-tree", "config", "count-objects", "describe", "diff", "diff-files", "diff-index", "diff-tree",
    "fetch", "for-each-ref", "format-patch", "fsck", "gc", "grep", "hash-object", "init", "log", "ls-files", "ls-remote",
    "ls-tree", "merge", "merge-base", "merge-file", "merge-tree", "mktree", "multi-pack-index", "mv", "name-rev", "notes",
    "pack-refs", "prune", "pull", "push", "range-diff", "read-tree", "rebase", "reflog", "remote", "repack", "replace",
    "rerere", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show", "show-branch", "show-ref",
    "sparse-checkout", "stash", "status", "stripspace", "submodule", "switch", "symbolic-ref", "tag", "update-index",
    "update-ref", "verify-pack", "version", "whatchanged", "worktree", "write-tree",
})
"""git's own commands that run no other program by themselves. Any other name may be an alias or a program."""

_OWN_OPTIONS = frozenset({
    "-C", "-p", "-P", "-v", "-h", "--paginate", "--no-pager", "--git-dir", "--work-tree", "--namespace", "--bare",
    "--version", "--no-optional-locks", "--no-replace-objects", "--no-lazy-fetch", "--no-advice", "--literal-pathspecs",
    "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--html-path", "--man-path", "--info-path",
})
_PROGRAMS = (
    "--exec", "--upload-pack", "--receive-pack", "--ext-diff", "--textconv", "--open-files-in-pager", "--output",
    "--template", "--config", "--help", "--tool", "--extcmd",
)
"""Options that name a program, change settings or write to a file. git accepts abbreviations of them."""
_PROGRAM_LETTERS = {"grep": "O", "clone": "uc", "rebase": "x", "archive": "o", "format-patch": "o"}
_TAKE_NO_PROGRAM = frozenset({
    "add", "branch", "checkout", "clean", "commit", "ls-files", "mv", "reset", "restore", "rm", "status", "switch", "tag",
})
"""Commands without such options, so that an unknown word does no harm."""
_SUBCOMMANDS = {
    "bisect": frozenset({"start", "good", "bad", "new", "old", "skip", "reset", "log", "terms", "next", "replay"}),
    "submodule": frozenset({
        "add", "status", "init", "deinit", "update", "set-branch", "set-url", "summary", "sync", "absorbgitdirs",
    }),
}
# fmt: on
_READS_SETTINGS = re.compile(r"--get(-all|-regexp|-urlmatch|-color|-colorbool)?|-l|--list|get|list")
_GIT_FOLDER = re.compile(r"(?:^|[/=:])\.git(?:/|$)", re.IGNORECASE)
_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")


def names_git_folder(path: str) -> bool:
    """Whether `.git` is a component of a path."""
    return _GIT_FOLDER.search(path) is not None


def bare_words(words: Sequence[str]) -> list[str] | None:
    """The command without git's own options, such as `git push`; None if it is not git."""
    name = words[0].rpartition("/")[2]
    if name == "git":
        return ["git", *words[1 + command_at([*words[1:]]) :]]
    if name.startswith("git-"):
        return ["git", name.removeprefix("git-"), *words[1:]]
    return None


def is_clear(words: Sequence[Word]) -> bool:
    """Whether git itself does everything that the command does. The first word is `git`, perhaps with a path."""
    texts = [word.text for word in words[1:]]
    start = command_at(texts)
    # With a path it may be another program, or a git that bypasses `git_without_hooks.py`.
    if words[0].text != "git" or any(word.loose or word.globs for word in words[1 : start + 2]):
        return False
    if not _own_options_are_clear(texts[:start]):
        return False
    if start == len(texts):
        return True
    name, rest = texts[start], words[start + 2 :]
    if name not in _COMMANDS or any(map(names_git_folder, texts)):
        return False
    if name == "config":
        return _config_is_clear(rest)
    first = next((word.text for word in rest if not word.text.startswith("-")), "")
    if name in _SUBCOMMANDS and first and first not in _SUBCOMMANDS[name]:
        return False
    return not any(_names_program(name, word) for word in rest)


def _own_options_are_clear(texts: Sequence[str]) -> bool:
    at = 0
    while at < len(texts):
        name = texts[at].partition("=")[0]
        if texts[at] == "-c":
            setting, _, value = "".join(texts[at + 1 : at + 2]).partition("=")
            if not runs_nothing(setting, value):
                return False
        elif name not in _OWN_OPTIONS:
            return False
        at += 2 if texts[at] in WITH_VALUE else 1
    return True


def _config_is_clear(rest: Sequence[Word]) -> bool:
    """Whether `git config` only reads, or changes a setting that cannot name a program."""
    texts = [word.text for word in rest]
    if any(word.loose for word in rest) or any(text in ("-e", "--edit", "edit", "-f") for text in texts):
        return False
    if texts and _READS_SETTINGS.fullmatch(texts[0]):
        return True
    given = [text for text in texts if not text.startswith("-")]
    options = set(texts) - set(given)
    if not options <= {
        "--local",
        "--global",
        "--system",
        "--worktree",
        "--bool",
        "--int",
        "--path",
        "--null",
        "-z",
    }:
        return False
    if len(given) == 1:
        return True
    return len(given) == 2 and not options & {"--global", "--system"} and runs_nothing(given[0], given[1])


def _names_program(command: str, word: Word) -> bool:
    """Whether a word is, or may expand to, an option or an address that names a program."""
    text = word.shape
    if command not in _TAKE_NO_PROGRAM and (word.splits or text.startswith(ANYTHING)):
        return True
    if _HELPER.match(text):
        return True
    if text.startswith("--"):
        option, varies, _ = text.partition("=")[0].partition(ANYTHING)
        return bool(varies or option != "--") and any(program.startswith(option) for program in _PROGRAMS)
    letters = _PROGRAM_LETTERS.get(command, "")
    return text.startswith("-") and any(letter in text[1:] for letter in (*letters, ANYTHING))
