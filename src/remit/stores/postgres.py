"""The store on a Postgres server: many machines, one place. Needs psycopg: `pip install 'remit[postgres]'`."""

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
"""Seconds to wait for a server that does not answer."""

_LOCK = 0x72656D69
"""Names our advisory lock: "remi"."""

_REQUIRE_AUTH = 160000
"""The first libpq that can insist on being let in without a password."""

_LINES = r"""
    SELECT root, (head ->> 'seq')::bigint AS seq, head ->> 'kind' AS kind,
        coalesce(head -> 'where' ->> 'run', head ->> 'run') AS run, (head ->> 'at')::double precision AS at, line AS data
    FROM remit_pages, regexp_split_to_table(data, '\n') AS line,
        CAST(replace(line, '\u0000', '\ufffd') AS json) AS head
    """
"""The server finds no field in JSON that has a zero character anywhere."""

_LINK_SETTINGS: dict[str, object] = {
    "connect_timeout": CONNECT_S,
    "application_name": "remit",
    # Whatever the surroundings say: of a database in SQL_ASCII the driver would give bytes, not texts.
    "client_encoding": "UTF8",
    # A server that is gone without a word is noticed within seconds, not within the kernel's two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class PostgresStore(JournalStore):
    """A database, by its address. Its tables begin with `remit_`, and are made when it is first used.

    `secrets` are kept out of it, as are texts that look like keys and tokens. Raises UsageError for an
    address that cannot be read.
    """

    def __init__(self, url: str, *, secrets: Sequence[str | SecretPattern] = ()) -> None:
        super().__init__(PostgresDatabase(url), secrets)


class PostgresDatabase:
    """Where it is, and what can be wrong with it."""

    after_fork = "Open it anew in each process."

    def __init__(self, url: str) -> None:
        try:
            self._settings = _LINK_SETTINGS | conninfo_to_dict(url)
        except psycopg.Error:
            # What the driver says may show a part of the password.
            raise UsageError(
                "The address of the Postgres store cannot be read. Write postgresql://user@host:5432/database, and "
                "in a password %40 for @, %2F for / and %3A for a colon."
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
        """The Unix socket that it was reached at, if it was one."""
        return self._sockets

    def exposed(self, sandboxes: Collection[Sandbox], workspace: Path) -> str:
        # Without network a sandbox has no socket that leads to a server: docs/decisions/0034.
        box = next((box for box in sandboxes if box.network), None)
        if box is None:
            return ""
        try:
            link = self._connect()
        except Trouble:
            # The claim, which comes next, says what is wrong.
            return ""
        try:
            doors = _doors(link.info)
        finally:
            link.close()
        if any(map(self._lets_in, doors)):
            return (
                f"{self.where} lets its user in without a password, so commands in the sandbox {box} could approve their"
                " own calls. Use a sandbox without network, or require a password for every address (scram-sha-256 in"
                " the server's pg_hba.conf)."
            )
        place = find_text(workspace, self.password) if self.password else None
        if place is not None:
            return (
                f"The password of the run store is written in {place}, which commands in the sandbox {box} can read: with"
                " it they could approve their own calls. Move it to ~/.pgpass or PGPASSWORD and change it, or use a sandbox"
                " without network."
            )
        return ""

    def _lets_in(self, door: dict[str, object]) -> bool:
        """Whether the server lets this user in without anything that a sandbox hides."""
        # Without a prompt for a password where libpq can say so: it would count as a failed login.
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
                # An older remit's: its runs can be looked at once it is up to date.
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
        except psycopg.Error as error:
            raise self.trouble(error) from None
        # It may come from ~/.pgpass or from the environment.
        self.password = connection.info.password or self.password
        self._sockets = tuple(_sockets(connection.info))
        return PostgresLink(self, connection)

    def _version(self, link: PostgresLink) -> int:
        encoding = cast(str, link.rows("SHOW server_encoding")[0][0])
        if encoding not in ("UTF8", "SQL_ASCII"):
            # One character of another kind would end every tree of the store.
            raise Trouble(
                f"{self.where} keeps its texts in {encoding}, which lacks most characters. Create a database in UTF8"
                " (createdb --encoding UTF8 --template template0 NAME), and name that.",
                passing=False,
            )
        # Not `to_regclass`: it may remember that there was none before another process made it.
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
            # Now that nobody else can: another process may have been faster.
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
        """What the server or the driver says, in words."""
        said = _clean(error, self.password)
        state = error.sqlstate or ""
        for states, passing, what in _WORDS:
            if state.startswith(states):
                return Trouble(f"{self.where} {what} ({said}).", passing=passing)
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Trouble(
                f"{self.where} cannot be reached ({said}). Check that the server runs, and its address.",
                passing=not _is_refusal(said),
            )
        return Trouble(f"{self.where} cannot be used ({said}).", passing=False)


def _is_socket(info: psycopg.ConnectionInfo) -> bool:
    return info.host.startswith(("/", "@"))


def _sockets(info: psycopg.ConnectionInfo) -> Iterator[Path]:
    """The file of a Unix socket. One whose name begins with @ has none, and is out of reach in every sandbox."""
    if info.host.startswith("/"):
        yield Path(os.path.realpath(info.host), f".s.PGSQL.{info.port}")


def _doors(info: psycopg.ConnectionInfo) -> list[dict[str, object]]:
    """The addresses at which the server can be reached from a sandbox with network: never its Unix socket."""
    if _is_socket(info):
        return [{"host": host, "port": info.port} for host in ("127.0.0.1", "::1")]
    return [{"host": info.host, "hostaddr": info.hostaddr, "port": info.port}]


_WORDS: tuple[tuple[tuple[str, ...], bool, str], ...] = (
    (("28",), False, "does not let this user in. Check user and password"),
    (("3D",), False, "does not exist. Create the database, or name another"),
    (("42501",), False, "may not be written by this user. Grant it the right to create and change tables"),
    (("25006",), False, "is read-only. Name a server that can be written"),
    (("53100",), True, "cannot grow: the server's disk is full. Free some space or delete old runs"),
    (
        ("53", "57", "08", "40", "55P03"),
        True,
        "is not available now. Wait for the server, or look at its log",
    ),
)


def _is_refusal(said: str) -> bool:
    """Errors while connecting have no state, only words."""
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
    """One line, and nothing secret."""
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
            # A cursor of the server's: the driver would fetch the whole page at once, whatever its size.
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
    """Our SQL with the driver's marks for values. None of it comes from outside."""
    return cast(LiteralString, sql.replace("%", "%%").replace("?", "%s"))
