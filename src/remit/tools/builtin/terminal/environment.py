"""The environment of commands: what they need to work, without secrets and without what would have them wait."""

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
    r"|://[\w.~%-]{16,}(:[^@/]*)?@",  # a token for a user
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
    # A repository that is not the one in the workspace: they are set where remit itself runs in a git hook.
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"),
    *("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*"),
    # Which account of a cloud or a registry is used: no command needs to know.
    *("AWS_*", "AZURE_*", "DOCKER_AUTH_*", "PGPASS_*"),
    # Programs that would ask a person.
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
    # A folder of a clone can be a repository with settings of its own; `git status` in it would run what they name.
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
    """What a command gets of an environment; names or patterns that are `passed` it gets as they are."""
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
    """An environment without variables that hold one of these: as all of it, in an address, or after an equals sign."""
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
    # Chance without blanks, whatever it is called.
    assigned = f"secret={value}"
    return _ONE_TOKEN.fullmatch(value) is not None and _SHAPES.redact_text(assigned) != assigned
