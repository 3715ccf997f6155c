"""Recognise commands that would destroy the machine: a guard against accidents, not a security boundary.

It is easy to bypass on purpose. The sandbox limits what a command can reach (`tools/builtin/sandbox/bubblewrap.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from remit.tools.policy_rules import Subject

_SYSTEM = frozenset(
    {
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
    }
    | {"/srv", "/sys", "/usr", "/var", "/Users", "/System", "/Library", "/Applications", "/private", "/nix"}
)
_HOMES = frozenset({"~", "$HOME", "${HOME}"})
_DEVICE = re.compile(
    r"/dev/((sd|hd|vd|xvd)[a-z]|nvme\d|mmcblk\d|loop\d|md\d|dm-\d|sr\d|r?disk\d|mapper/|disk/|mem\b|kmem\b|port\b)"
)
# Every repetition is bounded: commands are untrusted, and a slow match would block the event loop.
_FORK_BOMB = re.compile(r"(?<!\w)([A-Za-z_]\w{0,40}|[:.])\(\)\{[^}]{0,40}?\1\|\1&")
_OFF = frozenset({"shutdown", "reboot", "halt", "poweroff", "kexec", "killall5"})
_FORMATS = re.compile(r"mkfs(\.\w+)?|mke2fs|mkswap|wipefs|newfs(_\w+)?|blkdiscard")
_PARTITIONS = frozenset(
    {"fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "shred", "cp", "tee", "mv", "truncate"}
)
MOST_LOOKED_AT = 10_000
"""Characters that are checked. A destructive command further back is no accident."""


def disaster(command: str, subjects: Iterable[Subject]) -> str:
    """What a command would destroy, to follow "this command would"; empty if it may run."""
    if _FORK_BOMB.search("".join(command[:MOST_LOOKED_AT].split())):
        return "start copies of itself without end (a fork bomb)"
    for subject in subjects:
        for text in (subject.text, *subject.also):
            words = [word.strip("'\"") for word in text[:MOST_LOOKED_AT].split()]
            said = _of(words) if words else ""
            if said:
                return said
    return ""


def _of(words: Sequence[str]) -> str:
    name, rest = words[0], words[1:]
    if name == ">" or name in _PARTITIONS or name == "dd":
        return _of_device(name, rest)
    if name in ("rm", "chmod", "chown", "chgrp"):
        return _of_tree(name, rest)
    if name in _OFF or (name in ("init", "telinit") and rest[:1] in (["0"], ["6"])):
        return "turn the machine off"
    if name == "systemctl" and {"poweroff", "reboot", "halt", "kexec"}.intersection(rest):
        return "turn the machine off"
    if _FORMATS.fullmatch(name) and rest and not {"--help", "--version", "-V"}.intersection(rest):
        return "format a disk"
    if name == "kill" and len(rest) > 1 and rest[-1] == "-1":
        return "kill every process"
    if name == "find" and "-delete" in rest and _is_root(rest[0]):
        return f"delete everything below {rest[0]}"
    return ""


def _of_device(name: str, rest: Sequence[str]) -> str:
    if name == "mv" and rest and any(map(_is_root, rest[:-1])):
        return "move a system folder or a home folder"
    for word in rest:
        path = word.removeprefix("of=") if name == "dd" else word
        if (name != "dd" or word != path) and _DEVICE.match(path) and (name != "cp" or word is rest[-1]):
            return f"overwrite the device {path}"
    if name == ">" and rest == ["/proc/sysrq-trigger"]:
        return "turn the machine off"
    return ""


def _of_tree(name: str, rest: Sequence[str]) -> str:
    if not any(map(_is_recursive, rest)):
        return ""
    target = next((word for word in rest if not word.startswith("-") and _is_root(word)), "")
    if not target:
        return ""
    return f"{'delete everything in' if name == 'rm' else 'change the permissions of everything in'} {target}"


def _is_recursive(option: str) -> bool:
    if option == "--recursive":
        return True
    return option.startswith("-") and option[1:].isalpha() and "r" in option.lower()


def _is_root(path: str) -> bool:
    """Whether a path is /, a system folder or a home, or a glob for everything in one of these."""
    if len(path) > 200:
        return False
    short = re.sub(r"/(\./|/)+", "/", path)
    short = re.sub(r"/(\*|\.|\.\*|\{.*\})?$", "", short)
    if not short and path.startswith("/"):
        return True
    return short in _SYSTEM or short in _HOMES or (short == os.path.expanduser("~") and len(short) > 1)  # noqa: PTH111 - text, not a file
