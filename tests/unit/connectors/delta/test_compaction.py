"""The commit of a compaction, without Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.engine.connectors.delta_tables import before_each_commit

from resurgence.connectors.delta.columns import TableShape
from resurgence.connectors.delta.writing.compaction import DeltaCompaction, _Merge
from resurgence.connectors.lakehouse import compaction as lakehouse
from resurgence.connectors.lakehouse.data_files import FileLayout


def test_an_epoch_can_be_committed_between_two_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, commits, turns = f"file://{tmp_path}/table", threading.Lock(), list[bool]()

    def append() -> None:
        write_deltalake(url, pa.table({"id": [1]}), mode="append")

    def pause(_seconds: float) -> None:
        turns.append(commits.acquire(blocking=False))
        append()
        commits.release()

    for _ in range(2):
        append()
    made = DeltaCompaction(url, _no_layout, commits, {})
    made.small_files(1 << 20)
    merge = _Merge(tuple(made._seen.values()), ())
    monkeypatch.setattr(lakehouse, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    with before_each_commit(monkeypatch, append):
        assert made._commit([merge])
    assert turns == [True]
    # Those of the two other commits: the merge has written none.
    assert len(DeltaTable(url).file_uris()) == 2


def _no_layout(shape: TableShape) -> FileLayout:
    raise AssertionError("tasks write nothing")
