"""The commits of a Postgres sink when processes crash, wake up late, compete, or lose their
connection.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.postgres import connections
from resurgence.connectors.postgres.connections import Database
from resurgence.connectors.postgres.markers import Marker
from resurgence.errors import ConnectionLost, ResurgenceError, SinkConflict, SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity
from tests.engine.connectors.postgres_tables import JOB, ROWS, Tables, Writer, covered, events
from tests.engine.harness import Job, Leg
from tests.postgres import PostgresServer
from tests.servers.postgres_proxy import Cut, PostgresProxy, postgres_proxy


@pytest.fixture
def tables(postgres_url: str) -> Tables:
    return Tables(postgres_url)


@pytest.fixture
def proxy(postgres_server: PostgresServer, postgres_url: str) -> Iterator[PostgresProxy]:
    folder = postgres_url.rsplit("host=", 1)[1]
    with postgres_proxy(f"{folder}/.s.PGSQL.5432") as made:
        yield made


def through(proxy: PostgresProxy, tables: Tables) -> str:
    return proxy.url(tables.url.split("?")[0].rsplit("/", 1)[1])


class Crash(Exception):
    """A process that ends, in a test."""


@contextmanager
def crashing_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Crash at the n-th step that a driver takes in the database: even ones before the transaction
    begins, odd ones after it was committed. Yields whether that happened.
    """
    steps = iter(range(1_000_000))
    crashed = threading.Event()
    original = Database.transaction

    def step() -> None:
        if next(steps) == number:
            crashed.set()
            raise Crash

    @contextmanager
    def transaction(self: Database, *args: Any, **settings: Any) -> Iterator[Any]:
        step()
        with original(self, *args, **settings) as connection:
            yield connection
        step()

    with monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", transaction)
        yield crashed.is_set


@pytest.mark.parametrize("keys", ["", "PRIMARY KEY"], ids=["append", "upsert"])
def test_a_crash_at_any_step_leaves_each_row_once(
    spark: SparkSession,
    tmp_path: Path,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    keys: str,
) -> None:
    tables.execute(f"CREATE TABLE out (id bigint {keys}, name text)")
    sql = events(tmp_path, 8) + tables.sink_sql(f"(id BIGINT {keys}, name TEXT)")
    sql += "INSERT INTO out SELECT id, name FROM events"
    for number in range(1_000):
        tables.execute("TRUNCATE out")
        job = Job(spark, tmp_path, sql, place=f"file://{tmp_path}/state-{number}")
        with crashing_at(number, monkeypatch) as has_crashed:
            try:
                job.run([Leg(4, 2)])
            except Crash:
                assert has_crashed()
        if not has_crashed():
            break
        job.run([Leg(4, 3)])
        assert tables.ids() == list(range(8)), f"crash at step {number}"
        assert tables.staging_tables() == []
    assert number > 15
    assert tables.ids() == list(range(8))


def test_a_zombie_that_commits_late_writes_nothing(spark: SparkSession, tables: Tables) -> None:
    tables.execute("CREATE TABLE out (id bigint PRIMARY KEY, v text)")
    zombie, writer = Writer(spark, tables.sink("id")), Writer(spark, tables.sink("id"))
    late = zombie.stage(1, [(1, "old"), (2, "old")])
    writer.write(1, [(1, "old"), (2, "old")])
    writer.write(2, [(1, "new")])
    zombie.commit(1, late)
    assert sorted(tables.rows("TABLE out")) == [(1, "new"), (2, "old")]
    assert writer.sink.recall(JOB, [Epoch(1), Epoch(2), Epoch(3)]).inputs == {
        Epoch(1): covered(1),
        Epoch(2): covered(2),
    }


def test_a_zombie_that_waits_for_the_marker_writes_nothing(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writers = [Writer(spark, tables.sink()) for _ in range(4)]
    staged = [each.stage(1, [(1, "a"), (2, "b")]) for each in writers]
    with ThreadPoolExecutor(4) as threads:
        list(
            threads.map(lambda pair: pair[0].commit(1, pair[1]), zip(writers, staged, strict=True))
        )
    assert sorted(tables.rows("TABLE out")) == [(1, "a"), (2, "b")]


def test_an_epoch_over_other_input_is_a_conflict(spark: SparkSession, tables: Tables) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink())
    writer.write(1, [(1, "a")])
    with pytest.raises(SinkConflict, match="holds epoch 1 over other input"):
        writer.commit(1, writer.stage(1, [(2, "b")]), of="others")
    assert tables.rows("TABLE out") == [(1, "a")]


def test_epochs_that_were_rolled_back_cannot_be_committed(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    zombie, sink = Writer(spark, tables.sink()), tables.sink()
    staged = zombie.stage(3, [(1, "a")])
    for _ in range(2):
        sink.retract(JOB, Epoch(1), Epoch(4))
    zombie.commit(3, staged)
    assert tables.rows("TABLE out") == []
    assert tables.staging_tables() == []
    assert sink.recall(JOB, []).retracted == ((2, 4),)
    Writer(spark, sink).write(5, [(5, "e")])
    assert tables.rows("TABLE out") == [(5, "e")]


def test_records_are_forgotten_but_for_the_newest(spark: SparkSession, tables: Tables) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    sink = tables.sink()
    assert sink.recall(JOB, [Epoch(1)]).newest == NO_EPOCH
    sink.forget(JOB, Epoch(9))
    writer = Writer(spark, sink)
    for epoch in (1, 2, 3):
        writer.write(epoch, [(epoch, "a")])
    sink.forget(JOB, Epoch(2))
    assert [*sink.recall(JOB, [Epoch(each) for each in range(9)]).inputs] == [2, 3]
    sink.forget(JOB, Epoch(9))
    memory = sink.recall(JOB, [Epoch(each) for each in range(9)])
    assert (memory.newest, [*memory.inputs]) == (3, [3])
    assert tables.sink().recall(JobIdentity("other"), [Epoch(3)]).newest == NO_EPOCH


def test_rows_of_tasks_that_failed_are_neither_written_nor_kept(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    dead, writer = Writer(spark, tables.sink()), Writer(spark, tables.sink())
    dead.stage(1, [(1, "dead")])
    staged = writer.stage(1, [(1, "a"), (2, "b")])
    (own,) = {each.path.split("/")[0] for each in staged.files}
    tables.execute(f"INSERT INTO resurgence.{own} SELECT 99, 'task that failed', 17, 0")
    writer.commit(1, staged)
    writer.stage(2, [])
    assert sorted(tables.rows("TABLE out")) == [(1, "a"), (2, "b")]
    assert tables.rows(f"TABLE resurgence.{own}") == []
    assert len(tables.staging_tables()) == 2
    writer.sink.sweep(JOB, Epoch(1))
    assert tables.staging_tables() == [own]
    writer.sink.sweep(JOB, Epoch(2))
    assert tables.staging_tables() == []
    writer.write(3, [(3, "c")])
    assert len(tables.rows("TABLE out")) == 3


def test_a_task_that_holds_on_to_its_staging_table_does_not_stop_the_job(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink())
    writer.write(1, [(1, "a")])
    (held,) = tables.staging_tables()
    with psycopg.connect(tables.url) as hung:
        hung.execute(f"INSERT INTO resurgence.{held} VALUES (1, 'late', 1, 1)".encode())
        writer.write(2, [(2, "b")])
        writer.sink.sweep(JOB, Epoch(2))
        assert tables.staging_tables() == [held]
    writer.sink.sweep(JOB, Epoch(2))
    assert tables.staging_tables() == []
    assert tables.ids() == [1, 2]


def test_staged_rows_that_were_removed_are_missed(spark: SparkSession, tables: Tables) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink())
    staged = writer.stage(1, [(1, "a"), (2, "b")])
    (table,) = tables.staging_tables()
    tables.execute(f"DELETE FROM resurgence.{table} WHERE id = 1")
    with pytest.raises(SinkError, match="has 1 of 2 rows"):
        writer.commit(1, staged)
    tables.execute(f"DROP TABLE resurgence.{table}")
    with pytest.raises(SinkError, match="has 0 of 2 rows"):
        writer.commit(1, staged)
    assert tables.rows("TABLE out") == []


def test_the_first_rows_of_staged_output_can_be_committed_alone(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink())
    staged = writer.stage(1, [(each, "a") for each in range(10)])
    writer.commit(1, staged.first(7))
    assert len(tables.ids()) == 7


def test_jobs_that_write_the_same_rows_in_any_order_do_not_deadlock(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A transaction that the server ends because of a deadlock is not repeated, and fails here.
    monkeypatch.setattr(connections, "_ATTEMPTS", 1)
    tables.execute("CREATE TABLE out (id bigint PRIMARY KEY, v text)")
    tables.execute("INSERT INTO out SELECT generate_series(0, 400, 2), 'old'")
    chosen = random.Random(5)
    writers = [
        Writer(spark, tables.sink("id", name=name), JobIdentity(name)) for name in ("a", "b", "c")
    ]
    schema = "id BIGINT, v STRING, __change INT"
    staged = {}
    for writer in writers:
        for epoch in range(1, 5):
            fresh = Writer(spark, tables.sink("id", name=writer.job), writer.job)
            keys = chosen.sample(range(400), 300)
            rows = [(key, writer.job, chosen.choice((1, -1))) for key in keys]
            staged[writer.job, epoch] = fresh.stage(epoch, rows, schema)

    def commits(writer: Writer) -> None:
        for epoch in range(1, 5):
            writer.commit(epoch, staged[writer.job, epoch])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(commits, writers))
    assert tables.rows("SELECT newest FROM resurgence.sinks") == [(4,)] * 3


@pytest.mark.parametrize("is_answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "text",
    [
        b"resurgence.sinks",
        b"FOR UPDATE",
        b"pg_advisory_xact_lock",
        b'INSERT INTO "public"."out"',
        b"UPDATE resurgence.sinks",
        b"INSERT INTO resurgence.commits",
        b"COMMIT\x00",
    ],
)
def test_a_connection_lost_anywhere_in_a_commit_writes_each_row_once(
    spark: SparkSession, tables: Tables, proxy: PostgresProxy, text: bytes, is_answered: bool
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink(url=through(proxy, tables)))
    staged = writer.stage(1, [(1, "a"), (2, "b")])
    proxy.cut = Cut(text, is_answered)
    writer.commit(1, staged)
    assert proxy.cut.happened.is_set()
    assert tables.ids() == [1, 2]
    writer.commit(1, staged)
    assert tables.ids() == [1, 2]


def test_a_lost_answer_to_commit_is_not_a_second_write_when_the_job_restarts(
    spark: SparkSession, tables: Tables, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink(url=through(proxy, tables)))
    staged = writer.stage(1, [(1, "a")])
    proxy.cut = Cut(b"COMMIT\0", is_answered=True)
    with monkeypatch.context() as patch:
        patch.setattr(connections, "_ATTEMPTS", 1)
        with pytest.raises(ConnectionLost):
            writer.commit(1, staged)
    assert tables.ids() == [1]
    Writer(spark, tables.sink()).commit(1, staged)
    assert tables.ids() == [1]


def test_a_backend_that_is_terminated_in_the_transaction_is_replaced(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink())
    staged = writer.stage(1, [(1, "a")])
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as threads, psycopg.connect(tables.url) as holder:
        holder.execute("LOCK TABLE out")
        commit = threads.submit(writer.commit, 1, staged)
        terminated: set[int] = set()
        give_up_at = time.monotonic() + 30
        while not terminated:
            assert time.monotonic() < give_up_at
            for (pid,) in tables.rows(waiting):
                tables.rows(f"SELECT pg_terminate_backend({pid})")
                terminated.add(pid)
        while not {pid for (pid,) in tables.rows(waiting)} - terminated:
            assert time.monotonic() < give_up_at
        holder.rollback()
        commit.result(30)
    assert tables.ids() == [1]


def test_a_server_that_restarts_is_an_outage_and_the_job_continues(
    spark: SparkSession, tmp_path: Path, tables: Tables, postgres_server: PostgresServer
) -> None:
    tables.execute("CREATE TABLE out (id bigint)")
    sql = events(tmp_path) + tables.sink_sql() + "INSERT INTO out SELECT id FROM events"
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(20))
    engine.run_epoch()
    postgres_server.kill()
    with pytest.raises(ResurgenceError) as lost:
        engine.run_epoch()
    assert isinstance(lost.value, ConnectionLost)
    postgres_server.start()
    job.run()
    assert tables.ids() == list(range(ROWS))


def test_a_statement_that_takes_too_long_is_cancelled(spark: SparkSession, tables: Tables) -> None:
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink(**{"sink.statement_timeout": "300ms"}))
    staged = writer.stage(1, [(1, "a")])
    with psycopg.connect(tables.url) as holder:
        holder.execute("LOCK TABLE out")
        with pytest.raises(SinkError, match="statement timeout") as slow:
            writer.commit(1, staged)
    assert "'sink.statement_timeout'" in slow.value.hint
    writer.commit(1, staged)
    assert tables.ids() == [1]


def test_a_frozen_process_does_not_hold_the_marker_for_ever(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_IN_TRANSACTION", timedelta(milliseconds=300))
    tables.execute("CREATE TABLE out (id bigint, v text)")
    writer = Writer(spark, tables.sink())
    staged = writer.stage(1, [(1, "a")])
    with pytest.raises(ConnectionLost), writer.sink._database.transaction() as frozen:
        Marker(JOB, "out").lock(frozen)
        writer.commit(1, staged)
        frozen.execute("UPDATE resurgence.sinks SET newest = 0")
    assert tables.ids() == [1]
    assert writer.sink.recall(JOB, []).newest == 1


def test_a_commit_is_durable_also_where_the_server_is_not_by_default(
    spark: SparkSession, tables: Tables
) -> None:
    name = tables.url.split("?")[0].rsplit("/", 1)[1]
    tables.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    database = Database(tables.url, "table", tables.sink()._database.statement_timeout)
    with database.transaction() as connection:
        found = connection.execute("SELECT current_setting('synchronous_commit')").fetchone()
    assert found == ("on",)
