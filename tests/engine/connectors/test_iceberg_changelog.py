"""The changelog of an Iceberg table: what its snapshots insert and delete, without rows that
copy-on-write has only moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.contract import RECORD_POSITION
from resurgence.connectors.iceberg import IcebergSource
from resurgence.connectors.iceberg.formats import CHANGE_DATA_FEED
from resurgence.connectors.iceberg.options import IcebergSourceOptions
from resurgence.connectors.lakehouse.carried_rows import without_carried
from resurgence.graph.values import CHANGE, Column
from tests.engine.harness import Job, Leg, SetClock, source_table, write_lines
from tests.iceberg_tables import catalog_options

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    found = SqlCatalog(
        "default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/wh"
    )
    found.create_namespace("db")
    return found


def rows(*pairs: tuple[int | None, str]) -> pa.Table:
    return pa.table(
        {"id": [each[0] for each in pairs], "g": [each[1] for each in pairs]}, schema=SCHEMA
    )


def listed(folder: Path, table: str, **more: str) -> str:
    """The options of a table as SQL."""
    options = {"connector": "iceberg", **catalog_options(folder, table), **more}
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def counts(table: Table) -> dict[str, tuple[int, int]]:
    """The number and the sum of ids in each group."""
    grouped = table.scan().to_arrow().group_by("g").aggregate([("id", "count"), ("id", "sum")])
    return {each["g"]: (each["id_count"], each["id_sum"]) for each in grouped.to_pylist()}


def test_an_aggregate_over_the_changelog_is_that_of_the_table_after_every_change(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    table.append(rows(*((each, "ab"[each % 2]) for each in range(6))))
    feed = {"type": "source", "format": "change_data_feed", "source.offset": "earliest"}
    sql = f"""
        CREATE TABLE t (id BIGINT, g TEXT) WITH ({listed(tmp_path, "t", **feed)});
        CREATE TABLE totals (g TEXT, n BIGINT, s BIGINT, PRIMARY KEY (g))
            WITH ({listed(tmp_path, "totals", type="sink")});
        INSERT INTO totals SELECT g, count(*), sum(id) FROM t GROUP BY g;"""
    clock = SetClock(datetime(2026, 1, 1, tzinfo=UTC))
    job = Job(spark, tmp_path, sql, settings={"pipeline.epoch_interval": "0s"}, clock=clock)
    engine = job.open()
    changes: Sequence[Sequence[Callable[[], None]]] = (
        (lambda: table.append(rows((7, "c"), (7, "c"))), lambda: table.delete("id = 3")),
        (lambda: table.overwrite(rows((2, "b")), "id = 2"), lambda: table.delete("g = 'c'")),
        (lambda: table.overwrite(rows((9, "a"))),),
    )
    for number, several in enumerate(changes):
        table.refresh()
        for change in several:
            change()
        # So that the catalog is asked again.
        clock.at += timedelta(seconds=1)
        if number == 1:
            engine = job.open(Leg(rows=2))
        while engine.run_epoch() is not None:
            pass
        totals = catalog.load_table("db.totals").scan().to_arrow().to_pylist()
        found = {each["g"]: (each["n"], each["s"]) for each in totals}
        assert found == counts(catalog.load_table("db.t"))
        assert len(found) == len(totals)


def test_the_upserts_of_a_sink_are_the_changelog_of_its_result(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "events.json", ({"id": each, "g": each % 5} for each in range(60))
    )
    sql = source_table(path, "id BIGINT, g BIGINT", delay=None)
    sql += f"""
        CREATE TABLE counted (g BIGINT, n BIGINT, PRIMARY KEY (g))
            WITH ({listed(tmp_path, "counted", type="sink")});
        INSERT INTO counted SELECT g, count(*) FROM events GROUP BY g;"""
    Job(spark, tmp_path, sql).run([Leg(rows=20)])
    first = catalog.load_table("db.counted").snapshots()[0].snapshot_id
    feed = {
        "type": "source",
        "format": "change_data_feed",
        "source.offset": f'{{"snapshot": {first}}}',
        "source.stop_at": "latest",
    }
    sql = f"""
        CREATE TABLE counted (g BIGINT, n BIGINT) WITH ({listed(tmp_path, "counted", **feed)});
        CREATE TABLE copied (g BIGINT, n BIGINT, PRIMARY KEY (g))
            WITH ({listed(tmp_path, "copied", type="sink")});
        INSERT INTO copied SELECT g, n FROM counted;"""
    job = Job(spark, tmp_path, sql, name="reader")
    job.run([Leg(rows=3, epochs=1), Leg(rows=100)])
    found = catalog.load_table("db.copied").scan().to_arrow().to_pylist()
    assert sorted((each["g"], each["n"]) for each in found) == [(g, 12) for g in range(5)]
    # The first snapshot is cut by the limit of the first leg, later ones are whole.
    assert [sum(each.counts.rows_in.values()) for each in job.reports][:2] == [3, 22]


def read(
    spark: SparkSession, folder: Path, columns: tuple[Column, ...], after: int
) -> list[tuple[object, ...]]:
    """The changelog after a snapshot, by the values of these columns, with positions."""
    offset = f'{{"snapshot": {after}}}'
    given = {**catalog_options(folder), "source.offset": offset, "source.stop_at": "latest"}
    declared = SourceDeclaration("t", columns, format=CHANGE_DATA_FEED)
    source = IcebergSource(IcebergSourceOptions.read(given), declared)
    planned = source.plan(source.first_offset(datetime.now(UTC), 1), 1000, datetime.now(UTC))
    assert planned is not None
    assert planned.final
    found = source.read(spark, planned, 2)
    again = source.parse(source.records(spark, planned, 2))
    values = [f"`{each.name}`" for each in columns]
    listed = [tuple(each) for each in found.selectExpr(*values, CHANGE).collect()]
    assert Counter(listed) == Counter(
        tuple(each) for each in again.selectExpr(*values, CHANGE).collect()
    )
    positions = found.select(f"{RECORD_POSITION}.*").distinct().count()
    assert positions == len(listed)
    return listed


def test_rows_that_were_only_copied_are_no_change(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    table.append(rows((1, "a"), (1, "a"), (2, "b"), (None, "c"), (3, "d")))
    table.overwrite(rows((2, "B"), (1, "a")), "id = 2")
    table.delete("id = 3")
    deleted = table.snapshots()[1].snapshot_id
    both = (Column(name="id", type="BIGINT"), Column(name="g", type="STRING"))
    expected = {(2, "b", -1): 1, (2, "B", 1): 1, (1, "a", 1): 1, (3, "d", -1): 1}
    assert Counter(read(spark, tmp_path, both, deleted)) == expected
    # Of the declared columns, that row has not changed.
    only = (Column(name="id", type="BIGINT"),)
    assert Counter(read(spark, tmp_path, only, deleted)) == {
        (2, -1): 1,
        (2, 1): 1,
        (1, 1): 1,
        (3, -1): 1,
    }


def test_rows_are_cancelled_one_by_one_within_their_group(spark: SparkSession) -> None:
    given = spark.createDataFrame(
        [
            (1, 0.0, {"k": 1}, 1, 1),
            (1, 0.0, {"k": 1}, 1, 2),
            (1, 0.0, {"k": 1}, -1, 3),
            (1, -0.0, {"k": 1}, -1, 4),
            (1, None, None, 1, 5),
            (1, None, None, -1, 6),
            (2, 0.0, {"k": 1}, -1, 7),
        ],
        f"snapshot INT, x DOUBLE, m MAP<STRING, INT>, {CHANGE} INT, place INT",
    )
    left = without_carried(given, "snapshot", ["x", "m"], "place")
    assert left.columns == given.columns
    assert sorted(each["place"] for each in left.collect()) == [2, 4, 7]
