"""State files have a size cap: a task that writes much writes several, each with its own facts."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import GROUP, NewFiles
from resurgence.ids import Epoch
from resurgence.state.records import StateFile
from resurgence.storage import parquet
from resurgence.storage.parquet import EncodedFile, ParquetEncoder

CAP = 20_000


def rows(first: int, count: int, group: int) -> pa.RecordBatch:
    """Rows that do not compress well."""
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "bin": pa.array(numbers, pa.int64()),
            "text": [f"{number * 7919 % 1_000_003:x}" * 4 for number in numbers],
            GROUP: pa.array([group] * count, pa.int32()),
        }
    )


class Task:
    """What a task has created."""

    def __init__(self, cap: int = CAP) -> None:
        self.stored: list[EncodedFile] = []
        self.files = NewFiles("bin", self._create, cap)

    def _create(self, file: EncodedFile) -> str:
        self.stored.append(file)
        return f"file-{len(self.stored)}"


def test_a_file_rolls_when_it_has_grown_to_the_cap() -> None:
    task = Task()
    for number in range(40):
        task.files.add(rows(number * 100, 100, number // 20))
    task.files.finish()
    assert len(task.stored) > 2
    assert max(len(each.data) for each in task.stored) < 2 * CAP
    assert sum(each.rows for each in task.stored) == 4_000
    assert [each["path"] for each in task.files.created] == [
        f"file-{number}" for number in range(1, len(task.stored) + 1)
    ]


def test_each_file_records_its_own_bounds_and_key_groups() -> None:
    task = Task()
    for number in range(40):
        task.files.add(rows(number * 100, 100, number // 20))
    task.files.finish()
    created = task.files.created
    assert (created[0]["key_groups"], created[-1]["key_groups"]) == (f"{1:016x}", f"{2:016x}")
    assert created[0]["time_start"] == 0
    for before, after in itertools.pairwise(created):
        assert after["time_start"] == before["time_end"] + 1
    assert created[-1]["time_end"] == 3_999
    assert (task.files.groups, task.files.newest) == ({0, 1}, 3_999)


def test_rows_added_at_the_end_may_belong_to_any_group_of_the_task() -> None:
    """Expiry markers: the file that they would belong to may be complete."""
    task = Task(cap=1)
    task.files.add(rows(0, 1, 3))
    task.files.add(rows(1, 1, 5))
    task.files.add_ungrouped(rows(2, 1, 0).drop_columns([GROUP]))
    assert task.files.created[-1]["key_groups"] == f"{2**3 + 2**5:016x}"


def test_a_task_without_rows_creates_nothing() -> None:
    task = Task()
    task.files.add(rows(0, 0, 0))
    task.files.finish()
    assert task.stored == []


def test_large_rows_are_encoded_before_there_are_many_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1_000_000)
    encoder = ParquetEncoder()
    for _ in range(20):
        encoder.add(pa.RecordBatch.from_pydict({"text": ["x" * 200_000]}))
    assert encoder.size < 1_000_000


# ---------------------------------------------------------------- compaction counts runs


def written(epoch: int, size: int, part: int = 0, subtask: int = 0) -> StateFile:
    return StateFile(
        path=f"{epoch}-{subtask}-{part}",
        subtask=subtask,
        epoch=Epoch(epoch),
        rows=1,
        bytes=size,
        key_groups=2**64 - 1,
        time_start=0,
        time_end=0,
        digest="",
    )


def live(*files: StateFile) -> LiveFiles:
    return LiveFiles.none(1).appended(files)


def test_files_that_one_task_wrote_count_as_one() -> None:
    table = live(*(written(1, 100, part) for part in range(9)), written(2, 5), written(3, 5))
    assert table.fullest_subtask() == 3


def test_a_large_run_of_files_is_not_merged_with_a_few_small_ones() -> None:
    table = live(*(written(1, 100, part) for part in range(9)), written(2, 5), written(3, 5))
    assert table.small_files() == {"2-0-0", "3-0-0"}


def test_runs_of_similar_size_are_merged() -> None:
    table = live(*(written(epoch, 100, part) for epoch in (1, 2) for part in range(9)))
    assert table.small_files() == table.paths
