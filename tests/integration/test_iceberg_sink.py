"""`resurgence run` into Iceberg tables, killed at every fault point of a sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.integration.conftest import QUICK, Project, settings
from tests.killed_run import run_killed
from tests.servers.iceberg import IcebergServer

ROWS = 3000


@pytest.mark.long  # All systems in one killed run: tests/kafka/test_several_sinks.py
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_at_every_point_writes_each_row_once(
    iceberg_server: IcebergServer, tmp_path: Path
) -> None:
    catalog = f"""connector = 'iceberg', type = 'sink', 'catalog.type' = 'rest',
          'catalog.rest.url' = '{iceberg_server.url}', namespace = 'killed'"""
    run_killed(
        tmp_path,
        f"""
        CREATE TABLE numbers WITH (
          connector = 'impulse', event_rate = '1000000', message_count = '{ROWS}');
        CREATE TABLE copied WITH ({catalog}, table_name = 'copied',
          'partitioning.fields' = 'bucket(2, counter)');
        CREATE TABLE counted (g BIGINT, n BIGINT, PRIMARY KEY (g)) WITH (
          {catalog}, table_name = 'counted');
        INSERT INTO copied SELECT counter FROM numbers;
        INSERT INTO counted SELECT counter % 10 AS g, count(*) AS n FROM numbers GROUP BY counter % 10;
        """,
    )
    tables = RestCatalog("rest", uri=iceberg_server.url)
    copied = tables.load_table("killed.copied").scan().to_arrow()
    assert sorted(copied.column("counter").to_pylist()) == [*range(ROWS)]
    counted = tables.load_table("killed.counted").scan().to_arrow().to_pylist()
    assert sorted((each["g"], each["n"]) for each in counted) == [(g, 300) for g in range(10)]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_workers_that_are_killed_during_compactions_lose_no_row(project: Project) -> None:
    rows, kills = 20_000, 3
    uri, warehouse = f"sqlite:///{project.folder}/catalog.db", f"file://{project.folder}/wh"
    catalog = f"""connector = 'iceberg', type = 'sink', 'catalog.type' = 'sql',
          'catalog.sql.uri' = '{uri}', 'catalog.warehouse' = '{warehouse}', namespace = 'db',
          'compaction.min_files' = '2'"""
    (project.folder / "rides.sql").write_text(
        f"""
        CREATE TABLE numbers WITH (
          connector = 'impulse', event_rate = '1000', message_count = '{rows}');
        CREATE TABLE copied WITH ({catalog}, table_name = 'copied');
        CREATE TABLE counted (g BIGINT, n BIGINT, PRIMARY KEY (g)) WITH (
          {catalog}, table_name = 'counted');
        INSERT INTO copied SELECT counter FROM numbers;
        INSERT INTO counted SELECT counter % 10 AS g, count(*) AS n FROM numbers GROUP BY counter % 10;
        """
    )
    running = project.start(*settings(*QUICK, "pipeline.epoch_rows=100"))
    project.kill_at_new_files(running, "wh/**/compacted/*.parquet", kills)
    tables = SqlCatalog("default", uri=uri, warehouse=warehouse)
    copied = tables.load_table("db.copied").scan()
    assert sorted(copied.to_arrow().column("counter").to_pylist()) == [*range(rows)]
    assert len([*copied.plan_files()]) < len(project.events("committed"))
    counted = tables.load_table("db.counted").scan().to_arrow().to_pylist()
    assert sorted((each["g"], each["n"]) for each in counted) == [
        (g, rows // 10) for g in range(10)
    ]
