"""Names that mark a value as secret: one list for the environment of commands, the journal and texts."""

from __future__ import annotations

import re

INSIDE = (
    *("key", "token", "secret", "password", "passwd", "passphrase", "credential", "cookie", "webhook"),
    *("bearer", "mnemonic", "seed_phrase", "connection_string"),
)
"""A name that contains one of these is the name of a secret."""

LAST = ("pass", "pwd", "pw", "pat", "jwt", "dsn", "sas", "pin", "salt", "cred", "creds")
"""These count only as the last word of a name, with or without a number: `DB_PASS`, `MYSQL_PWD2`."""

ABOUT = ("passw", "private", "auth(?!or)")
"""These also occur in names of settings about a secret, such as `AUTH_PROVIDER`."""


def _any_of(words: tuple[str, ...]) -> str:
    return "|".join(word.replace("_", "[_-]?") for word in words)


_LAST = rf"(?:^|[_.-])(?:{_any_of(LAST)})\d*$|pass\d*$"
_SECRET = re.compile(f"{_any_of((*INSIDE, *ABOUT))}|{_LAST}", re.IGNORECASE)
_EXACT = re.compile(rf"(?:{_any_of(INSIDE)})s?\d*(?:[_.-]|$)|{_LAST}", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable with this name may hold a secret."""
    return _SECRET.search(name) is not None


def names_its_value(name: str) -> bool:
    """Whether the name says that the value is the secret (`DB_PASS`), not about a secret (`TOKENIZERS_PATH`)."""
    return _EXACT.search(name) is not None
