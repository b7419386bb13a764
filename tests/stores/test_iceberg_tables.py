"""Iceberg tables on an S3 server: jobs that write and read them recover from crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.iceberg.catalogs.catalog import CatalogType, IcebergCatalog, TablePlace
from resurgence.errors import InjectedFault
from tests.engine.harness import Job, Leg, source_table, write_lines

ROWS = 40


def table(folder: Path, url: str, name: str, columns: str = "", more: str = "") -> str:
    return (
        f"CREATE TABLE {name} {columns} WITH (connector = 'iceberg', namespace = 'db',"
        f" table_name = '{name}', 'catalog.type' = 'sql', 'catalog.warehouse' = '{url}/wh',"
        f" 'catalog.sql.uri' = 'sqlite:///{folder}/catalog.db'{more});\n"
    )


def job(spark: SparkSession, folder: Path, url: str, **settings: str) -> Job:
    """Rows, appended; and their number by group, upserted."""
    write_lines(folder / "events.json", ({"id": each, "g": each % 7} for each in range(ROWS)))
    sql = source_table(folder / "events.json", "id BIGINT, g BIGINT", delay=None)
    sql += table(folder, url, "copied", "(id BIGINT, g BIGINT)", ", type = 'sink'")
    sql += table(folder, url, "counted", "(g BIGINT, n BIGINT, PRIMARY KEY (g))", ", type = 'sink'")
    sql += """
        INSERT INTO copied SELECT id, g FROM events;
        INSERT INTO counted SELECT g, count(*) FROM events GROUP BY g;"""
    return Job(spark, folder, sql, settings=settings, place=f"{url}/state")


def rows(folder: Path, url: str, name: str) -> list[dict[str, Any]]:
    place = TablePlace(CatalogType.SQL, f"sqlite:///{folder}/catalog.db", "db", name, f"{url}/wh")
    return list(IcebergCatalog(place).load().scan().to_arrow().to_pylist())


def test_a_job_recovers_from_crashes_around_its_commits_and_another_reads_its_table(
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
    assert sorted(each["id"] for each in rows(tmp_path, s3_url, "copied")) == [*range(ROWS)]
    counted = rows(tmp_path, s3_url, "counted")
    assert sorted((each["g"], each["n"]) for each in counted) == [
        (g, len(range(g, ROWS, 7))) for g in range(7)
    ]
    everything = ", type = 'source', 'source.offset' = 'earliest', 'source.stop_at' = 'latest'"
    sql = table(tmp_path, s3_url, "copied", "(id BIGINT)", everything)
    sql += table(tmp_path, s3_url, "again", more=", type = 'sink'")
    sql += "INSERT INTO again SELECT id FROM copied;"
    Job(spark, tmp_path, sql, name="reader", place=f"{s3_url}/state").run([Leg(rows=7, epochs=2)])
    assert sorted(each["id"] for each in rows(tmp_path, s3_url, "again")) == [*range(ROWS)]
