"""Places that matter to a sandbox: where people keep secrets, and where others find programs and settings to obey."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# fmt: off
SECRETS = (
    ".ssh", ".gnupg", ".netrc", "_netrc", ".password-store", ".local/share/keyrings", "Library/Keychains",
    ".aws", ".azure", ".oci", ".boto", ".s3cfg", ".kube", ".docker", ".fly", ".databrickscfg", ".vault-token",
    ".config/gcloud", ".config/doctl", ".config/rclone", ".config/heroku", ".config/containers/auth.json",
    ".config/helm/registry", ".terraform.d", ".terraformrc",
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
    ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/Signal", ".config/Slack", ".config/1Password", ".config/op", ".config/Bitwarden",
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".node_repl_history",
    ".claude.json", ".claude/.credentials.json", ".codex/auth.json", ".config/remit", ".local/state/remit",
)
"""In a home: nobody in a sandbox sees these."""

SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
)

PROTECTED_GIT = ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees")
"""In a git folder, for reading only: git outside would run, or obey, what is planted there."""

PROTECTED = (
    ".remit", ".claude", ".agents", ".opencode", ".qwen", ".codex", ".gemini", ".cursor", ".vscode", ".idea", ".envrc",
)
"""The same for other programs, in a workspace and wherever else a repository begins. For remit: `settings_files.py`."""

SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var")
"""A workspace that holds one of these cannot be contained: the system itself would be written."""
# fmt: on


def homes() -> list[Path]:
    """Where this user's secrets are: by the environment, and by the system."""
    found: list[Path] = []
    with suppress(RuntimeError, OSError):
        found.append(Path.home().resolve())
    with suppress(ImportError, KeyError, OSError):
        import pwd  # noqa: PLC0415 - not on every system

        found.append(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return list(dict.fromkeys(found))
