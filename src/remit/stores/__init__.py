"""Where events and artifacts are kept. `remit.types.ports.Store` is what the stores share; `open_store` finds one.

Nothing here imports a database before its store is asked for.
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
    # For those who read hints while the program runs: pathlib takes too long to import for a name in a hint.
    from os import PathLike as Path

KNOWN = ("memory", "sqlite", "postgresql", "postgres")

FORMS = "'memory', 'sqlite', 'sqlite:///runs.db', 'sqlite:////full/path/runs.db' and 'postgresql://user@host/database'"


def open_store(url: str, *, secrets: Sequence[str | SecretPattern] = ()) -> Store:
    """The store that a name or an address stands for. Nothing is opened or made before it is used.

    `secrets` are kept out of it, besides what looks like one and what the environment has: texts, and patterns.
    Raises UsageError for an address that means nothing, and for a database whose driver is not installed.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "memory" and not rest:
        from remit.stores.memory import MemoryStore  # noqa: PLC0415 - as all stores, when it is asked for

        return MemoryStore()
    if scheme.partition(":")[0] == "sqlite":
        from remit.stores.sqlite import SqliteStore  # noqa: PLC0415 - sqlite3 is imported with its first use

        return SqliteStore(default_path() if url == "sqlite" else _file(url, rest), secrets=secrets)
    if scheme in ("postgresql", "postgres") and separator:
        return _postgres(url, secrets)
    raise UsageError(_unknown(scheme, url))


def default_path() -> Path:
    """Where runs are kept when no place is named: in $REMIT_HOME, else in this user's folder for such things."""
    from remit.history.journal_files import default_folder  # noqa: PLC0415 - for stores that are files

    return default_folder() / "runs.db"


def _file(url: str, rest: str) -> Path:
    if not rest.startswith("/") or rest == "/":
        shown = url if "@" not in url else "sqlite:..."
        what = "names no file" if rest in ("", "/") and "://" in url else "has too few slashes"
        raise UsageError(
            f"The store {shown!r} {what}. Write sqlite:///runs.db for a file here (three), or"
            " sqlite:////full/path/runs.db for one elsewhere (four)."
        )
    if rest == "/:memory:":
        raise UsageError("SQLite in memory is gone with its process: write 'memory', or name a file.")
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
            "A Postgres store needs psycopg, which is not installed: pip install 'remit[postgres]'"
        ) from None
    return PostgresStore(url, secrets=secrets)


def _unknown(scheme: str, url: str) -> str:
    name = re.split(r"[:/@ =]", url, maxsplit=1)[0]
    if name in KNOWN:
        shown = name if name == url else f"{name}:..."
        return f"The store {shown!r} is not written in full. A store is one of {FORMS}."
    from remit.types.spelling import suggest  # noqa: PLC0415 - only for those who mistype

    hint = suggest(scheme, KNOWN)
    # Only the beginning where there is more to it: the rest may hold a password.
    plain = re.fullmatch(r"[\w./-]{0,80}", url) is not None
    if plain and (url.endswith((".db", ".sqlite", ".sqlite3")) or "/" in url):
        hint = f" Did you mean 'sqlite:///{url}'?"
    shown = repr(url if plain else name)
    return f"There is no store {shown}.{hint} A store is one of {FORMS}."
