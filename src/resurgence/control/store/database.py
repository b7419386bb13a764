"""Connections to the metadata database: SQLite in a file, or Postgres.

Every call returns in bounded time. Postgres cancels a statement that takes too long; if the server
does not respond at all, the client closes the connection. The next call replaces a broken
connection. Every failure is a `StorageError` without secrets: its text contains neither the
password of the URL nor the values of a statement.

A SQLite file can be moved or deleted while it is open. SQLite does not notice: it continues to
write to a file that no one will open again. So every transaction first checks that the path still
names the file that was opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pydantic
import sqlalchemy as sa
from sqlalchemy.pool import ConnectionPoolEntry

from resurgence.control.store.schema import create_tables, is_current
from resurgence.errors import ConfigError, ResurgenceError, StorageError, UserError
from resurgence.secrets import MASK, Concealer, is_secret
from resurgence.storage.private_files import FILE_MODE, make_private_folder

CONNECT_TIMEOUT = timedelta(seconds=5)
STATEMENT_TIMEOUT = timedelta(seconds=10)
"""Also bounds the waits for locks and for a free connection of the pool."""
ANSWER_TIMEOUT = timedelta(seconds=12)
"""When the client closes the connection to a server that should have cancelled the statement."""

TABLES_LOCK = 7_263_001
EVENTS_LOCK = 7_263_002
FILES_LOCK = 7_263_004
_CHANGES = "resurgence_changes"
_LISTEN_FOR = timedelta(seconds=5)
_POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")
_FORMS = "Write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE."


class DatabaseFileGone(StorageError):
    """The path of the SQLite file no longer names the file that was opened."""

    code = "storage.database_gone"


class Database:
    """Transactions, from any thread. Creates the tables of a new database."""

    def __init__(self, location: Path | str) -> None:
        url = _url(location)
        self._postgres = url.drivername != "sqlite"
        self.can_be_shared = self._postgres
        """Several services at a time can use this database."""
        self._concealer = Concealer(dict.fromkeys(_secrets(url), MASK))
        self._shown = _shown(url)
        self._held: IO[str] | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the SQLite file."""
        self._engine = _postgres_engine(url) if self._postgres else _sqlite_engine(url)
        try:
            self._open(url)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a read-only transaction; on SQLite it waits for no lock."""
        with self._translated("the metadata database failed"):
            self._require_same_file()
            with self._engine.begin() as connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open an atomic write transaction. On SQLite there is one at a time."""
        with (
            self._translated("the metadata database failed"),
            self._write_transaction() as connection,
        ):
            yield connection

    def take_turns(self, connection: sa.Connection, lock: int) -> None:
        """Hold an exclusive lock until this transaction ends."""
        if self._postgres:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))

    @contextmanager
    def turn(self, lock: int) -> Iterator[None]:
        """Hold an exclusive lock, in a transaction of its own. A process that freezes meanwhile
        loses it to the server's timeout.
        """
        with self.writing() as connection:
            self.take_turns(connection, lock)
            yield

    def notify(self, connection: sa.Connection) -> None:
        """Tell all listeners of a change, once this transaction is committed."""
        if self._postgres:
            connection.execute(sa.select(sa.func.pg_notify(_CHANGES, "")))

    def listen(self, changed: Callable[[], None], ended: threading.Event) -> None:
        """Call `changed` for every notification until `ended` is set. Raise StorageError if the
        connection breaks: notifications may have been missed. Blocks: call it in a thread.
        """
        import psycopg

        with self._translated("the metadata database failed"):
            connected = self._engine.connect()
            connection: Any = connected.connection.driver_connection
            connected.detach()
        try:
            with connection:
                connection.autocommit = True
                connection.execute(f"LISTEN {_CHANGES}")
                changed()
                while not ended.is_set():
                    for _ in connection.notifies(timeout=_LISTEN_FOR.total_seconds(), stop_after=1):
                        changed()
        except psycopg.Error as error:
            raise StorageError(f"cannot listen for changes: {self._first_line(error)}") from error

    def hold(self) -> bool:
        """Become the only service of a SQLite file, until it is closed or the process ends. Return
        False if another service holds it.
        """
        with self._translated("the metadata database failed"):
            self._held = self._file_held()
        return self._held is not None

    def still_holds(self) -> bool:
        """Return whether this is still the only service."""
        self._require_same_file()
        return self._held is not None

    def _file_held(self) -> IO[str] | None:
        file = Path(f"{self._engine.url.database}.lock").open("w")  # noqa: SIM115 - held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        self._engine.dispose()

    def _open(self, url: sa.URL) -> None:
        hint = "Check that the server is running and that the user and the database exist."
        if not self._postgres:
            hint = (
                "Move the file away to start with a new one: it holds no checkpoints. "
                "For a service, create its jobs and keys again."
            )
        with self._translated(f"cannot open the metadata database {self._shown}", hint):
            if not self._postgres:
                path = Path(str(url.database))
                make_private_folder(path.parent)
                # The stored SQL may contain secrets.
                path.touch(mode=FILE_MODE)
                self._file = _file_at(path)
            # Another process may be creating the tables, so an unexpected schema is checked again
            # under the lock.
            with self._engine.begin() as connection, contextlib.suppress(ConfigError):
                if is_current(connection):
                    return
            with self._write_transaction() as connection:
                self.take_turns(connection, TABLES_LOCK)
                create_tables(connection)

    @contextmanager
    def _write_transaction(self) -> Iterator[sa.Connection]:
        self._require_same_file()
        connected = self._engine.connect().execution_options(writes=True)
        with connected as connection, connection.begin():
            yield connection

    def _require_same_file(self) -> None:
        """Call this before connecting: a new connection would create an empty file."""
        if self._file is None:
            return
        found = _file_at(Path(str(self._engine.url.database)))
        if found != self._file:
            what = "was moved or deleted" if found is None else "was replaced by another file"
            raise DatabaseFileGone(
                f"the metadata database {self._shown} {what} while it was open",
                hint="Move the file back, or restart the process to use what is there now.",
            )

    @contextmanager
    def _translated(self, failure: str, hint: str = "") -> Iterator[None]:
        try:
            yield
        except ResurgenceError:
            raise
        except (sa.exc.DataError, UnicodeError, OverflowError) as error:
            raise UserError("the metadata database cannot store this value") from error
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise StorageError(f"{failure}: {self._first_line(error)}", hint=hint) from error
        except (pydantic.ValidationError, json.JSONDecodeError) as error:
            raise StorageError(
                f"{failure}: a record is malformed",
                hint="Restore the database from a backup: another program has written to it.",
            ) from error

    def _first_line(self, error: Exception) -> str:
        """Return the first line of an error: in the others, Postgres quotes rows."""
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig else error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        return self._concealer.text(lines[0])


def _url(location: Path | str) -> sa.URL:
    if isinstance(location, Path):
        return sa.URL.create("sqlite", database=str(location))
    try:
        url = sa.make_url(location)
    except (sa.exc.ArgumentError, ValueError):
        # No cause: it may quote a password.
        raise ConfigError("the URL of the metadata database is malformed", hint=_FORMS) from None
    if url.drivername in _POSTGRES:
        if "@" in (url.host or ""):
            raise ConfigError(
                "the URL of the metadata database has more than one '@'",
                hint="Write '@' in a password as %40.",
            )
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite":
        raise ConfigError(f"'{url.drivername}' is not a supported metadata database", hint=_FORMS)
    if url.query or url.database in (None, "", ":memory:"):
        raise ConfigError(
            "the URL of a SQLite metadata database must name a file, without options", hint=_FORMS
        )
    return url


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _secrets(url: sa.URL) -> list[str]:
    in_query = [str(value) for name, value in url.query.items() if is_secret(name)]
    return [each for each in (url.password, *in_query) if each]


def _shown(url: sa.URL) -> str:
    if url.drivername == "sqlite":
        return str(url.database)
    # Built from the public parts, because `set(password=None)` does not remove the password.
    return str(
        sa.URL.create(
            "postgresql",
            username=url.username,
            host=url.host,
            port=url.port,
            database=url.database,
        )
    )


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    engine = _engine(url, connect_args={"timeout": STATEMENT_TIMEOUT.total_seconds()})

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # otherwise the driver begins transactions itself
        _enable_wal(connection)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode that lets readers and a writer run concurrently. The mode is persistent.
    SQLite does not wait for a concurrent change of mode, but reports a locked file.
    """
    give_up_at = time.monotonic() + STATEMENT_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
        else:
            return


def _postgres_engine(url: sa.URL) -> sa.Engine:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            "a Postgres metadata database requires the package psycopg",
            hint="Install it with pip install 'resurgence[postgres]'.",
        ) from error

    class Connection(psycopg.Connection[Any]):
        """Closes the connection to a server that does not respond."""

        def wait(self, gen: Generator[Any, Any, Any], *rest: Any, **options: Any) -> Any:
            return super().wait(self._bounded(gen), *rest, **options)

        def _bounded(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            give_up_at = time.monotonic() + ANSWER_TIMEOUT.total_seconds()
            try:
                awaited = next(steps)
                while True:
                    ready = yield awaited
                    if not ready and time.monotonic() > give_up_at:
                        self.pgconn.finish()
                        raise psycopg.OperationalError("the server does not respond")
                    awaited = steps.send(ready)
            except StopIteration as end:
                return end.value

    engine = _engine(
        url,
        pool_pre_ping=True,
        connect_args={
            "application_name": "resurgence",
            "connect_timeout": int(CONNECT_TIMEOUT.total_seconds()),
            # If the network drops all packets, the kernel gives up after about as long.
            "tcp_user_timeout": int(STATEMENT_TIMEOUT.total_seconds() * 1000),
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
        },
    )

    @sa.event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: list[Any], options: dict[str, Any]) -> Any:
        return Connection.connect(*args, **options)

    @sa.event.listens_for(engine, "connect")
    def limit(connection: Any, _record: ConnectionPoolEntry) -> None:
        # Not as startup options, because poolers refuse those, and the URL may have its own.
        try:
            limit = int(STATEMENT_TIMEOUT.total_seconds() * 1000)
            connection.execute(f"SET statement_timeout = {limit}")
            # A process that is frozen in a transaction must not hold its locks.
            connection.execute(f"SET idle_in_transaction_session_timeout = {limit}")
            connection.commit()
        except BaseException:
            # The pool has not taken it yet.
            connection.close()
            raise

    return engine


def _engine(url: sa.URL, **options: Any) -> sa.Engine:
    return sa.create_engine(
        url,
        hide_parameters=True,
        pool_size=5,
        max_overflow=5,
        pool_timeout=STATEMENT_TIMEOUT.total_seconds(),
        **options,
    )
