"""A `filesystem` sink in an object store, where a move is a copy and a deletion."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from typing import cast

import pytest
from pydantic import JsonValue
from pyspark.sql import SparkSession

from resurgence.connectors import file_sink
from resurgence.connectors.contract import CoveredInput, SourceSpan, StagedFile, StagedOutput
from resurgence.connectors.filesystem import FilesystemSink, FilesystemSinkOptions
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.json.writer import JsonSinkOptions
from resurgence.errors import SinkError
from resurgence.ids import Epoch, JobIdentity, OperatorId
from resurgence.storage.object_store import ObjectStore, StoredObject

JOB = JobIdentity("a1b2c3d4e5f6")
NO_SPARK = cast(SparkSession, None)
"""Files are committed without Spark."""
_UNIQUE = itertools.count()


class CountingStore(ObjectStore):
    """Notes every request that is not made at the same time as others of its kind."""

    def __init__(self) -> None:
        super().__init__("memory:///out")
        self.asked: list[str] = []
        self._barrier: threading.Barrier | None = None

    def create(self, path: str, data: bytes) -> bool:
        self.asked.append("create")
        return super().create(path, data)

    def size(self, path: str) -> int | None:
        self.asked.append("size")
        return super().size(path)

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        self.asked.append("list")
        return super().list(prefix, after)

    def delete(self, paths: Iterable[str]) -> None:
        listed = [*paths]
        if listed:
            self.asked.append("delete")
        super().delete(listed)

    def expect_copies(self, together: int) -> None:
        self._barrier = threading.Barrier(together, timeout=20)

    def _copy(self, source: str, target: str) -> None:
        self.asked.append("copy")
        if self._barrier is not None:
            self._barrier.wait()
        super()._copy(source, target)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    store = CountingStore()
    monkeypatch.setattr(file_sink, "shared_store", lambda _url: store)
    return store


def opened() -> FilesystemSink:
    """The sink as a new process would have it."""
    options = FilesystemSinkOptions.read({"path": "memory:///out"})
    return FilesystemSink(options, WriteSettings(JsonSinkOptions()), JSON)


def covering(epoch: int) -> CoveredInput:
    start: dict[str, JsonValue] = {"line": epoch - 1}
    span = SourceSpan(start=start, end={"line": epoch})
    return CoveredInput(sources={OperatorId("source-in"): span})


def stage(store: ObjectStore, epoch: int, *pieces: str) -> StagedOutput:
    files = []
    for text in pieces:
        path = f".resurgence/{JOB}/staged/{epoch:010}-1-{next(_UNIQUE):012x}"
        assert store.create(path, text.encode())
        files.append(StagedFile(path=path, rows=1, bytes=len(text)))
    return StagedOutput(rows=len(files), files=tuple(files))


def commit(sink: FilesystemSink, epoch: int, staged: StagedOutput) -> None:
    sink.commit(NO_SPARK, JOB, Epoch(epoch), staged, covering(epoch))


def visible(store: ObjectStore) -> list[bytes]:
    return [store.read(each.path) for each in store.list("") if not each.path.startswith(".")]


def staged_left(store: ObjectStore) -> int:
    return len(store.list(f".resurgence/{JOB}/staged"))


def test_a_commit_is_a_record_and_then_all_copies_at_once(store: CountingStore) -> None:
    sink = opened()
    commit(sink, 1, stage(store, 1, "a"))
    staged = stage(store, 2, "b", "c", "d")
    store.asked.clear()
    store.expect_copies(3)
    commit(sink, 2, staged)
    # The objects of the epoch before are deleted while the record is written.
    assert sorted(store.asked[:2]) == ["create", "delete"]
    assert store.asked[2:] == ["copy"] * 3
    assert visible(store) == [b"a", b"b", b"c", b"d"]


def test_staged_objects_are_deleted_with_the_next_commit_or_sweep(store: CountingStore) -> None:
    sink = opened()
    commit(sink, 1, stage(store, 1, "a", "b"))
    assert staged_left(store) == 2
    commit(sink, 2, stage(store, 2, "c"))
    assert staged_left(store) == 1
    sink.sweep(JOB, Epoch(2))
    assert staged_left(store) == 0


def test_a_sweep_after_a_crash_removes_what_was_copied(store: CountingStore) -> None:
    commit(opened(), 1, stage(store, 1, "a", "b"))
    opened().sweep(JOB, Epoch(1))
    assert staged_left(store) == 0
    assert visible(store) == [b"a", b"b"]


def test_a_sweep_after_a_crash_keeps_what_was_not_copied_yet(store: CountingStore) -> None:
    staged = stage(store, 1, "a", "b")
    commit(opened(), 1, staged)
    store.delete([f"{JOB}-0000000001-00001.json"])
    opened().sweep(JOB, Epoch(1))
    assert [each.path for each in store.list(f".resurgence/{JOB}/staged")] == [staged.files[1].path]
    commit(opened(), 1, staged)
    assert visible(store) == [b"a", b"b"]


def test_a_commit_that_is_repeated_by_another_process_is_done_once(store: CountingStore) -> None:
    sink, staged = opened(), stage(store, 1, "a", "b")
    commit(sink, 1, staged)
    commit(opened(), 1, staged)
    sink.sweep(JOB, Epoch(1))
    commit(opened(), 1, staged)
    assert visible(store) == [b"a", b"b"]


def test_staged_output_that_someone_removed_is_missed(store: CountingStore) -> None:
    staged = stage(store, 1, "a", "b")
    store.delete([staged.files[1].path])
    with pytest.raises(SinkError, match=r"staged output .* is missing"):
        commit(opened(), 1, staged)
