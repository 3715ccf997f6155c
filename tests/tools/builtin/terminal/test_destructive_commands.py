"""Commands that would destroy the machine, and commands that only look like them."""

from __future__ import annotations

import pytest

from remit.tools.builtin.terminal.destructive_commands import disaster
from remit.tools.builtin.terminal.rule_subjects import read_command


@pytest.mark.parametrize(
    "command",
    [
        *(
            "rm -rf /",
            "rm -rf /*",
            "sudo rm -fr --no-preserve-root /",
            "rm -r -f ~",
            'rm -rf "$HOME"',
            "rm -Rf /etc",
        ),
        *(
            "r''m -rf //",
            "ls; rm -rf /usr/",
            "rm -rf / '",
            "bash -c 'rm -rf /'",
            "echo $(rm -rf ~/)",
            "xargs rm -rf /",
        ),
        *(
            "mkfs.ext4 /dev/sda1",
            "dd if=x of=/dev/sda",
            "cat x > /dev/nvme0n1",
            "echo b > /proc/sysrq-trigger",
        ),
        *(
            ":(){ :|:& };:",
            "bomb() { bomb | bomb & }; bomb",
            "shutdown -h now",
            "sudo reboot",
            "systemctl poweroff",
        ),
        *(
            "chmod -R 777 /",
            "chown -R me /usr",
            "kill -9 -1",
            "find / -delete",
            "mv ~ /dev/null",
            "wipefs -a /dev/sda",
        ),
    ],
)
def test_destructive_commands_are_recognised(command: str) -> None:
    """A destructive part is found anywhere in a command."""
    assert disaster(command, read_command(command))


@pytest.mark.parametrize(
    "command",
    [
        *(
            "rm -rf build",
            "rm -rf /tmp/x",
            "rm -rf /var/lib/apt/lists/*",
            "rm -rf ~/x",
            "dd if=/dev/zero of=x",
            "kill -1 5",
        ),
        *(
            "kill -9 1234",
            "chmod -R 755 dist",
            "find . -delete",
            "grep -r reboot .",
            "cat <<E\nrm -rf /\nE",
            "cp /dev/sda x",
        ),
        *(
            "git commit -m 'rm -rf /'",
            "mkfs.ext4 --help",
            "echo hi > /dev/null",
            "du -sh /",
            "echo 'rm -rf /'",
        ),
    ],
)
def test_ordinary_commands_are_not_refused(command: str) -> None:
    """A command that only looks destructive may run."""
    assert not disaster(command, read_command(command))
