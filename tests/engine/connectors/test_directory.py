"""The `filesystem` source on Spark: each file of a growing folder is read once."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.directory import line_content
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import BadRecord, ResurgenceError, SourceRangeGone, UserError
from tests.engine.harness import (
    Job,
    Leg,
    SetClock,
    read_lines,
    sink_table,
    source_table,
    write_lines,
)

COLUMNS = "id BIGINT NOT NULL, name TEXT"


def table(path: object, columns: str, options: Mapping[str, str]) -> str:
    written = "".join(f", '{name}' = '{value}'" for name, value in options.items())
    return (
        f"CREATE TABLE events ({columns})"
        f" WITH (connector = 'filesystem', path = '{path}', type = 'source'{written});\n"
    )


class Folder:
    """A growing folder, and a job that copies its rows."""

    def __init__(
        self,
        spark: SparkSession,
        tmp_path: Path,
        columns: str = COLUMNS,
        select: str = "*",
        path: str = "",
        **options: str,
    ) -> None:
        self.path = tmp_path / "in"
        self.path.mkdir(exist_ok=True)
        self.out = tmp_path / "out.json"
        named = {name.replace("__", "."): value for name, value in options.items()}
        sql = table(self.path / path if path else self.path, columns, named)
        sql += sink_table(self.out, name="out", connector="single_file")
        sql += f"INSERT INTO out SELECT {select} FROM events"
        self.clock = SetClock(datetime.now(UTC))
        self.job = Job(spark, tmp_path, sql, clock=self.clock)

    def write(self, name: str, *ids: int) -> Path:
        """A file of rows, which appears whole."""
        text = "".join(json.dumps({"id": each, "name": name}) + "\n" for each in ids).encode()
        data = gzip.compress(text) if name.endswith(".gz") else text
        if name.endswith(".zst"):
            data = pa.compress(text, codec="zstd", asbytes=True)
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / f".{Path(name).name}").write_bytes(data)
        (self.path / f".{Path(name).name}").rename(self.path / name)
        return self.path / name

    def step(self, engine: Engine) -> bool:
        """Run an epoch, a while later; False if there was nothing to read."""
        self.clock.at += timedelta(minutes=1)
        report = engine.run_epoch()
        if report is not None:
            self.job.reports.append(report)
        return report is not None

    def drain(self, engine: Engine) -> None:
        while self.step(engine):
            pass

    def rows(self) -> list[dict[str, object]]:
        return read_lines(self.out) if self.out.exists() else []

    def ids(self) -> list[int]:
        """Tasks share the files of an epoch, so its rows are in no order."""
        return sorted(int(str(each["id"])) for each in self.rows())


def test_a_bounded_source_reads_each_file_once_in_the_order_of_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path, source__stop_at="latest")
    folder.write("b.json", 3, 4)
    folder.write("c/deep.json.gz", 5, 6)
    folder.write("d.json.zst", 7)
    folder.write("a.json", 1, 2)
    (folder.path / "_ignored").write_text("no JSON")
    (folder.path / "b0.json").touch()
    reports = folder.job.run([Leg(rows=2, epochs=1), Leg(rows=1, epochs=1)])
    assert folder.ids() == [1, 2, 3, 4, 5, 6, 7]
    assert sum(each.rows for each in reports) == 7
    assert len(reports) > 3


def test_files_that_appear_later_are_read_whatever_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path)
    engine = folder.job.open()
    assert not folder.step(engine)
    folder.write("m.json", 1, 2)
    folder.drain(engine)
    folder.write("a.json", 3)
    folder.write("z.json", 4)
    folder.drain(engine)
    assert folder.ids() == [1, 2, 3, 4]
    again = folder.job.open()
    folder.write("b.json", 5)
    folder.drain(again)
    assert folder.ids() == [1, 2, 3, 4, 5]


def test_names_in_order_are_read_from_the_last_one_on(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, source__order="name", source__epoch_files="2")
    engine = folder.job.open()
    for number in range(5):
        folder.write(f"{number}.json", number)
    folder.drain(engine)
    assert len(folder.job.reports) == 3
    folder.write("5.json", 5)
    folder.drain(folder.job.open())
    assert folder.ids() == [0, 1, 2, 3, 4, 5]


def test_a_name_before_the_last_one_fails_a_job_that_reads_in_the_order_of_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path, source__order="name")
    folder.write("m.json", 1)
    engine = folder.job.open()
    folder.drain(engine)
    folder.write("a.json", 2)
    engine = folder.job.open()
    with pytest.raises(SourceRangeGone, match=r"a file appeared or changed in .* before m\.json"):
        folder.drain(engine)
    assert folder.ids() == [1]


def test_a_large_file_is_read_in_parts_by_several_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_content, "SPLIT_BYTES", 300)
    columns = f"{COLUMNS}, line BIGINT METADATA FROM 'line'"
    folder = Folder(spark, tmp_path, columns, "id, line", source__stop_at="latest")
    folder.write("a.json", *range(1, 101))
    reports = folder.job.run([Leg(rows=30, epochs=1), Leg(rows=25, parallelism=3)])
    assert [each.rows for each in reports][:4] == [30, 25, 25, 20]
    rows = sorted((each["id"], each["line"]) for each in folder.rows())
    assert rows == [(each, each) for each in range(1, 101)]


def test_metadata_and_folders_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "id BIGINT, day DATE, city TEXT, path TEXT METADATA FROM 'path', line BIGINT METADATA FROM"
        " 'line', size BIGINT METADATA FROM 'size', at TIMESTAMP METADATA FROM 'modified'"
    )
    options = {"source__stop_at": "latest", "partitioning__fields": "day, city"}
    folder = Folder(spark, tmp_path, columns, **options)
    first = folder.write("day=2024-03-01/city=K%C3%B6ln/a.json", 1, 2)
    other = folder.write("day=2024-03-02/city=__HIVE_DEFAULT_PARTITION__/b.json", 3)
    os.utime(first, (1_700_000_000, 1_700_000_000))
    folder.job.run()
    rows = sorted(folder.rows(), key=lambda each: (each["path"], each["line"]))
    assert [(each["day"], each["city"]) for each in rows] == [
        *[("2024-03-01", "Köln")] * 2,
        ("2024-03-02", None),
    ]
    assert [each["path"] for each in rows] == [str(first), str(first), str(other)]
    assert [each["line"] for each in rows] == [1, 2, 1]
    assert rows[0]["size"] == first.stat().st_size
    assert rows[0]["at"] == "2023-11-14T22:13:20"


def test_a_folder_whose_value_does_not_fit_its_column_fails_with_the_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"source__stop_at": "latest", "partitioning__fields": "day"}
    folder = Folder(spark, tmp_path, "id BIGINT, day DATE", **options)
    folder.write("day=soon/a.json", 1)
    with pytest.raises(Exception) as caught:
        folder.job.run()
    assert "day=soon/a.json: the folder of 'day' is not a DATE" in str(translate(caught.value))


def test_parquet_files_are_read_by_rows(spark: SparkSession, tmp_path: Path) -> None:
    columns = "ID BIGINT NOT NULL, at TIMESTAMP, extra TEXT, line BIGINT METADATA FROM 'line'"
    options = {"source__stop_at": "latest", "format": "parquet"}
    folder = Folder(spark, tmp_path, columns, "ID AS id, at, extra, line", **options)
    at = datetime(2024, 3, 1, tzinfo=UTC)
    ids = pa.array(range(1, 251), pa.int32())
    times = pa.array(
        [at + timedelta(seconds=each) for each in range(250)], pa.timestamp("ns", "UTC")
    )
    pq.write_table(pa.table({"id": ids, "at": times}), folder.path / "a.parquet", row_group_size=40)
    pq.write_table(pa.table({"id": ids[:3], "extra": ["x", "y", None]}), folder.path / "b.parquet")
    pq.write_table(pa.table({"id": ids[:0]}), folder.path / "c.parquet")
    reports = folder.job.run([Leg(rows=100, epochs=2), Leg(rows=100, parallelism=3)])
    assert [each.rows for each in reports][:4] == [100, 100, 50, 3]
    rows = folder.rows()
    assert sorted((each["id"], each["line"]) for each in rows[:250]) == [
        (each, each) for each in range(1, 251)
    ]
    assert rows[0]["at"] == "2024-03-01T00:00:00"
    assert [(each["id"], each["extra"]) for each in rows[250:]] == [(1, "x"), (2, "y"), (3, None)]


@pytest.mark.parametrize("order", ["modified", "name"])
def test_a_job_reads_what_another_one_writes_once(
    spark: SparkSession, tmp_path: Path, order: str
) -> None:
    lines = write_lines(tmp_path / "lines.json", ({"id": n, "name": "x"} for n in range(40)))
    rolled = ", format = 'json', 'rolling_policy.file_size' = '400'"
    folder = Folder(spark, tmp_path, source__order=order)
    sql = source_table(lines, COLUMNS, delay=None, name="lines")
    sql += sink_table(folder.path, name="files", more=rolled)
    writer = Job(spark, tmp_path, f"{sql}INSERT INTO files SELECT * FROM lines", name="writer")
    reader = folder.job.open()
    writer.run([Leg(rows=7, parallelism=1)], lambda _: folder.drain(reader))
    folder.drain(reader)
    assert folder.ids() == [*range(40)]
    assert 1 < len([*folder.path.glob("*.json")]) < 6


def test_csv_files_are_read_by_lines(spark: SparkSession, tmp_path: Path) -> None:
    options = {"source__stop_at": "latest", "format": "csv", "source__regex_pattern": r"\.csv"}
    folder = Folder(spark, tmp_path, **options)
    (folder.path / "a.csv").write_text('1,"one, ""1"""\r\n2,\n\n3,""')
    (folder.path / "b.csv.gz").write_bytes(gzip.compress("4,vier\n5,fünf\n".encode()))
    (folder.path / "c.txt").write_text("no CSV")
    folder.job.run([Leg(rows=2, epochs=1)])
    rows = sorted((each["id"], each["name"]) for each in folder.rows())
    assert rows == [(1, 'one, "1"'), (2, None), (3, ""), (4, "vier"), (5, "fünf")]


def failure(folder: Folder, engine: Engine | None = None) -> ResurgenceError:
    with pytest.raises(Exception) as caught:
        folder.drain(engine or folder.job.open())
    return translate(caught.value)


def test_a_file_that_changed_after_it_was_planned_is_a_clear_failure(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path, source__epoch_bytes="40")
    path = folder.write("a.json", 1, 2, 3)
    engine = folder.job.open()
    assert folder.step(engine)
    path.write_bytes(path.read_bytes() + b'{"id": 4}\n')
    found = failure(folder, engine)
    assert isinstance(found, SourceRangeGone)
    assert f"{path} has changed after it was planned" in found.message
    assert "rename it" in found.hint
    path.unlink()
    assert f"{path} was removed after it was planned" in failure(folder).message


def test_a_bad_line_is_named_by_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.write("a.json.gz", *range(5))
    text = b'{"id": 1}\n\n{"id": "x"}\n'
    (folder.path / "b.json.gz").write_bytes(gzip.compress(text))
    found = failure(folder)
    assert isinstance(found, BadRecord)
    assert found.position == f"{folder.path}/b.json.gz, line 3"
    assert "'id' is not a BIGINT" in found.message


@pytest.mark.parametrize("name", ["b.json", "b.json.gz"])
def test_bad_lines_are_dropped_alone(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = Folder(spark, tmp_path, bad_data="drop")
    folder.write("a.json", 1)
    path = folder.write(name, 2)
    broken = b'{"id": 3}\n{"id": \n{"id": 4}'
    path.write_bytes(gzip.compress(broken) if name.endswith(".gz") else broken)
    folder.drain(folder.job.open())
    assert folder.ids() == [1, 3, 4]
    assert sum(sum(each.counts.bad_rows.values()) for each in folder.job.reports) == 1


def test_a_damaged_compressed_file_is_one_bad_record(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    path = folder.write("a.json.gz", *range(1000))
    path.write_bytes(path.read_bytes()[:-20])
    folder.write("b.json", 5000)
    found = failure(folder)
    assert isinstance(found, BadRecord)
    assert "a.json.gz, line " in found.message
    assert "the file is damaged from here on: " in found.message

    folder.job.sql = folder.job.sql.replace("type = 'source'", "type = 'source', bad_data = 'drop'")
    folder.drain(folder.job.open())
    ids = folder.ids()
    assert ids[-1] == 5000
    assert ids[:-1] == [*range(len(ids) - 1)]
    assert sum(sum(each.counts.bad_rows.values()) for each in folder.job.reports) == 1


def test_a_damaged_parquet_file_is_an_error_before_it_is_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path, format="parquet")
    (folder.path / "a.parquet").write_bytes(b"PAR1 this is not one PAR1")
    found = failure(folder)
    assert isinstance(found, UserError)
    assert "a.parquet is not a readable Parquet file" in found.message
    pq.write_table(pa.table({"id": [1]}), folder.path / "a.parquet")
    folder.drain(folder.job.open())
    assert folder.ids() == [1]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_record_that_fails_in_a_query_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    folder = Folder(spark, tmp_path, select="id, 10 / id AS share", format=format)
    folder.job.sql = f"SET on_error = 'dead_letter';\n{folder.job.sql}"
    for number in range(3):
        ids = [1, 2, 0 if number == 1 else 3, 4]
        if format == "parquet":
            pq.write_table(pa.table({"id": ids}), folder.path / f"{number}.parquet")
        else:
            folder.write(f"{number}.json", *ids)
    folder.drain(folder.job.open())
    assert folder.ids() == sorted([1, 2, 3, 4] * 2 + [1, 2, 4])
    assert sum(sum(each.counts.dead_rows.values()) for each in folder.job.reports) == 1
