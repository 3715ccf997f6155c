"""Stores for events and artifacts. `remit.types.ports.Store` is their interface; `open_store` opens one by URL.

Database drivers are imported only when their store is opened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remit.errors import UsageError
from remit.history.secret_patterns import SecretPattern as SecretPattern
from remit.types.ports import Store

if TYPE_CHECKING:
    from pathlib import Path
else:
    # For code that reads type hints at run time. Importing pathlib would take too long for a type hint.
    from os import PathLike as Path

KNOWN = ("memory", "sqlite", "postgresql", "postgres")

FORMS = "'memory', 'sqlite', 'sqlite:///runs.db', 'sqlite:////full/path/runs.db' and 'postgresql://user@host/database'"


def open_store(url: str, *, secrets: Sequence[str | SecretPattern] = ()) -> Store:
    """The store for a name or URL. Nothing is opened or created before the first use.

    `secrets` (texts and patterns) are redacted, as is text that looks like a secret and secret values of environment
    variables. Raises UsageError for an unknown URL or a missing database driver.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "memory" and not rest:
        from remit.stores.memory import MemoryStore  # noqa: PLC0415 - imported on demand

        return MemoryStore()
    if scheme.partition(":")[0] == "sqlite":
        from remit.stores.sqlite import SqliteStore  # noqa: PLC0415 - imported on demand

        return SqliteStore(default_path() if url == "sqlite" else _file(url, rest), secrets=secrets)
    if scheme in ("postgresql", "postgres") and separator:
        return _postgres(url, secrets)
    raise UsageError(_unknown(scheme, url))


def default_path() -> Path:
    """The default database file: in $REMIT_HOME, else in the user's folder for application state."""
    from remit.history.journal_files import default_folder  # noqa: PLC0415 - needed only for files

    return default_folder() / "runs.db"


def _file(url: str, rest: str) -> Path:
    if not rest.startswith("/") or rest == "/":
        shown = url if "@" not in url else "sqlite:..."
        what = "does not name a file" if rest in ("", "/") and "://" in url else "has too few slashes"
        raise UsageError(
            f"The store URL {shown!r} {what}. Write sqlite:///runs.db for a relative path (three slashes), or"
            " sqlite:////full/path/runs.db for an absolute path (four slashes)."
        )
    if rest == "/:memory:":
        raise UsageError("An in-memory SQLite database is not supported. Write 'memory', or name a file.")
    from pathlib import Path  # noqa: PLC0415 - as above
    from urllib.parse import unquote  # noqa: PLC0415 - as above

    return Path(unquote(rest[1:]))


def _postgres(url: str, secrets: Sequence[str | SecretPattern]) -> Store:
    try:
        from remit.stores.postgres import PostgresStore  # noqa: PLC0415 - psycopg is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise UsageError(
            "A Postgres store needs psycopg, which is not installed. Run: pip install 'remit[postgres]'"
        ) from None
    return PostgresStore(url, secrets=secrets)


def _unknown(scheme: str, url: str) -> str:
    name = re.split(r"[:/@ =]", url, maxsplit=1)[0]
    if name in KNOWN:
        shown = name if name == url else f"{name}:..."
        return f"The store URL {shown!r} is incomplete. Valid stores: {FORMS}."
    from remit.types.spelling import suggest  # noqa: PLC0415 - needed only for this error

    hint = suggest(scheme, KNOWN)
    # Show a long URL only in part: the rest may contain a password.
    plain = re.fullmatch(r"[\w./-]{0,80}", url) is not None
    if plain and (url.endswith((".db", ".sqlite", ".sqlite3")) or "/" in url):
        hint = f" Did you mean 'sqlite:///{url}'?"
    shown = repr(url if plain else name)
    return f"Unknown store {shown}.{hint} Valid stores: {FORMS}."
