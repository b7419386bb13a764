"""State that is written by the Spark job of the sink that reads the changes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField

from resurgence.engine.epochs.engine import Engine
from resurgence.engine.tables.group_table import HAD_ROW, GroupTable, previous
from resurgence.engine.tables.keyed_table import GROUP_OF_KEY
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.engine.tables.state_writer import GROUP
from resurgence.engine.tables.task_reports import Reports, TaskReports
from resurgence.ids import Epoch, Generation
from tests.engine.harness import Job, Leg, sink_table, source_table, state_files, write_lines

ROWS, USERS, EPOCHS = 60, 5, 3
GROUPED = "SELECT user, count(*) AS n FROM events GROUP BY user"
TOP = "SELECT user FROM events QUALIFY row_number() OVER (PARTITION BY user ORDER BY user) <= 2"


def job(spark: SparkSession, folder: Path, *queries: str) -> Job:
    write_lines(folder / "in.json", ({"user": each % USERS} for each in range(ROWS)))
    sql = source_table(folder / "in.json", "user BIGINT", delay=None)
    for number, query in enumerate(queries):
        name = f"results_{number}"
        sql += sink_table(
            folder / f"{name}.json",
            name=name,
            connector="single_file",
            more=", format = 'debezium_json'",
        )
        sql += f"INSERT INTO {name} {query};"
    return Job(spark, folder, sql)


def jobs_per_epoch(spark: SparkSession, made: Job) -> list[int]:
    """Run it, and return how many Spark jobs each epoch ran."""
    counts = [0]
    spark.sparkContext.setJobGroup("epochs", "")
    tracker = spark.sparkContext.statusTracker()

    def note(_: Engine) -> None:
        counts.append(len(tracker.getJobIdsForGroup("epochs")))

    made.run([Leg(rows=ROWS // EPOCHS)], note)
    return [after - before for before, after in itertools.pairwise(counts)]


@pytest.mark.parametrize("query", [f"{GROUPED} HAVING count(*) > 4", TOP])
def test_an_epoch_of_an_updating_query_with_one_row_per_group_is_one_spark_job(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    assert jobs_per_epoch(spark, job(spark, tmp_path, query))[1:] == [1, 1]


def test_state_that_two_sinks_read_is_written_by_a_job_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    view = f"CREATE VIEW totals AS {GROUPED};"
    made = job(spark, tmp_path, "SELECT * FROM totals", "SELECT user FROM totals WHERE n > 5")
    made.sql = made.sql.replace("CREATE TABLE results_0", f"{view} CREATE TABLE results_0", 1)
    assert jobs_per_epoch(spark, made)[1:] == [3, 3]
    assert {json.loads(each)["op"] for each in lines(tmp_path / "results_0.json")} == {"c", "d"}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(f"SELECT * FROM ({GROUPED}) WHERE false", id="filter"),
        pytest.param(f"{GROUPED} HAVING 1 = 2", id="having"),
    ],
)
def test_state_is_written_even_if_spark_needs_none_of_the_changes(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    held: list[int] = []
    rows_in: list[int] = []

    def note(engine: Engine) -> None:
        held.append(sum(each.rows for each in state_files(engine)))

    reports = job(spark, tmp_path, query).run([Leg(rows=ROWS // EPOCHS)], note)
    for each in reports:
        rows_in += each.counts.rows_in.values()
    assert held == [USERS, 2 * USERS, 3 * USERS]
    assert rows_in == [ROWS // EPOCHS] * EPOCHS


def test_a_task_looks_up_and_writes_the_groups_that_it_has_whatever_its_number(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A sink may merge partitions, so that a task computes several subtasks."""
    table = GroupTable(
        url=f"file://{tmp_path}",
        folder="table",
        keys=(StructField("k", LongType()),),
        values=(StructField("v", LongType()),),
        parallelism=2,
    )
    live = LiveFiles.none(2)
    for epoch, merged in ((1, 2), (2, 1)):
        rows = spark.range(20).selectExpr(f"id AS {KEY}", "id AS k", f"{epoch} * id AS v")
        dealt = table.dealt(rows.selectExpr(f"{GROUP_OF_KEY} AS {GROUP}", "*"))
        known = table.with_previous(dealt, live, Epoch(epoch), 1, None)
        reports = TaskReports(spark, 2)
        write = table.write_through(known, Epoch(epoch), Generation(1), reports)
        found = write.rows.coalesce(merged).collect()
        assert {row.k: row[previous("v")] for row in found} == {
            key: None if epoch == 1 else key for key in range(20)
        }
        assert all(row[HAD_ROW] is (epoch == 2) for row in found)
        written = write.written()
        assert [each.subtask for each in written.files] == [0, 1]
        assert written.kept_rows == 20
        live = live.appended(written.files)


class Collected:
    """An accumulator without Spark."""

    def __init__(self) -> None:
        self.value: list[tuple[int, int, list[dict[str, object]]]] = []

    def add(self, term: list[tuple[int, int, list[dict[str, object]]]]) -> None:
        self.value += term


def test_a_subtask_that_ran_twice_counts_once_and_other_jobs_do_not_count() -> None:
    collected = Collected()
    reports = Reports(collected, 2, 2)  # type: ignore[arg-type]
    Reports(collected, 1, 2).add(0, [{"path": "old"}])  # type: ignore[arg-type]
    reports.add(0, [{"path": "a"}])
    assert not reports.are_complete()
    reports.add(0, [{"path": "b"}])
    reports.add(0, [])
    assert reports.are_complete()
    assert [*reports.rows()] == [{"path": "a"}]
