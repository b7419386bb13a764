"""The statements of the sink on every version of the server that this machine has."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from tests.postgres import PostgresServer, server_binaries

from resurgence.connectors.contract import CoveredInput
from resurgence.connectors.net_rows import IS_DELETED
from resurgence.connectors.postgres.column_types import WrittenColumn
from resurgence.connectors.postgres.connections import Database
from resurgence.connectors.postgres.location import quoted
from resurgence.connectors.postgres.markers import Marker, create_markers
from resurgence.connectors.postgres.merge import StagedPart, StagedRows, merge_statements, take_turn
from resurgence.connectors.postgres.staging import Rehearsal, StagingTable, rehearser, sweep_staging
from resurgence.connectors.postgres.target import read_target
from resurgence.ids import Epoch, JobIdentity

MARKER = Marker(JobIdentity("job"), "out")
KEYS = ["id"]


def versions() -> dict[str, Path]:
    """The binaries of each version."""
    found: dict[str, Path] = {}
    for each in server_binaries():
        command = [str(each / "postgres"), "--version"]
        with suppress(OSError, subprocess.CalledProcessError):
            found.setdefault(subprocess.check_output(command, text=True).split()[2], each)
    return found


VERSIONS = versions()


@pytest.fixture(params=[*VERSIONS.values()], ids=[*VERSIONS])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = PostgresServer(request.param, folder)
    try:
        server.start()
        yield Database(server.url(), "table out", timedelta(minutes=1))
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_an_epoch_is_staged_merged_and_marked_once(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kinds (kind text PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE out (id bigint PRIMARY KEY, v text NOT NULL CHECK (v <> ''),"
            " kind text REFERENCES kinds, at timestamptz DEFAULT now())"
        )
        connection.execute("INSERT INTO out (id, v) VALUES (1, 'old'), (2, 'old')")
    written = [WrittenColumn("id", "BIGINT"), WrittenColumn("v", "STRING")]
    with database.transaction() as connection:
        create_markers(connection)
        target = read_target(connection, "out", "")
    target.require_fitting(written, KEYS)
    assert target.needs_trial(["id", "v", "kind"], KEYS)
    columns = (*target.staging_columns(["id", "v"], KEYS), f"{quoted(IS_DELETED)} boolean")
    staging = StagingTable(database).prepare(MARKER, Epoch(1), columns)
    part = StagedPart(staging, number=7, subtask=0, rows=3)
    with database.transaction() as connection:
        for values in ("1, 'new', false", "2, 'x', true", "3, 'new', false"):
            place = int(values[0]) - 1
            connection.execute(f"INSERT INTO {staging} VALUES ({values}, 7, {place})".encode())

    def commit(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        if MARKER.lock(connection) >= 1:
            return False
        connection.execute(take_turn(target.oid).encode())
        rows = StagedRows(("id", "v", IS_DELETED), (part,))
        for each in merge_statements(target.sql, KEYS, [rows]):
            connection.execute(each.encode())
        MARKER.advance(connection, Epoch(1), CoveredInput(sources={}), 3)
        return True

    assert [database.run(commit), database.run(commit)] == [True, False]
    sweep_staging(database, MARKER, Epoch(1))
    with database.transaction() as connection:
        assert connection.execute("SELECT id, v FROM out ORDER BY id").fetchall() == [
            (1, "new"),
            (3, "new"),
        ]
        assert MARKER.recall(connection, [Epoch(1)]).newest == 1
        assert connection.execute("SELECT count(*) FROM resurgence.staging").fetchone() == (0,)


def test_a_key_that_moves_from_one_query_to_another_is_updated(database: Database) -> None:
    """In both directions: 1 from the second query to the first, 2 from the first to the second."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE out (id bigint PRIMARY KEY, v text UNIQUE, kept int)")
        connection.execute("INSERT INTO out SELECT i, 'old ' || i, i FROM generate_series(1, 5) i")
        connection.execute("CREATE TABLE details (id bigint REFERENCES out ON DELETE CASCADE)")
        connection.execute("INSERT INTO details VALUES (1), (2)")
    with database.transaction() as connection:
        target = read_target(connection, "out", "")
    columns = (*target.staging_columns(["id", "v"], KEYS), f"{quoted(IS_DELETED)} boolean")
    first = [(1, "new 1", False), (2, "old 2", True), (3, "old 3", True)]
    second = [(1, "old 1", True), (2, "new 2", False), (4, "old 4", True), (6, "old 3", False)]
    staged = []
    for changes in (first, second):
        table = StagingTable(database).prepare(MARKER, Epoch(1), columns)
        part = StagedPart(table, number=7, subtask=0, rows=len(changes))
        staged.append(StagedRows(("id", "v", IS_DELETED), (part,)))
        with database.transaction() as connection, connection.cursor() as cursor:
            rows = [(*each, part.number, place) for place, each in enumerate(changes)]
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s)".encode(), rows)
    with database.transaction() as connection:
        for each in merge_statements(target.sql, KEYS, staged):
            connection.execute(each.encode())
        assert connection.execute("SELECT * FROM out ORDER BY id").fetchall() == [
            *((1, "new 1", 1), (2, "new 2", 2), (5, "old 5", 5), (6, "old 3", None))
        ]
        assert connection.execute("SELECT id FROM details ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_rehearsal_waits_for_rows_but_not_with_locks(database: Database) -> None:
    waits = "current_setting('idle_in_transaction_session_timeout')::interval"
    columns = ("id bigint", f"waits interval DEFAULT {waits} CHECK (waits > '1 hour')")
    has_locks = f"SELECT 1 / ({waits} < '1 minute')::int"
    rehearse = rehearser(database, Rehearsal(columns, (has_locks,)))
    assert list(rehearse(iter([pa.RecordBatch.from_pydict({"id": [1, 2]})]))) == []
