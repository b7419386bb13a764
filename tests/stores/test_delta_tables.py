"""Delta tables on an S3 server: jobs that write and read them recover from crashes and lost answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from resurgence.connectors.delta.table import storage_options
from resurgence.engine.spark.errors import translate
from resurgence.errors import InjectedFault, SinkError, StorageError
from resurgence.storage.access import AccessOverrides, Deadlines, override_access
from tests.engine.harness import Job, Leg, source_table, write_lines
from tests.servers.faulty_proxy import Failure, Fault, FaultyProxy

ROWS = 40


def job(spark: SparkSession, folder: Path, url: str, **settings: str) -> Job:
    """Rows, appended; and their number by group, upserted."""
    write_lines(folder / "events.json", ({"id": each, "g": each % 7} for each in range(ROWS)))
    sql = source_table(folder / "events.json", "id BIGINT, g BIGINT", delay=None)
    sql += f"""
        CREATE TABLE copied (id BIGINT, g BIGINT)
        WITH (connector = 'delta', type = 'sink', path = '{url}/copied');
        CREATE TABLE counted (g BIGINT, n BIGINT, PRIMARY KEY (g))
        WITH (connector = 'delta', type = 'sink', path = '{url}/counted');
        INSERT INTO copied SELECT id, g FROM events;
        INSERT INTO counted SELECT g, count(*) FROM events GROUP BY g;"""
    return Job(spark, folder, sql, settings=settings, place=f"{url}/state")


def rows(url: str) -> list[dict[str, Any]]:
    table = DeltaTable(url, storage_options=storage_options(url))
    return list(table.to_pyarrow_table().to_pylist())


def assert_exactly_once(url: str) -> None:
    assert sorted(each["id"] for each in rows(f"{url}/copied")) == [*range(ROWS)]
    counts = {each["g"]: each["n"] for each in rows(f"{url}/counted")}
    assert counts == {g: len(range(g, ROWS, 7)) for g in range(7)}
    assert len(rows(f"{url}/counted")) == 7


@pytest.fixture
def short_deadlines() -> Iterator[None]:
    deadlines = Deadlines(request=timedelta(seconds=4), retries=timedelta(seconds=30))
    override_access(AccessOverrides(deadlines=deadlines))
    yield
    override_access(AccessOverrides())


def test_a_job_recovers_from_crashes_around_its_commits(
    spark: SparkSession, tmp_path: Path, s3_url: str
) -> None:
    points = ("sink.staged@1", "manifest.published@2", "sink.committing@3", "sink.committed@4")
    for point in points:
        made = job(spark, tmp_path, s3_url, faults=f"{point}=raise")
        engine = made.open(Leg(rows=10))
        with pytest.raises(InjectedFault):
            while engine.run_epoch() is not None:
                pass
    job(spark, tmp_path, s3_url).run([Leg(rows=10)])
    assert_exactly_once(s3_url)


@pytest.mark.usefixtures("short_deadlines")
def test_a_job_recovers_from_lost_answers_of_table_commits(
    spark: SparkSession, tmp_path: Path, s3_proxy: FaultyProxy, s3_url: str
) -> None:
    faults = [
        Fault(Failure.LOST_ANSWER, "CREATE", "copied/_delta_log/", 2),
        Fault(Failure.FAILED_ANSWER, "CREATE", "counted/_delta_log/", 2),
        Fault(Failure.SERVER_ERROR, "CREATE", "copied/resurgence/", 1),
    ]
    s3_proxy.inject(*faults)
    for _ in range(8):
        try:
            job(spark, tmp_path, s3_url).run([Leg(rows=10, epochs=2)])
            break
        except Exception as error:
            if not isinstance(translate(error), StorageError | SinkError):
                raise
    assert_exactly_once(s3_url)
    assert [each for each in faults if each.struck != each.times] == []


def test_a_table_is_read_as_a_stream(spark: SparkSession, tmp_path: Path, s3_url: str) -> None:
    job(spark, tmp_path, s3_url).run([Leg(rows=15)])
    sql = f"""
        CREATE TABLE copied (id BIGINT) WITH (connector = 'delta', type = 'source',
            path = '{s3_url}/copied', 'source.offset' = '1', 'source.stop_at' = 'latest');
        CREATE TABLE again WITH (connector = 'delta', type = 'sink', path = '{s3_url}/again');
        INSERT INTO again SELECT id FROM copied;"""
    Job(spark, tmp_path, sql, name="reader", place=f"{s3_url}/state").run([Leg(rows=7)])
    assert sorted(each["id"] for each in rows(f"{s3_url}/again")) == [*range(ROWS)]
