"""Delta sources: appended rows once, from any start; changed rows are a failure, compactions not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from resurgence.connectors.checks import check_connectors
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import BadRecord, SourceRangeGone, UserError
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from tests.engine.harness import Job, Leg, TickingClock, read_lines

AT_ONCE = {"pipeline.epoch_interval": "0s"}
"""Epochs take what is there, and do not wait for more."""
DAYS = [date(2024, 2, 28), date(2024, 2, 29), None]


@dataclass
class Stream:
    """A table that others append to, and a job that copies it to a file."""

    spark: SparkSession
    folder: Path
    columns: str = "id BIGINT, day DATE, name TEXT"
    options: str = ""
    job: Job = field(init=False)

    def __post_init__(self) -> None:
        self.job = Job(self.spark, self.folder, self.sql, settings=AT_ONCE, clock=TickingClock())

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def sql(self) -> str:
        return f"""
            CREATE TABLE rows ({self.columns}) WITH (connector = 'delta', type = 'source',
                path = '{self.table}'{self.options});
            CREATE TABLE out WITH (connector = 'single_file', type = 'sink',
                path = '{self.folder}/out.json');
            INSERT INTO out SELECT * FROM rows;"""

    def append(self, *ids: int, **options: Any) -> None:
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "day": pa.array([DAYS[each % 3] for each in ids], pa.date32()),
                "name": [f"n{each}" for each in ids],
            }
        )
        write_deltalake(self.table, rows, mode="append", partition_by=["day"], **options)

    def read(self, engine: Engine) -> list[int]:
        """Read all that is there; the ids so far."""
        while engine.run_epoch() is not None:
            pass
        return self.ids()

    def ids(self) -> list[int]:
        path = self.folder / "out.json"
        return sorted(int(str(each["id"])) for each in read_lines(path)) if path.exists() else []


def stream(spark: SparkSession, folder: Path, options: str = "", **more: str) -> Stream:
    made = Stream(spark, folder, options=options, **more)
    made.append(0, 1, 2)
    return made


EARLIEST = ", 'source.offset' = 'earliest'"
BOUNDED = f"{EARLIEST}, 'source.stop_at' = 'latest'"


@pytest.mark.parametrize("rows", [1, 2, 4, 1000])
def test_a_bounded_source_reads_a_table_whole(
    spark: SparkSession, tmp_path: Path, rows: int
) -> None:
    made = stream(spark, tmp_path, BOUNDED)
    made.append(*range(3, 10))
    made.job.run([Leg(rows, epochs=2), Leg(rows, parallelism=1)])
    assert made.ids() == [*range(10)]
    lines = {each["id"]: each for each in read_lines(tmp_path / "out.json")}
    assert lines[1] == {"id": 1, "day": "2024-02-29", "name": "n1"}
    assert lines[2].get("day") is None


def test_appended_rows_follow_the_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    made = stream(spark, tmp_path, EARLIEST)
    engine = made.job.open(Leg(rows=2))
    assert made.read(engine) == [0, 1, 2]
    made.append(3, 4)
    made.append(5)
    assert made.read(engine) == [0, 1, 2, 3, 4, 5]
    made.append(6)
    assert made.read(made.job.open()) == [0, 1, 2, 3, 4, 5, 6]


def test_a_source_begins_with_what_is_appended_from_now_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = stream(spark, tmp_path)
    engine = made.job.open()
    assert made.read(engine) == []
    made.append(3)
    assert made.read(engine) == [3]


def test_a_source_begins_with_a_version_or_an_instant(spark: SparkSession, tmp_path: Path) -> None:
    made = stream(spark, tmp_path)
    made.append(3)
    time.sleep(0.01)
    at = datetime.now(UTC)
    made.append(4)
    for name, start in (("version", "1"), ("instant", at.isoformat())):
        folder = tmp_path / name
        folder.mkdir()
        other = Stream(spark, folder)
        sql = other.sql.replace(f"{folder}/table", str(made.table))
        sql = sql.replace("type = 'source'", f"type = 'source', 'source.offset' = '{start}'")
        other.job = Job(spark, folder, sql, settings=AT_ONCE)
        assert other.read(other.job.open()) == ([3, 4] if name == "version" else [4])


def test_compactions_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    made = stream(spark, tmp_path, EARLIEST)
    engine = made.job.open()
    assert made.read(engine) == [0, 1, 2]
    made.append(3)
    made.append(6)
    DeltaTable(made.table).optimize.compact()
    made.append(7)
    assert made.read(engine) == [0, 1, 2, 3, 6, 7]


def test_many_versions_without_rows_are_passed_over_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = stream(spark, tmp_path, EARLIEST)
    engine = made.job.open()
    made.read(engine)
    table = DeltaTable(made.table)
    for number in range(60):
        table.alter.set_table_properties({"delta.checkpointInterval": str(100 + number)})
    made.append(3)
    assert made.read(engine) == [0, 1, 2, 3]


def failure(made: Stream, engine: Engine) -> Exception:
    with pytest.raises(Exception) as caught:
        made.read(engine)
    return translate(caught.value)


def test_deleted_rows_are_a_failure_that_names_the_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = stream(spark, tmp_path, EARLIEST)
    engine = made.job.open()
    made.read(engine)
    made.append(3)
    DeltaTable(made.table).delete("id = 1")
    error = failure(made, engine)
    assert made.ids() == [0, 1, 2, 3]
    assert isinstance(error, UserError)
    assert "version 2" in error.message
    assert "(DELETE) deletes or rewrites rows" in error.message


def test_versions_that_are_gone_are_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    made = stream(spark, tmp_path, EARLIEST)
    engine = made.job.open()
    made.read(engine)
    made.append(3)
    made.append(4)
    table = DeltaTable(made.table)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.create_checkpoint()
    table.cleanup_metadata()
    assert isinstance(failure(made, engine), SourceRangeGone)


def test_columns_that_are_added_later_are_null_before(spark: SparkSession, tmp_path: Path) -> None:
    made = Stream(spark, tmp_path, "id BIGINT, more INT", BOUNDED)
    made.append(0, 1)
    rows = pa.table({"id": [2], "day": [DAYS[0]], "name": ["c"], "more": pa.array([7], pa.int32())})
    write_deltalake(
        made.table,
        rows,
        mode="append",
        partition_by=["day"],
        schema_mode="merge",
        writer_properties=WriterProperties(statistics_truncate_length=8),
    )
    made.job.run()
    assert {each["id"]: each.get("more") for each in read_lines(tmp_path / "out.json")} == {
        0: None,
        1: None,
        2: 7,
    }


@pytest.mark.parametrize("bad_data", ["fail", "drop", "dead_letter"])
def test_a_null_in_a_required_column_is_a_bad_record(
    spark: SparkSession, tmp_path: Path, bad_data: str
) -> None:
    options = f"{BOUNDED}, bad_data = '{bad_data}'"
    made = stream(spark, tmp_path, options, columns="id BIGINT, day DATE NOT NULL")
    if bad_data == "fail":
        assert isinstance(failure(made, made.job.open()), BadRecord)
        return
    made.job.run()
    assert made.ids() == [0, 1]


def checked(made: Stream) -> None:
    check_connectors(compile_pipeline(made.sql, CONNECTORS), f"file://{made.folder}", JobName("j"))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id BIGINT, nam TEXT", "", "has no column 'nam'"),
        ("id BIGINT", ", 'source.offset' = '99'", ""),
    ],
)
def test_wrong_declarations_are_refused(
    spark: SparkSession, tmp_path: Path, columns: str, options: str, message: str
) -> None:
    made = stream(spark, tmp_path, options, columns=columns)
    if message:
        with pytest.raises(UserError, match=message):
            checked(made)
    else:
        checked(made)
        with pytest.raises(UserError, match="has versions 0 to 0"):
            made.read(made.job.open())


def test_a_folder_without_a_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no Delta table"):
        checked(Stream(spark, tmp_path))


def copied(rows: Sequence[int], spark: SparkSession, folder: Path) -> list[int]:
    """Through a sink and a source of the same kind."""
    made = stream(spark, folder, BOUNDED)
    made.append(*rows)
    sql = made.sql.replace("connector = 'single_file'", "connector = 'delta'")
    sql = sql.replace("out.json", "copy")
    Job(spark, folder, sql).run([Leg(2, epochs=2)])
    found: list[int] = DeltaTable(folder / "copy").to_pyarrow_table().column("id").to_pylist()
    return sorted(found)


def test_a_job_copies_a_table(spark: SparkSession, tmp_path: Path) -> None:
    assert copied([*range(3, 30)], spark, tmp_path) == [*range(30)]


def test_a_change_data_feed_is_a_changelog(spark: SparkSession, tmp_path: Path) -> None:
    """An aggregate over the stream equals the batch answer over the table, after every change."""
    table = tmp_path / "table"
    rows = pa.table({"id": [*range(6)], "g": ["a", "b"] * 3})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(table, rows, configuration=feed)
    sql = f"""
        CREATE TABLE rows (id BIGINT, g TEXT) WITH (connector = 'delta', type = 'source',
            path = '{table}', format = 'change_data_feed'{EARLIEST});
        CREATE TABLE out (g TEXT, n BIGINT, s BIGINT, PRIMARY KEY (g)) WITH (connector = 'delta',
            type = 'sink', path = '{tmp_path}/out');
        INSERT INTO out SELECT g, count(*), sum(id) FROM rows GROUP BY g;"""
    engine = Job(spark, tmp_path, sql, clock=TickingClock()).open(Leg(rows=4))
    changes = (
        lambda: write_deltalake(table, pa.table({"id": [7], "g": ["c"]}), mode="append"),
        lambda: DeltaTable(table).update(updates={"g": "'b'"}, predicate="id = 2"),
        lambda: DeltaTable(table).delete("id > 4"),
        lambda: DeltaTable(table).optimize.compact(),
        lambda: write_deltalake(table, pa.table({"id": [9], "g": ["a"]}), mode="overwrite"),
    )
    for change in changes:
        change()
        while engine.run_epoch() is not None:
            pass
        current = (
            DeltaTable(table)
            .to_pyarrow_table()
            .group_by("g")
            .aggregate([("id", "count"), ("id", "sum")])
        )
        expected = {each["g"]: (each["id_count"], each["id_sum"]) for each in current.to_pylist()}
        out = DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
        assert {each["g"]: (each["n"], each["s"]) for each in out} == expected
        assert len(out) == len(expected)


def test_a_table_without_a_change_data_feed_is_no_changelog(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = stream(spark, tmp_path)
    sql = made.sql.replace("type = 'source'", "type = 'source', format = 'change_data_feed'")
    sql = sql.replace("INSERT INTO out SELECT * FROM", "INSERT INTO out SELECT count(*) AS n FROM")
    sql = sql.replace(
        "connector = 'single_file'", "connector = 'single_file', format = 'debezium_json'"
    )
    graph = compile_pipeline(sql, CONNECTORS)
    with pytest.raises(UserError, match="has no change data feed"):
        check_connectors(graph, f"file://{tmp_path}", JobName("j"))
