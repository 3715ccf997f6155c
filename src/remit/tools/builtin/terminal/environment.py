"""The environment of commands, without secrets and without variables that make programs wait for input."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from remit.history.redaction import Redactor
from remit.history.secret_names import is_secret_name

_SECRET_VALUE = re.compile(
    r"[;&?](pwd|pw|pass|password|access|sig)="  # connection strings, signed addresses
    r"|\"(pw|pwd|pass|password|secret|token)\"\s*:"
    r"|\bpassword\s+\S"  # a line of .netrc
    r"|://[\w.~%-]{16,}(:[^@/]*)?@",  # a token as the user name
    re.IGNORECASE,
)
_NEVER = (
    # Code or settings that every program or shell would load.
    *("LD_PRELOAD", "LD_AUDIT", "LD_DEBUG*", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "BASH_FUNC_*"),
    *(
        "SHELLOPTS",
        "BASHOPTS",
        "PROMPT_COMMAND",
        "PS4",
        "CDPATH",
        "GLOBIGNORE",
        "PYTHONSTARTUP",
        "PYTHONINSPECT",
    ),
    # These name a repository other than the workspace's; git sets them when remit runs in a git hook.
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"),
    *("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*"),
    # Accounts of clouds and registries.
    *("AWS_*", "AZURE_*", "DOCKER_AUTH_*", "PGPASS_*"),
    # Programs that ask a person, forced colours, and folders that the shell sets itself.
    *("SSH_ASKPASS*", "SUDO_ASKPASS", "GIT_ASKPASS", "FORCE_COLOR", "CLICOLOR_FORCE", "PWD", "OLDPWD"),
)
_SET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    # A folder in a clone can be a bare repository with its own settings; `git status` in it would run programs they name.
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
    "GIT_CONFIG_KEY_1": "core.fsmonitor",
    "GIT_CONFIG_VALUE_1": "false",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PYTHONUNBUFFERED": "1",
    "CI": "1",
}
_ONE_TOKEN = re.compile(r"[A-Za-z0-9+/=_.~-]{20,}")
_SHAPES = Redactor(environment={})


def scrub(environment: Mapping[str, str], passed: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a command. Variables whose names match `passed` are kept even if they look secret."""
    wanted = tuple(passed)
    kept = {
        name: value
        for name, value in environment.items()
        if not any(fnmatch.fnmatchcase(name, never) for never in _NEVER)
        and not is_secret_name(name)
        and not _looks_secret(value)
    }
    kept |= _SET
    for name, value in environment.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted):
            kept[name] = value
    kept.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    return kept


def without(environment: Mapping[str, str], passwords: Iterable[str]) -> dict[str, str]:
    """An environment without variables whose value contains a password: alone, in a URL, or after an equals sign."""
    forms = "|".join({re.escape(form) for one in passwords if one for form in (one, quote(one, safe=""))})
    held = re.compile(rf"(?:^|[:=])\s*['\"]?(?:{forms})(?:$|[@'\"\s;&])") if forms else None
    return {name: value for name, value in environment.items() if held is None or not held.search(value)}


def _looks_secret(value: str) -> bool:
    if len(value) < 8:
        return False
    if _SECRET_VALUE.search(value) or _SHAPES.redact_text(value) != value:
        return True
    if value.startswith(("/", "~/", "./")):
        return False
    # A random-looking token, whatever the variable's name.
    assigned = f"secret={value}"
    return _ONE_TOKEN.fullmatch(value) is not None and _SHAPES.redact_text(assigned) != assigned
