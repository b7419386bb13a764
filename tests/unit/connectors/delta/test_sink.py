"""Appends of a Delta sink, without Spark: copies of a state dir, and files that were removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from tests.engine.connectors.delta_tables import JOB, before_each_commit, covering

from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import CoveredInput, SourceSpan, StagedFile, StagedOutput
from resurgence.connectors.delta import DeltaSink, DeltaSinkOptions
from resurgence.connectors.delta.columns import TableShape
from resurgence.connectors.delta.file_details import file_layout
from resurgence.connectors.delta.table import SinkTable
from resurgence.connectors.delta.writing.leftovers import FOLDER
from resurgence.connectors.delta.writing.staged_columns import require_as_staged, with_columns
from resurgence.connectors.delta.writing.transactions import input_number
from resurgence.connectors.lakehouse.data_files import files_prefix
from resurgence.connectors.lakehouse.table_file import TableFile
from resurgence.errors import SinkConflict, SinkError, UserError
from resurgence.ids import Epoch, Generation, OperatorId
from resurgence.storage.object_store import ObjectStore

NO_SPARK = cast(SparkSession, None)
"""Appends are committed without Spark."""


@dataclass
class Target:
    """A table, state dirs, and sinks as new processes would open them."""

    folder: Path

    def __post_init__(self) -> None:
        SinkTable(self.url).create(StructType([StructField("id", LongType())]), [])

    @property
    def url(self) -> str:
        return f"file://{self.folder}/table"

    def open(self, state: str = "state") -> DeltaSink:
        declared = SinkDeclaration(
            "out", state_url=f"file://{self.folder}/{state}", state_folder="job/staged/sink-out"
        )
        return DeltaSink(DeltaSinkOptions.read({"path": self.url}), declared)

    def stage(self, epoch: int, *ids: int, generation: int = 1) -> StagedOutput:
        """Write rows as a task does."""
        layout = file_layout(SinkTable(self.url).shape(), ["id"], (), 1 << 20)
        file = TableFile(layout.schema, layout.compression)
        file.add(pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())}))
        facts = file.finish()
        prefix = files_prefix(FOLDER, JOB, Epoch(epoch), Generation(generation))
        path = f"{prefix}-{ids[0]}.parquet"
        ObjectStore(self.url).create(path, facts.data)
        details = {**layout.describe(facts, ())}
        staged = StagedFile(path=path, rows=len(ids), bytes=len(facts.data), details=details)
        output = StagedOutput(rows=len(ids), files=(staged,))
        return with_columns(output, SinkTable(self.url).shape(), ["id"])

    def commit(
        self, epoch: int, staged: StagedOutput, sink: DeltaSink | None = None, rows: int = 10
    ) -> None:
        given = covering(epoch, rows)
        (sink or self.open()).commit(NO_SPARK, JOB, Epoch(epoch), staged, given)

    def ids(self) -> list[int]:
        return sorted(DeltaTable(self.url).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


@pytest.mark.parametrize("ahead", [1, 2])
def test_an_epoch_that_another_copy_of_the_state_dir_commits_first_is_a_conflict(
    target: Target, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    own, other = target.stage(1, 1), target.stage(1, 2, 3, generation=2)

    def copy_commits() -> None:
        target.commit(1, other, target.open("copy"), rows=20)
        if ahead == 2:
            target.commit(2, target.stage(2, 4), target.open("copy"), rows=20)

    with (
        before_each_commit(monkeypatch, copy_commits),
        pytest.raises(SinkConflict, match="other input" if ahead == 1 else "has no record of it"),
    ):
        target.commit(1, own)
    # Nor is it taken for committed after a restart.
    with pytest.raises(SinkConflict):
        target.commit(1, own)
    target.open().sweep(JOB, Epoch(1))
    assert target.ids() == [2, 3] if ahead == 1 else [2, 3, 4]


def test_an_epoch_that_a_successor_completes_first_is_not_committed_twice(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = target.stage(1, 1)

    def successor_commits() -> None:
        target.commit(1, target.stage(1, 1, generation=2))
        target.commit(2, target.stage(2, 2, generation=2))

    with before_each_commit(monkeypatch, successor_commits):
        target.commit(1, staged)
    assert target.ids() == [1, 2]


def test_epochs_after_a_rollback_are_committed_over_other_input(target: Target) -> None:
    for epoch in (1, 2):
        target.commit(epoch, target.stage(epoch, epoch))
    target.open().retract(JOB, Epoch(1), Epoch(2))
    # A zombie finds its epoch retracted, whatever it covers.
    target.commit(2, target.stage(2, 2))
    target.commit(3, target.stage(3, 3), rows=5)
    target.commit(3, target.stage(3, 3, generation=2), rows=5)
    assert target.ids() == [1, 3]


def test_staged_output_that_was_removed_is_not_committed(target: Target) -> None:
    staged = target.stage(1, 1)
    (path,) = (each.path for each in staged.files)
    ObjectStore(target.url).delete([path])
    with pytest.raises(SinkError, match=r"staged output of .* is missing: 1 data files .*parquet"):
        target.commit(1, staged)
    assert target.ids() == []
    # The files of an epoch that is committed may be gone, as after a compaction and a vacuum.
    ObjectStore(target.url).create(path, b"restored from a backup")
    target.commit(1, staged)
    ObjectStore(target.url).delete([path])
    target.commit(1, staged)


def replace_table(target: Target, *, replaced: pa.Schema, partitioned_by: list[str]) -> None:
    """Replace the columns and the partitioning, as others may do at any time."""
    write_deltalake(
        target.url,
        replaced.empty_table(),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=partitioned_by or None,
    )


@pytest.mark.parametrize(
    ("replaced", "partitioned_by", "reason"),
    [
        ({"other": pa.int64()}, [], "it has no column 'id' any more"),
        ({"id": pa.string()}, [], "its column 'id' is string, and was bigint"),
        (
            {"id": pa.int64(), "day": pa.date32()},
            ["day"],
            "it is partitioned by day, and was by no",
        ),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_an_epoch_is_not_committed_to_a_table_whose_columns_were_replaced_since_it_was_staged(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    replaced: dict[str, pa.DataType],
    partitioned_by: list[str],
    reason: str,
    is_late: bool,
) -> None:
    target.commit(1, target.stage(1, 1))
    staged = target.stage(2, 2)

    def replace() -> None:
        replace_table(target, replaced=pa.schema(replaced), partitioned_by=partitioned_by)

    with before_each_commit(monkeypatch, *([replace] if is_late else [])):
        if not is_late:
            replace()
        with pytest.raises(UserError, match=reason):
            target.commit(2, staged)
    table = DeltaTable(target.url)
    assert table.to_pyarrow_table().num_rows == 0
    assert table.version() == 2


def test_an_epoch_is_committed_to_a_table_that_has_more_columns_since_it_was_staged(
    target: Target,
) -> None:
    staged = target.stage(1, 1)
    added = pa.schema([("other", pa.string()), ("id", pa.int64())])
    write_deltalake(target.url, added.empty_table(), mode="append", schema_mode="merge")
    target.commit(1, staged)
    assert target.ids() == [1]


def test_a_column_that_became_required_is_a_change_of_the_table() -> None:
    def shape(*columns: StructField) -> TableShape:
        return TableShape("file:///table", StructType([*columns]), (), {})

    free, required = (StructField("id", LongType(), nullable) for nullable in (True, False))
    file = StagedFile(path="a", rows=1, bytes=1)
    made = {
        each: with_columns(StagedOutput(rows=1, files=(file,)), shape(each), ["ID"]).files
        for each in (free, required)
    }
    for before, now in ((free, free), (required, required), (required, free)):
        require_as_staged(shape(now), made[before])
    with pytest.raises(UserError, match="'id' is bigint NOT NULL, and was bigint"):
        require_as_staged(shape(required), made[free])
    with pytest.raises(UserError, match="it requires a value in column 'more'"):
        require_as_staged(shape(free, StructField("more", LongType(), False)), made[free])


def test_inputs_are_told_apart_by_a_number_that_their_order_does_not_change() -> None:
    one, other = covering(1).sources[OperatorId("source-in")], SourceSpan(start={}, end={"line": 1})
    covered = CoveredInput(sources={OperatorId("a"): one, OperatorId("b"): other})
    reordered = CoveredInput(sources={OperatorId("b"): other, OperatorId("a"): one})
    assert input_number(covered) == input_number(reordered)
    swapped = CoveredInput(sources={OperatorId("a"): other, OperatorId("b"): one})
    numbers = {input_number(each) for each in (covered, swapped, covering(1), covering(2))}
    assert len(numbers) == 4
    assert all(0 < each < 2**63 for each in numbers)
    # Tables have these numbers.
    assert input_number(covering(1)) == 5646276856851987364
