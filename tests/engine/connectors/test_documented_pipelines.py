"""The pipelines in the pages of files, tables and Postgres, run as they are written there."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.documented import pipeline
from tests.engine.connectors.postgres_tables import Tables
from tests.engine.harness import Job, write_lines


@pytest.fixture
def rides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rides of two hours in the working directory, and one that closes their windows."""
    monkeypatch.chdir(tmp_path)
    at = [
        "2024-03-01T10:00:00",
        "2024-03-01T10:30:00",
        "2024-03-01T11:00:00",
        "2024-03-02T00:00:00",
    ]
    lines = [{"city": "aaba"[n], "at": each, "fare": n + 0.5} for n, each in enumerate(at)]
    write_lines(tmp_path / "rides.json", lines)


def require_fares(rows: list[dict[str, Any]]) -> None:
    assert sorted((each["city"], each["fare"]) for each in rows) == [
        *(("a", 0.5), ("a", 1.5), ("a", 3.5), ("b", 2.5))
    ]


def require_hourly_fares(spark: SparkSession, folder: Path, sql: str) -> None:
    """Run a pipeline that reads the table of fares, which has no end."""
    assert Job(spark, folder, sql, name="hourly").open().run_epoch() is not None
    found = duckdb.execute("SELECT city, hour(start), fares FROM 'hourly/*.parquet' ORDER BY ALL")
    assert found.fetchall() == [("a", 10, 2.0), ("b", 11, 2.5)]


def test_the_source_of_files_counts_what_is_in_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for day, seconds in (("2024-03-01", range(0, 20)), ("2024-03-02", range(20, 40))):
        folder = tmp_path / f"rides/day={day}"
        folder.mkdir(parents=True)
        lines = [
            json.dumps({"city": "ab"[n % 2], "at": f"2024-03-01T10:00:{n:02}", "fare": n})
            for n in seconds
        ]
        (folder / "0.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert Job(spark, tmp_path, pipeline("filesystem.md", 0)).open().run_epoch() is not None
    found = duckdb.execute(
        "SELECT city, epoch(start)::INT % 60, rides FROM 'totals/*.parquet' ORDER BY ALL"
    ).fetchall()
    assert found == [(city, start, 5) for city in "ab" for start in (0, 10, 20)]


def test_the_sink_of_files_partitions_and_rolls_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rides = [
        {"at": f"2024-03-0{1 + n // 30}T10:00:{n:02}", "city": "ab"[n % 2], "fare": n / 2}
        for n in range(60)
    ]
    write_lines(tmp_path / "rides.json", rides)
    job = Job(spark, tmp_path, pipeline("filesystem.md", 1), settings={"pipeline.epoch_rows": "7"})
    reports = job.run()
    assert len(reports) > 5
    files = [str(each.relative_to("fares")) for each in Path("fares").glob("**/fares-*.parquet")]
    folders = sorted(each.rpartition("/")[0] for each in files)
    assert folders == [f"day=2024-03-0{day}/city={city}" for day in (1, 2) for city in "ab"]
    ((count, total),) = duckdb.execute(
        "SELECT count(*), sum(fare) FROM read_parquet('fares/*/*/*.parquet')"
    ).fetchall()
    assert (count, total) == (60, sum(float(str(each["fare"])) for each in rides))


@pytest.mark.usefixtures("rides")
def test_a_delta_table_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    Job(spark, tmp_path, pipeline("delta.md", 0)).run()
    fares = DeltaTable("tables/fares")
    assert fares.metadata().partition_columns == ["day"]
    require_fares(fares.to_pyarrow_table().to_pylist())
    totals = DeltaTable("tables/totals").to_pyarrow_table().to_pylist()
    assert sorted(tuple(each.values()) for each in totals) == [("a", 3), ("b", 1)]
    sql = pipeline("delta.md", 1).replace("s3://lake/fares", "tables/fares")
    require_hourly_fares(spark, tmp_path, sql)


@pytest.mark.usefixtures("rides")
def test_an_iceberg_table_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    places = {"catalog.sql.uri": uri, "catalog.warehouse": warehouse}
    Job(spark, tmp_path, pipeline("iceberg.md", 0, places)).run()
    catalog = SqlCatalog("default", uri=uri, warehouse=warehouse)
    fares = catalog.load_table("taxi.fares")
    assert [each.name for each in fares.spec().fields] == ["at_day", "city_bucket"]
    require_fares(fares.scan().to_arrow().to_pylist())
    totals = catalog.load_table("taxi.totals").scan().to_arrow().to_pylist()
    assert sorted(tuple(each.values()) for each in totals) == [("a", 3), ("b", 1)]
    sql = pipeline("iceberg.md", 1, {"catalog.type": "sql", "catalog.warehouse": warehouse})
    rest = "'catalog.rest.url' = 'https://catalog.example.com'"
    token = "'catalog.rest.token' = '${env:CATALOG_TOKEN}', "
    assert rest in sql
    assert token in sql
    sql = sql.replace(rest, f"'catalog.sql.uri' = '{uri}'").replace(token, "")
    require_hourly_fares(spark, tmp_path, sql)


def test_the_postgres_sink_upserts_totals(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    orders = [
        {"id": n, "customer": n % 3, "amount": f"{n}.50", "at": "2024-03-01T10:00:00"}
        for n in range(30)
    ]
    write_lines(tmp_path / "orders.json", orders)
    tables = Tables(postgres_url)
    tables.execute(
        "CREATE TABLE spent (customer bigint PRIMARY KEY, orders bigint, amount numeric(20,2))"
    )
    sql = pipeline("postgres.md", 0, {"dsn": postgres_url})
    Job(spark, tmp_path, sql, settings={"pipeline.epoch_rows": "11"}).run()
    assert tables.rows("SELECT * FROM spent ORDER BY customer") == [
        (customer, 10, sum((n + Decimal("0.50") for n in range(customer, 30, 3)), Decimal()))
        for customer in range(3)
    ]
