"""A preview has the rows of the batch answer over the sample, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.preview import Preview, PreviewRequest, selected_graph
from resurgence.engine.preview.sample import preview_sample
from resurgence.errors import SqlError, UserError
from resurgence.sql import compile_pipeline

SQL = """
CREATE TABLE rides (at TIMESTAMP, driver BIGINT, kind TEXT, WATERMARK FOR at)
WITH (connector = 'single_file', path = '{folder}/rides.json', type = 'source', bad_data = 'drop');
CREATE TABLE hourly (hour TIMESTAMP, kind TEXT, rides BIGINT)
WITH (connector = 'filesystem', path = '{folder}/out', type = 'sink');
CREATE TABLE totals (kind TEXT PRIMARY KEY, rides BIGINT, last_driver TEXT)
WITH (connector = 'single_file', path = '{folder}/totals', format = 'debezium_json', type = 'sink');
CREATE TABLE ticks WITH (connector = 'impulse', type = 'source', event_rate = '100');
INSERT INTO hourly SELECT window.start, kind, count(*) FROM rides
  GROUP BY tumble(INTERVAL '1 hour'), kind;
INSERT INTO totals SELECT kind, count(*), CAST(NULL AS TEXT) FROM rides GROUP BY kind;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rides = [
        json.dumps({"at": f"2024-03-01T0{n // 4}:00:00", "driver": n, "kind": "ab"[n % 2]})
        for n in range(8)
    ]
    (tmp_path / "rides.json").write_text("\n".join([*rides[:4], "not a ride", *rides[4:]]) + "\n")
    return tmp_path


def previewed(
    spark: SparkSession,
    folder: Path,
    *,
    table: str | None = None,
    select: str | None = None,
    rows: int = 10,
    sample: int = 100,
) -> Preview:
    graph = selected_graph(
        SQL.replace("{folder}", str(folder)),
        lambda sql: compile_pipeline(sql, CONNECTORS, {}),
        table=table,
        select=select,
    )
    request = PreviewRequest(graph=graph, rows=rows, sample=sample, patience=0.5)
    return preview_sample(spark, request)


def test_every_output_is_previewed_as_if_the_input_had_ended(
    spark: SparkSession, folder: Path
) -> None:
    found = previewed(spark, folder)
    hourly, totals = found.tables
    assert (hourly.table, hourly.columns) == ("hourly", ["hour", "kind", "rides"])
    assert sorted(hourly.rows) == [
        [f"2024-03-01T0{hour}:00:00", kind, 2] for hour in range(2) for kind in "ab"
    ]
    assert (totals.table, sorted(totals.rows)) == ("totals", [["a", 4, None], ["b", 4, None]])
    assert found.rows_read == {"rides": 9}
    assert found.rows_bad == {"rides": 1}
    assert [each.name for each in folder.iterdir()] == ["rides.json"]


def test_a_sample_and_the_printed_rows_are_bounded(spark: SparkSession, folder: Path) -> None:
    found = previewed(
        spark, folder, select="SELECT driver FROM rides WHERE driver >= 0", rows=2, sample=3
    )
    (table,) = found.tables
    assert (table.rows, table.is_complete) == ([[0], [1]], False)
    assert found.rows_read == {"rides": 3}


def test_a_source_that_never_ends_is_sampled(spark: SparkSession, folder: Path) -> None:
    (table,) = previewed(spark, folder, table="ticks", sample=5).tables
    assert [row[table.columns.index("counter")] for row in table.rows] == [0, 1, 2, 3, 4]


def test_what_spark_refuses_is_refused_at_its_place(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(SqlError) as error:
        previewed(spark, folder, select="SELECT substring(at, driver, kind, 4) FROM rides")
    assert error.value.column == 8
    (folder / "rides.json").unlink()
    with pytest.raises(UserError, match=r"rides\.json does not exist"):
        previewed(spark, folder, table="hourly")
