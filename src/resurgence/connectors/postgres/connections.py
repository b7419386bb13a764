"""Transactions in a Postgres database: pooled connections, deadlines, and the server's errors as
ours.

A process has one pool per database; a Python worker of Spark has its own. Settings are made for each
transaction, as a pooler in transaction mode requires, which gives every transaction another session.

| SQLSTATE | error | retried |
|---|---|---|
| classes 22, 23, 44; P0001, which triggers raise | MessageRefused: the row | no |
| class 42, 3D, 3F without 42501 | UserError: a name, a type | no |
| 40001, 40P01: a deadlock or a conflict of transactions | Conflicted | at once |
| none, classes 08, 53, 57; 25006, 25P03 | ConnectionLost | yes |
| any other | SinkError | yes |
"""

from __future__ import annotations

import atexit
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from resurgence.errors import (
    ConnectionLost,
    MessageRefused,
    ResurgenceError,
    SinkError,
    UserError,
)

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

IDLE_IN_TRANSACTION = timedelta(seconds=30)
"""The server ends the transaction of a process that was frozen or cut off, and with it its locks."""
_CHECK_AFTER = 5.0
"""Seconds after which an idle connection is checked before it is used again."""
_MOST_IDLE = 4
_ATTEMPTS = 3
_SHOWN = 300
_REFUSED = ("22", "23", "44", "P0001")
_USER_ERROR = ("42", "3D", "3F", "0A")
_OUTAGE = ("08", "53", "57", "25006", "25P03")
"""25006: a server that is, or has become, a read-only standby. 25P03: it waited too long for us."""
_CONFLICTED = ("40001", "40P01")
_DENIED, _LOCKED, _CANCELLED = "42501", "55P03", "57014"
_LOGIN_REFUSED = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|role .* does not"
)
_NO_DATABASE = re.compile(r"database .* does not exist")


class Conflicted(SinkError):
    """The server chose this transaction to end a deadlock or a conflict."""


@dataclass(frozen=True)
class Database:
    """A database, and how long a statement may take in it. Pickled into Spark tasks."""

    url: str
    place: str
    """The table that is written, for errors."""
    statement_timeout: timedelta

    def __repr__(self) -> str:
        return f"Database({self.place})"

    @contextmanager
    def transaction(
        self, lock_timeout: timedelta | None = None, *, keep: bool = True
    ) -> Iterator[psycopg.Connection[Any]]:
        """Run a transaction. It is rolled back after an error, or if it is not to be kept."""
        import psycopg

        try:
            with (
                _pool(self.url).connection() as connection,
                connection.transaction(force_rollback=not keep),
            ):
                connection.execute(self._settings(lock_timeout).encode())
                yield connection
        except psycopg.Error as error:
            translated = self._translated(error)
            if isinstance(translated, ConnectionLost):
                _pool(self.url).close()
            raise translated from error

    def run(self, work: Callable[[psycopg.Connection[Any]], T], *, keep: bool = True) -> T:
        """Return what idempotent work in a transaction of its own returns. It is repeated at once
        after a conflict of transactions, and once if the connection was lost: the answer to COMMIT
        may have been lost with it.
        """
        lost = 0
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction(keep=keep) as connection:
                    return work(connection)
            except (Conflicted, ConnectionLost) as error:
                lost += isinstance(error, ConnectionLost)
                if attempt == _ATTEMPTS or lost > 1:
                    raise
        raise AssertionError("unreachable")

    def _settings(self, lock_timeout: timedelta | None) -> str:
        settings = {
            "TIME ZONE": "'UTC'",
            "statement_timeout": f"= {_millis(self.statement_timeout)}",
            "lock_timeout": f"= {_millis(lock_timeout)}" if lock_timeout else "= 0",
        }
        # A commit that the server may lose in a crash would be on record in the job's state.
        durable = (
            "SELECT set_config('synchronous_commit', 'on', true)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        listed = [f"SET LOCAL {name} {to}" for name, to in settings.items()]
        return "; ".join([*listed, limit_idle(IDLE_IN_TRANSACTION), durable])

    def _translated(self, error: psycopg.Error) -> ResurgenceError:
        state, message = error.sqlstate or "", _message(error)
        text = f"{self.place}: {message}"
        if state in _CONFLICTED:
            return Conflicted(text, hint="Check which other transactions write the table.")
        if state.startswith(_REFUSED):
            return MessageRefused(
                f"{self.place} refuses a row: {message}",
                hint="Fix the row in the query, or change the constraint or the type in the table.",
                position=self.place,
            )
        if state == _DENIED:
            hint = "Grant what docs/connectors/postgres.md lists to the user. The job will retry."
            return SinkError(text, hint=hint)
        if state == _LOCKED:
            return SinkError(text, hint="Check who holds a lock on it. The job will retry.")
        if state == _CANCELLED:
            return SinkError(
                text,
                hint="Check who holds a lock on the table, or raise 'sink.statement_timeout'. The"
                " job will retry.",
            )
        if state.startswith(_USER_ERROR) or _NO_DATABASE.search(message):
            return UserError(text, hint="Check the options 'dsn' and 'table', and the columns.")
        if state.startswith("28") or _LOGIN_REFUSED.search(message):
            hint = "Check the user and the password in the option 'dsn'. The job will retry."
            return SinkError(text, hint=hint)
        if not state or state.startswith(_OUTAGE):
            return ConnectionLost(
                text, hint="Check that the server is running. The job will retry."
            )
        return SinkError(text, hint="Check the server. The job will retry.")


def limit_idle(wait: timedelta) -> str:
    """Return the statement that sets how long the current transaction waits for its next statement."""
    return f"SET LOCAL idle_in_transaction_session_timeout = {_millis(wait)}"


def _message(error: psycopg.Error) -> str:
    """Return the message of the server with its detail, such as the row that it refuses."""
    parts = [error.diag.message_primary or str(error).strip().split("\n", 1)[0]]
    if error.diag.message_detail:
        detail = error.diag.message_detail
        parts.append(detail if len(detail) <= _SHOWN else f"{detail[:_SHOWN]}…")
    return " · ".join(parts)


def _millis(duration: timedelta) -> int:
    return max(1, round(duration / timedelta(milliseconds=1)))


class _Pool:
    """Idle connections to a database. Every connection is used by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._idle: list[tuple[psycopg.Connection[Any], float]] = []

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        connection = self._taken() or self._opened()
        try:
            yield connection
        finally:
            self._return(connection)

    def _taken(self) -> psycopg.Connection[Any] | None:
        """Return an idle connection that works. After a restart of the server, none may."""
        import psycopg

        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < _CHECK_AFTER and not connection.closed:
                return connection
            with suppress(psycopg.Error):
                connection.execute("SELECT 1")
                return connection
            connection.close()

    def _opened(self) -> psycopg.Connection[Any]:
        import psycopg

        # A pooler may give every transaction another session, which has no prepared statements.
        return psycopg.connect(
            self._url, autocommit=True, prepare_threshold=None, client_encoding="UTF8"
        )

    def _return(self, connection: psycopg.Connection[Any]) -> None:
        from psycopg.pq import TransactionStatus

        is_usable = connection.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if is_usable and len(self._idle) < _MOST_IDLE:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop()[0].close()


_pools: dict[str, _Pool] = {}
_pools_lock = threading.Lock()


def _pool(url: str) -> _Pool:
    with _pools_lock:
        return _pools.setdefault(url, _Pool(url))


@atexit.register
def _close() -> None:
    for each in _pools.values():
        each.close()
