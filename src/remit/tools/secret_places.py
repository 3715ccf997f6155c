"""Paths that matter to a sandbox: secrets to hide, and settings of other programs to protect from changes."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

# fmt: off
SECRETS = (
    ".ssh", ".gnupg", ".netrc", "_netrc", ".password-store", ".local/share/keyrings", "Library/Keychains",
    ".aws", ".azure", ".oci", ".boto", ".s3cfg", ".kube", ".docker", ".fly", ".databrickscfg", ".vault-token",
    ".mc", ".talos", ".kaggle/kaggle.json",
    ".config/gcloud", ".config/doctl", ".config/rclone", ".config/heroku", ".config/containers/auth.json",
    ".config/helm/registry", ".terraform.d", ".terraformrc",
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
    ".pgpass", ".pg_service.conf", ".postgresql", ".my.cnf", ".mylogin.cnf", ".cache/huggingface/token",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/Signal", ".config/Slack", ".config/1Password", ".config/op", ".config/Bitwarden",
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history",
    ".claude.json", ".claude/.credentials.json", ".codex/auth.json", ".config/remit", ".local/state/remit",
)
"""Relative to a home folder; hidden in a sandbox."""

MOVED = {
    ".config": "XDG_CONFIG_HOME", ".local/share": "XDG_DATA_HOME", ".local/state": "XDG_STATE_HOME",
    ".cache": "XDG_CACHE_HOME",
}
"""Folders of a home that an environment variable can move, together with their contents."""

NAMED: dict[str, tuple[str, ...]] = {
    "REMIT_HOME": ("",), "GNUPGHOME": ("",), "PASSWORD_STORE_DIR": ("",), "NETRC": ("",),
    "KUBECONFIG": ("",), "TALOSCONFIG": ("",), "DOCKER_CONFIG": ("",), "REGISTRY_AUTH_FILE": ("",),
    "HELM_REGISTRY_CONFIG": ("",),
    "AWS_SHARED_CREDENTIALS_FILE": ("",), "AWS_CONFIG_FILE": ("",), "AZURE_CONFIG_DIR": ("",),
    "GOOGLE_APPLICATION_CREDENTIALS": ("",), "CLOUDSDK_CONFIG": ("",), "OCI_CLI_CONFIG_FILE": ("",), "BOTO_CONFIG": ("",),
    "DATABRICKS_CONFIG_FILE": ("",), "RCLONE_CONFIG": ("",), "FLY_CONFIG_DIR": ("",), "MC_CONFIG_DIR": ("",),
    "TF_CLI_CONFIG_FILE": ("",), "TERRAFORM_CONFIG": ("",),
    "GH_CONFIG_DIR": ("",), "GLAB_CONFIG_DIR": ("",),
    "NPM_CONFIG_USERCONFIG": ("",),
    "CARGO_HOME": ("credentials", "credentials.toml"), "GRADLE_USER_HOME": ("gradle.properties",),
    "PGPASSFILE": ("",), "PGSERVICEFILE": ("",), "PGSYSCONFDIR": ("pg_service.conf",), "PGSSLKEY": ("",),
    "MYSQL_HOME": ("my.cnf",), "MYSQL_TEST_LOGIN_FILE": ("",), "KRB5CCNAME": ("",), "KRB5_KTNAME": ("",),
    "KAGGLE_CONFIG_DIR": ("kaggle.json",), "HF_HOME": ("token", "stored_tokens"), "HF_TOKEN_PATH": ("",),
    "CLAUDE_CONFIG_DIR": (".claude.json", ".credentials.json"), "CODEX_HOME": ("auth.json",),
    "HISTFILE": ("",), "PSQL_HISTORY": ("",), "MYSQL_HISTFILE": ("",), "NODE_REPL_HISTORY": ("",), "PYTHON_HISTORY": ("",),
    **dict.fromkeys(
        ("*CREDENTIALS_FILE", "*PASSWORD_FILE", "*PASSPHRASE_FILE", "*SECRET_FILE", "*TOKEN_FILE", "*_KEY_FILE"), ("",)
    ),
}
"""Environment variables (or patterns) that name a path with secrets, and the secret entries in it; "" means all of it."""

SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
)

PROTECTED_GIT = ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees")
"""Read-only in a git folder: git outside the sandbox would run or follow files planted there."""

PROTECTED = (
    ".remit", ".claude", ".agents", ".opencode", ".qwen", ".codex", ".gemini", ".cursor", ".kiro", ".roo", ".vscode", ".idea",
    ".envrc",
)
"""The same for other programs, in the workspace and at the top of every repository. For remit: `settings_files.py`."""

SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var")
"""A workspace that contains one of these cannot be sandboxed: commands could write to the system."""
# fmt: on


def secrets(environ: Mapping[str, str], workspace: Path) -> Iterator[Path]:
    """Every path that a sandbox hides, whether it exists or not."""
    yield from map(Path, SYSTEM_SECRETS)
    for home in homes():
        yield from (home / name for name in SECRETS)
    for folder, variable in MOVED.items():
        beginning, moved = f"{folder}/", environ.get(variable, "")
        if moved.startswith("/"):
            yield from (
                Path(moved, name.removeprefix(beginning)) for name in SECRETS if name.startswith(beginning)
            )
    for variable, value in environ.items():
        names = next((NAMED[one] for one in NAMED if fnmatch.fnmatchcase(variable.upper(), one)), ())
        # Some values are lists of files, or have a prefix before the file: FILE:/tmp/krb5cc_0.
        for written in dict.fromkeys((value, *value.split(os.pathsep))) if names else ():
            with suppress(RuntimeError):
                place = Path(written).expanduser().absolute()
                yield from (p for p in (place / name for name in names) if may_hide(p, workspace))


def may_hide(place: Path, workspace: Path) -> bool:
    """Whether commands still work with this path hidden: it contains no workspace, home or system folder."""
    needed = (workspace, *homes(), *map(Path, SYSTEM))
    real = Path(os.path.realpath(place))
    return not any(one.is_relative_to(real) for one in needed)


def homes() -> list[Path]:
    """The user's home folders, from the environment and from the password database."""
    found: list[Path] = []
    with suppress(RuntimeError, OSError):
        found.append(Path.home().resolve())
    with suppress(ImportError, KeyError, OSError):
        import pwd  # noqa: PLC0415 - not on every system

        found.append(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return list(dict.fromkeys(found))
