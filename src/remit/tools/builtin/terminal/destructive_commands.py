"""Commands that nobody means: those that would destroy the machine. A guard against accidents, not a wall.

Who wants to get round it can; what a command can reach at all is the sandbox's business (`tools/builtin/sandbox/bubblewrap.py`).
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
# Bounded everywhere: a command is not ours, and an endless look at it would stop the loop.
_FORK_BOMB = re.compile(r"(?<!\w)([A-Za-z_]\w{0,40}|[:.])\(\)\{[^}]{0,40}?\1\|\1&")
_OFF = frozenset({"shutdown", "reboot", "halt", "poweroff", "kexec", "killall5"})
_FORMATS = re.compile(r"mkfs(\.\w+)?|mke2fs|mkswap|wipefs|newfs(_\w+)?|blkdiscard")
_PARTITIONS = frozenset(
    {"fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "shred", "cp", "tee", "mv", "truncate"}
)
MOST_LOOKED_AT = 10_000
"""Characters: nobody means a disaster without wanting it at the end of a longer command."""


def disaster(command: str, subjects: Iterable[Subject]) -> str:
    """What a command would destroy, in words that follow "it would"; empty for one that may run."""
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
        return "move away what the system, or a home, consists of"
    for word in rest:
        path = word.removeprefix("of=") if name == "dd" else word
        if (name != "dd" or word != path) and _DEVICE.match(path) and (name != "cp" or word is rest[-1]):
            return f"write over the device {path}"
    if name == ">" and rest == ["/proc/sysrq-trigger"]:
        return "turn the machine off"
    return ""


def _of_tree(name: str, rest: Sequence[str]) -> str:
    if not any(map(_is_recursive, rest)):
        return ""
    target = next((word for word in rest if not word.startswith("-") and _is_root(word)), "")
    if not target:
        return ""
    return f"{'delete everything in' if name == 'rm' else 'change the rights of everything in'} {target}"


def _is_recursive(option: str) -> bool:
    if option == "--recursive":
        return True
    return option.startswith("-") and option[1:].isalpha() and "r" in option.lower()


def _is_root(path: str) -> bool:
    """Whether it is the root, a folder that the system consists of, or a home; or all that is in one."""
    if len(path) > 200:
        return False
    short = re.sub(r"/(\./|/)+", "/", path)
    short = re.sub(r"/(\*|\.|\.\*|\{.*\})?$", "", short)
    if not short and path.startswith("/"):
        return True
    return short in _SYSTEM or short in _HOMES or (short == os.path.expanduser("~") and len(short) > 1)  # noqa: PTH111 - text, not a file
