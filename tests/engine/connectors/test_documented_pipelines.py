"""The pipelines in the pages of files and Postgres, run as they are written there."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.engine.connectors.postgres_tables import Tables
from tests.engine.harness import Job, write_lines

PAGES = Path(__file__).parents[3] / "docs/connectors"


def pipeline(page: str, number: int) -> str:
    """The n-th pipeline of a page."""
    found = re.findall(r"```sql\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return str(found[number])


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
    sql, found = re.subn(r"dsn = '[^']*'", f"dsn = '{postgres_url}'", pipeline("postgres.md", 0))
    assert found == 1
    Job(spark, tmp_path, sql, settings={"pipeline.epoch_rows": "11"}).run()
    assert tables.rows("SELECT * FROM spent ORDER BY customer") == [
        (customer, 10, sum((n + Decimal("0.50") for n in range(customer, 30, 3)), Decimal()))
        for customer in range(3)
    ]
