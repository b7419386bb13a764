"""Edited pipelines resume from their checkpoints: operators that the edit does not touch keep their
state.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.errors import IncompatibleState
from tests.engine.harness import (
    Job,
    Leg,
    read_lines,
    sink_table,
    sorted_rows,
    source_table,
    write_lines,
)

ROWS = 240
COLUMNS = "at TIMESTAMP, id BIGINT"
WIDER = "at TIMESTAMP, id BIGINT, word TEXT"
WINDOW = (
    "SELECT tumble(INTERVAL '1 minute') AS w, id % 3 AS k, sum(id) AS s FROM events GROUP BY w, k"
)


class Edited:
    """A pipeline whose text is made of parts."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        rows = [
            {"at": f"2024-01-01T00:{number // 60:02}:{number % 60:02}", "id": number, "word": "x"}
            for number in range(ROWS)
        ]
        self.spark, self.folder = spark, folder
        self.source = write_lines(folder / "in.json", rows)

    def job(self, *, columns: str = COLUMNS, query: str = WINDOW, more: str = "") -> Job:
        sql = source_table(self.source, columns, delay="1 second")
        sql += sink_table(self.folder / "out", name="out")
        sql += sink_table(self.folder / "second.json", name="second", connector="single_file")
        return Job(self.spark, self.folder, f"{sql}INSERT INTO out {query};\n{more}")

    def sums(self) -> list[str]:
        return sorted_rows(
            self.spark.read.parquet(str(self.folder / "out")).selectExpr("w.start", "k", "s")
        )

    def expected(self, condition: str = "true") -> list[str]:
        events = self.spark.read.schema("at TIMESTAMP, id BIGINT").json(str(self.source))
        events.createOrReplaceTempView("events")
        return sorted_rows(
            self.spark.sql(
                "SELECT * FROM (SELECT window.start, id % 3 AS k, sum(id) AS s FROM events"
                f" GROUP BY window(at, '1 minute'), id % 3) WHERE {condition}"
            )
        )


@pytest.fixture
def edited(spark: SparkSession, tmp_path: Path) -> Edited:
    """Half-way, in the middle of a window."""
    made = Edited(spark, tmp_path)
    engine = made.job().open(Leg(45))
    for _ in range(2):
        engine.run_epoch()
    return made


def test_adding_a_column_and_a_view_keeps_the_state(edited: Edited) -> None:
    view = "CREATE VIEW words AS SELECT word FROM events;\n"
    edited.job(columns=WIDER, more=view).run([Leg(50)])
    assert edited.sums() == edited.expected()


def test_an_added_sink_gets_new_rows_and_the_others_keep_their_state(edited: Edited) -> None:
    more = "INSERT INTO second SELECT id FROM events;\n"
    edited.job(more=more).run([Leg(50)])
    assert edited.sums() == edited.expected()
    assert [each["id"] for each in read_lines(edited.folder / "second.json")] == [*range(90, ROWS)]


def test_a_filter_downstream_keeps_the_state(edited: Edited) -> None:
    edited.job(query=f"SELECT w, k, s FROM ({WINDOW}) WHERE s > 1000").run([Leg(50)])
    # The first window was closed before the edit.
    assert edited.sums() == edited.expected("s > 1000 OR start = '2024-01-01 00:00:00'")


def test_a_job_can_be_rescaled_and_edited_at_once(edited: Edited) -> None:
    more = "INSERT INTO second SELECT id FROM events;\n"
    edited.job(more=more).run([Leg(50, 3, epochs=1), Leg(50, 1)])
    assert edited.sums() == edited.expected()


def test_an_edited_window_is_refused_and_nothing_is_lost(edited: Edited) -> None:
    other = edited.job(query=WINDOW.replace("id % 3", "id % 4"))
    with pytest.raises(IncompatibleState, match="would be lost"):
        other.open()
    edited.job().run([Leg(50)])
    assert edited.sums() == edited.expected()


def test_an_edited_window_starts_empty_if_the_loss_is_accepted(edited: Edited) -> None:
    other = edited.job(query=WINDOW.replace("sum(id)", "max(id)"))
    other.settings = {"checkpoint.accept_state_loss": "true"}
    other.run([Leg(50)])
    later = [each for each in edited.sums() if "2024, 1, 1, 0, 3" in each]
    assert len(later) == 3
    assert all(f", {number})" in "".join(later) for number in range(ROWS - 3, ROWS))


def test_a_source_of_another_column_type_is_refused(edited: Edited) -> None:
    with pytest.raises(IncompatibleState):
        edited.job(columns="at TIMESTAMP, id INT").open()


def test_an_added_source_is_replayed_from_its_beginning(edited: Edited) -> None:
    """The checkpoint fallen back to knows nothing of it, and its beginning depends on the clock."""
    more = (
        "CREATE TABLE ticks WITH (connector = 'impulse', message_count = '200');\n"
        "INSERT INTO second SELECT counter FROM ticks;\n"
    )
    job = edited.job(more=more)
    job.open(Leg(45)).run_epoch()
    (edited.folder / "state/job/epochs/0000000003/manifest-0.json").write_bytes(b"")
    engine = job.open(Leg(45))
    assert engine.epoch == 2
    job.run([Leg(45)])
    assert edited.sums() == edited.expected()
    assert [each["counter"] for each in read_lines(edited.folder / "second.json")] == [*range(200)]


def test_a_moved_source_resumes_at_its_offset(edited: Edited) -> None:
    edited.source = edited.source.rename(edited.folder / "moved.json")
    edited.job().run([Leg(50)])
    assert edited.sums() == edited.expected()
