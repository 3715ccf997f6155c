"""`PostgresStore`: a store that many machines can share. Needs psycopg: `pip install 'remit[postgres]'`."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import LiteralString, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

import remit.history.journal_files as journal_files
import remit.stores.sql.migrations as migrations
from remit.errors import UsageError
from remit.history.secret_patterns import SecretPattern
from remit.stores.journal_store import JournalStore
from remit.stores.sql.database import Link, Row, Trouble
from remit.stores.sql.sandbox_exposure import find_text
from remit.types.sandbox import Sandbox

CONNECT_S = 4
"""Connection timeout in seconds."""

_LOCK = 0x72656D69
"""The key of our advisory lock: "remi"."""

_REQUIRE_AUTH = 160000
"""The first libpq version that supports `require_auth=none`."""

_LINES = r"""
    SELECT root, (head ->> 'seq')::bigint AS seq, head ->> 'kind' AS kind,
        coalesce(head -> 'where' ->> 'run', head ->> 'run') AS run, (head ->> 'at')::double precision AS at, line AS data
    FROM remit_pages, regexp_split_to_table(data, '\n') AS line,
        CAST(replace(line, '\u0000', '\ufffd') AS json) AS head
    """
"""The zero character is replaced because the server reads no field of JSON that contains one."""

_LINK_SETTINGS: dict[str, object] = {
    "connect_timeout": CONNECT_S,
    "application_name": "remit",
    # Overrides the environment: for a database in SQL_ASCII the driver would return bytes, not text.
    "client_encoding": "UTF8",
    # A server that disappears is noticed within seconds, not after the kernel's two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class PostgresStore(JournalStore):
    """A store in the Postgres database at a URL. Its tables begin with `remit_` and are created on first use.

    `secrets` are redacted, as is text that looks like keys and tokens. Raises UsageError for an invalid URL.
    """

    def __init__(self, url: str, *, secrets: Sequence[str | SecretPattern] = ()) -> None:
        super().__init__(PostgresDatabase(url), secrets)


class PostgresDatabase:
    """The database's address, its connections and its error messages."""

    after_fork = "Open the store in each process."

    def __init__(self, url: str) -> None:
        try:
            self._settings = _LINK_SETTINGS | conninfo_to_dict(url)
        except psycopg.Error:
            # The driver's message may show a part of the password.
            raise UsageError(
                "The URL of the Postgres store is invalid. Write postgresql://user@host:5432/database. In a password,"
                " escape @ as %40, / as %2F and : as %3A."
            ) from None
        self.password = str(self._settings.get("password") or "")
        self._sockets: tuple[Path, ...] = ()
        journal_files.use(self)

    @property
    def where(self) -> str:
        given = self._settings
        host = given.get("host") or given.get("hostaddr") or "the local server"
        port = f":{given['port']}" if given.get("port") else ""
        return f"The run store in Postgres at {host}{port}/{given.get('dbname') or given.get('user') or ''}"

    def files(self) -> Sequence[Path]:
        """The Unix socket of the connection, if it used one."""
        return self._sockets

    def exposed(self, sandboxes: Collection[Sandbox], workspace: Path) -> str:
        # A sandbox without network cannot reach any server, not even through a Unix socket: docs/decisions/0034.
        box = next((box for box in sandboxes if box.network), None)
        if box is None:
            return ""
        try:
            link = self._connect()
        except Trouble:
            # The claim, which comes next, reports the problem.
            return ""
        try:
            doors = _doors(link.info)
        finally:
            link.close()
        if any(map(self._lets_in, doors)):
            return (
                f"{self.where} accepts its user without a password, so commands in the sandbox {box} could approve their"
                " own calls. Use a sandbox without network, or require a password for every address (scram-sha-256 in"
                " the server's pg_hba.conf)."
            )
        place = find_text(workspace, self.password) if self.password else None
        if place is not None:
            return (
                f"The password of the run store is in {place}. Commands in the sandbox {box} can read this file and could"
                " then approve their own calls. Change the password and store it in ~/.pgpass or PGPASSWORD, or use a"
                " sandbox without network."
            )
        return ""

    def _lets_in(self, door: dict[str, object]) -> bool:
        """Whether the server accepts this user without a password or anything else that a sandbox hides."""
        # require_auth, if libpq supports it, avoids a password attempt that would count as a failed login.
        bare: dict[str, object]
        bare = {"require_auth": "none"} if psycopg.pq.version() >= _REQUIRE_AUTH else {"password": "-"}
        nothing: dict[str, object] = {"password": None, "hostaddr": None}
        nothing |= {"passfile": os.devnull, "sslcert": os.devnull + "/none", "gssencmode": "disable"}
        settings = self._settings | nothing | bare | door
        with suppress(psycopg.Error):
            psycopg.connect(**settings).close()  # pyright: ignore[reportArgumentType] - a mapping of settings
            return True
        return False

    def open_writer(self) -> Link:
        link = self._connect()
        try:
            if self._version(link) < migrations.VERSION:
                self._migrate(link)
        except BaseException:
            link.close()
            raise
        return link

    def open_reader(self) -> Link | None:
        link = self._connect()
        try:
            version = self._version(link)
            if version and version < migrations.VERSION:
                # Tables of an older remit can be read after a migration.
                self._migrate(link)
            if version:
                return link
        except BaseException:
            link.close()
            raise
        link.close()
        return None

    def _connect(self) -> PostgresLink:
        try:
            connection = psycopg.connect(autocommit=True, **self._settings)  # pyright: ignore[reportArgumentType] - a mapping of settings
            # A process that is frozen inside a transaction must not keep others from its rows for longer than a lease.
            connection.execute("SET idle_in_transaction_session_timeout = '10s'")
        except psycopg.Error as error:
            raise self.trouble(error) from None
        # The password may come from ~/.pgpass or from the environment.
        self.password = connection.info.password or self.password
        self._sockets = tuple(_sockets(connection.info))
        return PostgresLink(self, connection)

    def _version(self, link: PostgresLink) -> int:
        encoding = cast(str, link.rows("SHOW server_encoding")[0][0])
        if encoding not in ("UTF8", "SQL_ASCII"):
            # One character outside the encoding would stop the journal of every tree in the store.
            raise Trouble(
                f"{self.where} uses the encoding {encoding}, which lacks most characters. Create a database in UTF8"
                " (createdb --encoding UTF8 --template template0 NAME), and use that.",
                passing=False,
            )
        # Not `to_regclass`: its cached result may be older than a table that another process created.
        found = "SELECT 1 FROM pg_class WHERE relname = 'remit_meta' AND pg_table_is_visible(oid)"
        if not link.rows(found):
            return 0
        version = cast(int, link.rows("SELECT version FROM remit_meta")[0][0])
        if version > migrations.VERSION:
            raise Trouble(migrations.newer(self.where, version), passing=False)
        return version

    def _migrate(self, link: PostgresLink) -> None:
        link.begin()
        try:
            link.rows("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
            # Checked again under the lock: another process may have migrated first.
            version = self._version(link)
            if not version:
                link.change("CREATE TABLE remit_meta (version INTEGER NOT NULL)")
                link.change("INSERT INTO remit_meta (version) VALUES (0)")
            for sql in migrations.steps(version, blob="BYTEA", lines=_LINES):
                link.change(sql)
            link.change("UPDATE remit_meta SET version = ?", (migrations.VERSION,))
            link.commit()
        except BaseException:
            link.rollback()
            raise

    def trouble(self, error: psycopg.Error) -> Trouble:
        """The error for people, with the message of the server or the driver."""
        said = _clean(error, self.password)
        state = error.sqlstate or ""
        for states, passing, what in _WORDS:
            if state.startswith(states):
                return Trouble(f"{self.where} {what} ({said}).", passing=passing)
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Trouble(
                f"{self.where} is unreachable ({said}). Check its address and that the server is running.",
                passing=not _is_refusal(said),
            )
        return Trouble(f"{self.where} cannot be used ({said}).", passing=False)


def _is_socket(info: psycopg.ConnectionInfo) -> bool:
    return info.host.startswith(("/", "@"))


def _sockets(info: psycopg.ConnectionInfo) -> Iterator[Path]:
    """The file of a Unix socket. An abstract socket (@) has no file, and no sandbox can reach it."""
    if info.host.startswith("/"):
        yield Path(os.path.realpath(info.host), f".s.PGSQL.{info.port}")


def _doors(info: psycopg.ConnectionInfo) -> list[dict[str, object]]:
    """The addresses at which the server can be reached from a sandbox with network: never its Unix socket."""
    if _is_socket(info):
        return [{"host": host, "port": info.port} for host in ("127.0.0.1", "::1")]
    return [{"host": info.host, "hostaddr": info.hostaddr, "port": info.port}]


_WORDS: tuple[tuple[tuple[str, ...], bool, str], ...] = (
    (("28",), False, "rejects this user. Check user and password"),
    (("3D",), False, "does not exist. Create the database, or name another"),
    (("42501",), False, "denies this user write access. Grant the right to create and change tables"),
    (("25006",), False, "is read-only. Name a server that accepts writes"),
    (("53100",), True, "cannot grow: the server's disk is full. Free some space or delete old runs"),
    (
        ("53", "57", "08", "40", "55P03"),
        True,
        "is not available now. Wait for the server, or check its log",
    ),
)


def _is_refusal(said: str) -> bool:
    """Whether the server refused the connection: such errors have no SQLSTATE, only a message."""
    return any(
        words in said
        for words in (
            "authentication failed",
            "does not exist",
            "no pg_hba.conf entry",
            "no password supplied",
        )
    )


def _clean(error: psycopg.Error, password: str) -> str:
    """The message on one line, without the password."""
    said = " ".join(str(error).split())
    return said.replace(password, "***") if password else said


class PostgresLink:
    """A connection."""

    now = "extract(epoch FROM clock_timestamp())::float8"
    text = "convert_from(?, 'UTF8')"
    lock = " FOR UPDATE"

    def __init__(self, database: PostgresDatabase, connection: psycopg.Connection[Row]) -> None:
        self._database = database
        self._connection = connection
        self.info = connection.info

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        try:
            return self._connection.execute(_marked(sql), values).fetchall()
        except psycopg.Error as error:
            raise self._database.trouble(error) from None

    def stream(self, sql: str, values: Sequence[object] = ()) -> Generator[Row]:
        try:
            # A server-side cursor: otherwise the driver fetches all rows at once.
            self._connection.execute("BEGIN")
            try:
                with self._connection.cursor("remit_page") as cursor:
                    cursor.itersize = 50
                    cursor.execute(_marked(sql), values)
                    yield from cursor
            finally:
                if not self._connection.closed:
                    self._connection.execute("COMMIT")
        except psycopg.Error as error:
            raise self._database.trouble(error) from None

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        try:
            return self._connection.execute(_marked(sql), values or None).rowcount
        except psycopg.Error as error:
            raise self._database.trouble(error) from None

    def begin(self, *, lasting: bool = True) -> None:
        self.change("BEGIN")
        if not lasting:
            self.change("SET LOCAL synchronous_commit = off")

    def commit(self) -> None:
        self.change("COMMIT")

    def rollback(self) -> None:
        try:
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            pass

    def shrink(self) -> None:
        """Nothing to do: the server cleans up by itself."""

    def close(self) -> None:
        self._connection.close()


@cache
def _marked(sql: str) -> LiteralString:
    """Our own SQL with the driver's placeholders for values."""
    return cast(LiteralString, sql.replace("%", "%%").replace("?", "%s"))
