"""`resurgence run` into Delta tables, killed at every fault point of a sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.integration.conftest import QUICK, Project, settings
from tests.killed_run import run_killed

ROWS = 3000


@pytest.mark.long  # All systems in one killed run: tests/kafka/test_several_sinks.py
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_at_every_point_writes_each_row_once(tmp_path: Path) -> None:
    run_killed(
        tmp_path,
        f"""
        CREATE TABLE numbers WITH (
          connector = 'impulse', event_rate = '1000000', message_count = '{ROWS}');
        CREATE TABLE copied WITH (connector = 'delta', type = 'sink', path = 'copied');
        CREATE TABLE counted (g BIGINT, n BIGINT, PRIMARY KEY (g)) WITH (
          connector = 'delta', type = 'sink', path = 'counted');
        INSERT INTO copied SELECT counter FROM numbers;
        INSERT INTO counted SELECT counter % 10 AS g, count(*) AS n FROM numbers GROUP BY counter % 10;
        """,
    )
    copied = DeltaTable(tmp_path / "copied").to_pyarrow_table()
    assert sorted(copied.column("counter").to_pylist()) == [*range(ROWS)]
    counted = DeltaTable(tmp_path / "counted").to_pyarrow_table().to_pylist()
    assert sorted((each["g"], each["n"]) for each in counted) == [(g, 300) for g in range(10)]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_workers_that_are_killed_during_compactions_lose_no_row(project: Project) -> None:
    rows, kills = 5_000, 3
    (project.folder / "rides.sql").write_text(
        f"""
        CREATE TABLE numbers WITH (
          connector = 'impulse', event_rate = '1000', message_count = '{rows}');
        CREATE TABLE copied WITH (connector = 'delta', type = 'sink', path = 'copied',
          'compaction.min_files' = '2');
        CREATE TABLE counted (g BIGINT, n BIGINT, PRIMARY KEY (g)) WITH (
          connector = 'delta', type = 'sink', path = 'counted', 'compaction.min_files' = '2');
        INSERT INTO copied SELECT counter FROM numbers;
        INSERT INTO counted SELECT counter % 10 AS g, count(*) AS n FROM numbers GROUP BY counter % 10;
        """
    )
    running = project.start(*settings(*QUICK, "pipeline.epoch_rows=100"))
    project.kill_at_new_files(running, "*/resurgence/compacted/*.parquet", kills)
    copied = DeltaTable(project.folder / "copied")
    assert sorted(copied.to_pyarrow_table().column("counter").to_pylist()) == [*range(rows)]
    assert len(copied.file_uris()) < len(project.events("committed"))
    counted = DeltaTable(project.folder / "counted").to_pyarrow_table().to_pylist()
    assert sorted((each["g"], each["n"]) for each in counted) == [
        (g, rows // 10) for g in range(10)
    ]
