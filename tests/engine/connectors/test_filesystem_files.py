"""Files of `filesystem` sinks as their readers see them: partitioned, compressed, rolled."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from resurgence.cli.commands.rollback import roll_back
from resurgence.connectors.filesystem import FilesystemSink, FilesystemSinkOptions
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.json.writer import JsonSinkOptions
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import SqlError, UserError
from resurgence.ids import Epoch, Generation, JobIdentity, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from tests.engine.harness import Job, Leg, SetClock, sink_table, source_table, write_lines

ROWS = 120
COLUMNS = "at TIMESTAMP NOT NULL, id BIGINT, kind TEXT"
KINDS = ["a", "b/c", "", None, "d=é%"]
PARTITIONED = ", 'partitioning.time_pattern' = 'day=%F/hour=%H', 'partitioning.fields' = [kind]"
LONG = ", 'rolling_policy.interval' = INTERVAL '1 hour'"


def made_job(spark: SparkSession, folder: Path, more: str, query: str = "") -> Job:
    rows = [
        {"at": f"2024-03-{1 + n // 60:02}T{n % 24:02}:00:00", "id": n, "kind": KINDS[n % 5]}
        for n in range(ROWS)
    ]
    sql = source_table(write_lines(folder / "in.json", rows), COLUMNS)
    sql += sink_table(folder / "out", name="out", more=more)
    return Job(spark, folder, sql + (query or "INSERT INTO out SELECT * FROM events"))


def out(job: Job) -> Path:
    return job.folder / "out"


def names(job: Job) -> list[str]:
    """The visible files."""
    found = (each.relative_to(out(job)) for each in out(job).rglob("*") if each.is_file())
    return sorted(str(each) for each in found if not str(each).startswith("."))


def by_duckdb(job: Job, reader: str, columns: str = "id") -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        files = [str(out(job) / each) for each in names(job)]
        read = reader.replace("$files", repr(files))
        return sorted(connection.sql(f"SELECT {columns} FROM {read}").fetchall(), key=repr)


READERS = {
    "parquet": "read_parquet($files, hive_partitioning = false)",
    "json": "read_json($files, format = 'newline_delimited', hive_partitioning = false)",
    "csv": "read_csv($files, header = false, names = ['at', 'id', 'kind'], hive_partitioning ="
    " false)",
}


@pytest.mark.parametrize(
    ("file_format", "compression"),
    [
        ("parquet", ""),
        ("parquet", "zstd"),
        ("json", ""),
        ("json", "gzip"),
        ("csv", ""),
        ("csv", "gzip"),
    ],
)
def test_partitioned_and_rolled_files_are_read_by_spark_and_duckdb(
    spark: SparkSession, tmp_path: Path, file_format: str, compression: str
) -> None:
    more = f", format = '{file_format}'{PARTITIONED}{LONG}, 'filename.prefix' = 'events'"
    more += f", '{file_format}.compression' = '{compression}'" if compression else ""
    job = made_job(spark, tmp_path, more)
    job.run([Leg(rows=40, epochs=2)])
    found = names(job)
    suffix = f".{file_format}{'.gz' if compression == 'gzip' else ''}"
    assert all(each.endswith(suffix) and "/events-" in each for each in found)
    folders = {each.rpartition("/")[0] for each in found}
    assert len(folders) == len(found), "one file each, although the rows are of three epochs"
    assert "day=2024-03-01/hour=01/kind=b%2Fc" in folders
    assert {each.rpartition("=")[2] for each in folders} == {
        "a",
        "b%2Fc",
        "__HIVE_DEFAULT_PARTITION__",
        "d%3Dé%25",
    }
    assert by_duckdb(job, READERS[file_format]) == sorted(((n,) for n in range(ROWS)), key=repr)
    schema = "at TIMESTAMP, id BIGINT, kind STRING, day DATE, hour INT"
    read = spark.read.schema(schema).format(file_format).load(str(out(job)))
    rows = {row.id: (row.day.day, row.hour, row.kind) for row in read.collect()}
    assert rows == {n: (1 + n // 60, n % 24, KINDS[n % 5] or None) for n in range(ROWS)}


def test_staged_files_name_their_suffix(spark: SparkSession, tmp_path: Path) -> None:
    """The table may have another one when they are committed."""
    options = FilesystemSinkOptions.read({"path": str(tmp_path), "json.compression": "gzip"})
    sink = FilesystemSink(options, WriteSettings(JsonSinkOptions()), JSON)
    staged = sink.stage(spark.range(1), JobIdentity("a1b2c3d4e5f6"), Epoch(1), Generation(1))
    assert [each.details for each in staged.files] == [{"suffix": "json.gz"}]


def test_the_codec_of_parquet_files_is_the_chosen_one(spark: SparkSession, tmp_path: Path) -> None:
    job = made_job(spark, tmp_path, f", 'parquet.compression' = 'zstd'{LONG}")
    job.run([Leg(rows=30, epochs=2)])
    (name,) = names(job)
    metadata = pq.read_metadata(out(job) / name)
    assert metadata.num_row_groups == 1, "small row groups are merged"
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def ids(job: Job) -> list[int]:
    """What is visible, with duplicates."""
    return sorted(
        int(value)
        for each in names(job)
        for value in pq.read_table(out(job) / each, partitioning=None)["id"].to_pylist()
    )


def test_by_default_each_epoch_has_its_own_files(spark: SparkSession, tmp_path: Path) -> None:
    job = made_job(spark, tmp_path, "")
    job.run([Leg(rows=40, parallelism=1)])
    assert len(names(job)) == 3
    assert ids(job) == [*range(ROWS)]


def test_files_are_rolled_by_size_over_many_epochs(spark: SparkSession, tmp_path: Path) -> None:
    job = made_job(spark, tmp_path, ", format = 'json', 'rolling_policy.file_size' = '1kB'")
    job.run([Leg(rows=10, parallelism=1)])
    sizes = [(out(job) / each).stat().st_size for each in names(job)]
    assert 4 <= len(sizes) <= 9
    assert sorted(sizes)[1] >= 1000, "all but the last"


def test_files_are_rolled_by_age_in_planning_time_and_when_there_is_no_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = SetClock(datetime(2024, 1, 1, tzinfo=UTC))
    job = made_job(spark, tmp_path, ", 'rolling_policy.interval' = '10 seconds'")
    job.clock = clock
    engine = job.open(Leg(rows=10))
    for _ in range(10):
        engine.run_epoch()
        clock.at += timedelta(seconds=4)
    # Epochs are planned at seconds 0, 4, ..., 36; files are complete at 12, 28.
    assert ids(job) == [*range(80)]
    engine.flush(clock.at)
    assert ids(job) == [*range(80)]
    clock.at += timedelta(seconds=2)
    engine.flush(clock.at)
    assert ids(job) == [*range(100)]


def test_a_stop_makes_held_rows_visible_and_the_job_continues(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = made_job(spark, tmp_path, LONG)
    engine = job.open(Leg(rows=30))
    engine.run_epoch()
    engine.run_epoch()
    assert ids(job) == []
    engine.flush()
    assert ids(job) == [*range(60)]
    assert len(names(job)) == 1
    job.run([Leg(rows=30)])
    assert ids(job) == [*range(ROWS)]


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("to_epoch", [1, 2, 3])
def test_a_rollback_cuts_files_that_mix_epochs(
    spark: SparkSession, tmp_path: Path, to_epoch: int, stopped: bool
) -> None:
    job = made_job(spark, tmp_path, f"{LONG}, 'partitioning.fields' = [kind]")
    job.run([Leg(rows=30)]) if stopped else advance(job, 3)
    backend = StateBackend(job.store, JobName(job.name))
    graph = compile_pipeline(job.sql, CONNECTORS)
    roll_back(backend, graph, Epoch(to_epoch), dry_run=False, accept_duplicates=False)
    assert ids(job) == ([*range(30 * to_epoch)] if stopped else [])
    job.run([Leg(rows=25)])
    assert ids(job) == [*range(ROWS)]


def advance(job: Job, epochs: int) -> None:
    engine = job.open(Leg(rows=30))
    for _ in range(epochs):
        engine.run_epoch()


def test_an_added_column_is_null_in_the_older_rows_of_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = made_job(spark, tmp_path, LONG, "INSERT INTO out SELECT id FROM events")
    advance(job, 2)
    job.sql = job.sql.replace("SELECT id FROM", "SELECT id, kind FROM")
    job.run([Leg(rows=30)])
    (name,) = names(job)
    table = pq.read_table(out(job) / name)
    assert sorted(table["id"].to_pylist()) == [*range(ROWS)]
    assert table["kind"].to_pylist()[:60] == [None] * 60


def test_two_inserts_into_one_rolled_table_lose_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = (
        "INSERT INTO out SELECT id FROM events WHERE id % 2 = 0;"
        "INSERT INTO out SELECT id FROM events WHERE id % 2 = 1;"
    )
    job = made_job(spark, tmp_path, LONG, query)
    job.run([Leg(rows=30, epochs=2)], after_epoch=lambda engine: engine.sweep(engine.epoch))
    assert ids(job) == [*range(ROWS)]
    assert len(names(job)) == 1


def test_a_partitioned_changelog_has_its_folders_by_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: Iterable[dict[str, object]] = (
        {"at": "2024-01-01T00:00:00", "id": n, "kind": "ab"[n % 2]} for n in range(40)
    )
    sql = source_table(write_lines(tmp_path / "in.json", rows), COLUMNS)
    more = f", format = 'debezium_json', 'partitioning.fields' = 'kind'{LONG}"
    sql += sink_table(
        tmp_path / "out",
        name="out",
        columns="(kind TEXT, n BIGINT, PRIMARY KEY (kind))",
        more=more,
    )
    job = Job(spark, tmp_path, f"{sql}INSERT INTO out SELECT kind, count(*) FROM events GROUP BY 1")
    job.run([Leg(rows=10)])
    last = {}
    for each in names(job):
        for line in (out(job) / each).read_text().splitlines():
            change = json.loads(line)
            assert f"kind={change['after']['kind']}/" in each
            last[change["after"]["kind"]] = change["after"]["n"]
    assert last == {"a": 20, "b": 20}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (", 'partitioning.fields' = [knd]", "names the column 'knd', which does not exist"),
        (", format = 'json', 'parquet.compression' = 'zstd'", "does not apply to format 'json'"),
    ],
)
def test_options_that_do_not_fit_the_table_are_refused(
    spark: SparkSession, tmp_path: Path, more: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made_job(spark, tmp_path, more).run()


def test_a_time_pattern_requires_event_time(tmp_path: Path) -> None:
    sql = source_table(tmp_path / "in.json", COLUMNS, delay=None)
    more = ", 'partitioning.time_pattern' = '%Y'"
    sql += sink_table(tmp_path / "out", name="out", more=more)
    with pytest.raises(SqlError, match="requires rows with an event time"):
        compile_pipeline(f"{sql}INSERT INTO out SELECT * FROM events", CONNECTORS)


def test_windows_are_partitioned_by_their_event_time(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        "INSERT INTO out SELECT tumble(INTERVAL '1 day') AS w, count(*) AS n FROM events GROUP BY w"
    )
    job = made_job(spark, tmp_path, ", 'partitioning.time_pattern' = '%Y/%m/%d'", query)
    job.run()
    assert {each.rpartition("/")[0] for each in names(job)} == {"2024/03/01", "2024/03/02"}
    assert "__event_time" not in pq.read_schema(out(job) / names(job)[0]).names
