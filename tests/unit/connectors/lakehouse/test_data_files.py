"""Rows as data files of lakehouse tables: partitions, statistics, and rows that are refused."""

from __future__ import annotations

import datetime
import io
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.lakehouse import data_files
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    PartitionValues,
    SortField,
    as_stored,
    by_partition,
    epoch_of,
    files_prefix,
)
from resurgence.connectors.lakehouse.options import LakehouseSinkOptions, sort_fields
from resurgence.connectors.lakehouse.table_file import FileFacts, TableFile
from resurgence.errors import MessageRefused, UserError
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import ObjectStore

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*names: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": [*range(len(names))], "name": [*names]}, schema=SCHEMA)


def test_rows_are_divided_by_partition_in_their_order() -> None:
    batch = rows("a", "b", None, "a", None)
    found = {
        values: taken.column("id").to_pylist()
        for values, taken in by_partition(batch, batch.select(["name"]))
    }
    assert found == {("a",): [0, 3], ("b",): [1], (None,): [2, 4]}


def test_a_table_without_partitions_has_one() -> None:
    batch = rows("a", "b")
    assert [*by_partition(batch, batch.select([]))] == [((), batch)]
    assert [*by_partition(rows(), batch.select([]))] == []


def test_statistics_come_from_the_footer_of_all_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resurgence.connectors.lakehouse.table_file._ROW_GROUP_ROWS", 2)
    day = datetime.date(2024, 2, 29)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("score", pa.float64()),
            ("nested", pa.struct([("x", pa.int32())])),
            ("many", pa.list_(pa.int32())),
            ("empty", pa.string()),
        ]
    )
    file = TableFile(schema, "snappy")
    for start in (0, 2):
        file.add(
            pa.RecordBatch.from_pydict(
                {
                    "id": [start, None],
                    "day": [day, day + datetime.timedelta(start)],
                    "score": [math.nan, 1.5],
                    "nested": [{"x": start}, None],
                    "many": [[1], [2]],
                    "empty": [None, None],
                },
                schema=schema,
            )
        )
    facts = file.finish()
    assert facts.rows == 4
    assert facts.metadata.num_row_groups == 2
    found = {each.path: (each.nulls, each.nans, each.bounds) for each in facts.statistics()}
    assert found == {
        ("id",): (2, 0, (0, 2)),
        ("day",): (0, 0, (day, day + datetime.timedelta(2))),
        ("score",): (0, 2, (1.5, 1.5)),
        ("nested", "x"): (2, 0, (0, 2)),
        ("empty",): (4, 0, None),
    }
    assert pq.read_table(io.BytesIO(facts.data)).num_rows == 4


def test_a_null_in_a_required_column_is_refused() -> None:
    required = pa.schema([("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    assert as_stored(rows("a"), required).num_rows == 1
    with pytest.raises(MessageRefused, match="column 'name' of a row is null"):
        as_stored(rows("a", None), required)


def test_a_value_that_does_not_fit_its_column_is_refused() -> None:
    small = pa.schema([("name", pa.int32())])
    with pytest.raises(MessageRefused, match="'name' cannot be stored as int32"):
        as_stored(rows("x"), small)


def described(facts: FileFacts, values: PartitionValues) -> dict[str, int | str]:
    return {"rows": facts.rows, "partition": str(values)}


def test_a_file_is_complete_at_the_target_size_and_the_others_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ObjectStore("memory:///table")
    monkeypatch.setattr(data_files, "task_store", lambda _access: store)
    prefix = files_prefix("resurgence", JobIdentity("job"), Epoch(7), Generation(2))
    layout = FileLayout(SCHEMA, described, lambda batch: batch.select(["name"]), target_bytes=300)
    write = data_files._writer(StoreAccess("memory:///table"), prefix, layout)
    big = rows(*["a"] * 100)
    reports = [each.to_pylist()[0] for each in write(iter([rows("a", "b"), big, rows("a")]))]
    assert [each["rows"] for each in reports] == [101, 1, 1]
    assert '"partition": "(\'a\',)"' in reports[0]["details"]
    stored = {each.path: each.size for each in store.list("resurgence")}
    assert stored == {each["path"]: each["bytes"] for each in reports}
    assert all(each.startswith("resurgence/job/0000000007-2-") for each in stored)
    assert {epoch_of(each) for each in stored} == {7}


def test_rows_that_the_table_cannot_have_are_refused_before_a_file_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ObjectStore("memory:///refused")
    monkeypatch.setattr(data_files, "task_store", lambda _access: store)

    def require(batch: pa.RecordBatch) -> None:
        if "b" in batch.column("name").to_pylist():
            raise MessageRefused("no b")

    layout = FileLayout(SCHEMA, described, target_bytes=1, require=require)
    write = data_files._writer(StoreAccess("memory:///refused"), "p", layout)
    with pytest.raises(MessageRefused, match="no b"):
        list(write(iter([rows("a"), rows("a", "b")])))
    assert len(store.list("")) == 1


def test_the_size_of_a_file_is_that_of_encoded_rows() -> None:
    same = pa.RecordBatch.from_pydict({"id": [7] * 50_000, "name": ["a"] * 50_000}, schema=SCHEMA)
    file = TableFile(SCHEMA, "snappy", row_group_bytes=100_000)
    file.add(rows("a"))
    assert file.size == file.held_bytes
    file.add(same)
    file.add(same.slice(0, 5_000))
    assert file.size < same.nbytes / 50 < file.held_bytes


def test_tasks_with_many_partitions_complete_the_largest_file_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ObjectStore("memory:///table")
    monkeypatch.setattr(data_files, "task_store", lambda _access: store)
    monkeypatch.setattr(data_files, "_OPEN_BYTES", 2_000)
    layout = FileLayout(SCHEMA, described, lambda batch: batch.select(["name"]))
    write = data_files._writer(StoreAccess("memory:///table"), "p", layout)
    reports = write(iter([rows(*["b"] * 50), rows(*["a"] * 200), rows("b")]))
    assert [each.to_pylist()[0]["rows"] for each in reports] == [200, 51]


def test_files_of_others_have_no_epoch() -> None:
    assert epoch_of("part-00000-1.snappy.parquet") is None
    assert epoch_of("day=1/0000000012-3-abc.parquet") == 12


def test_details_of_a_staged_file_are_left_out_of_checkpoints_when_there_are_none() -> None:
    plain = StagedFile(path="a", rows=1, bytes=2)
    full = StagedFile(path="b", rows=1, bytes=2, details={"partition": [None]})
    output = StagedOutput(rows=2, files=(plain, full))
    dumped = output.model_dump(mode="json")
    assert dumped["files"] == [
        {"path": "a", "rows": 1, "bytes": 2},
        {"path": "b", "rows": 1, "bytes": 2, "details": {"partition": [None]}},
    ]
    assert StagedOutput.model_validate(dumped) == output


def test_sort_fields_may_be_descending() -> None:
    assert sort_fields("day, amount DESC , id asc") == (
        SortField("day"),
        SortField("amount", True),
        SortField("id"),
    )


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64MB", 64_000_000), ("1 KiB", 1024), ("2gib", 2 * 2**30)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert LakehouseSinkOptions.read({"rolling_policy.file_size": text}).target_bytes == size


@pytest.mark.parametrize("text", ["big", "0", "64 parsecs", "-1"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a valid value"):
        LakehouseSinkOptions.read({"rolling_policy.file_size": text})
