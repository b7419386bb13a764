"""The cache of state files: verified, bounded, and never needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from resurgence.engine.tables import file_cache
from resurgence.engine.tables.cache_reads import CacheReads, CacheReports
from resurgence.engine.tables.file_cache import FOLDER, remember, sorted_rows
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.errors import DamagedState
from resurgence.ids import Epoch
from resurgence.state.records import StateFile
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import ParquetEncoder

KEYS = [5, 3, 9, 3]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreAccess:
    (tmp_path / "local").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/local,/elsewhere")
    file_cache._verified.clear()
    monkeypatch.setattr(file_cache, "_unchecked", file_cache._Stored())
    return store_access(f"file://{tmp_path}/store")


def stored(access: StoreAccess, name: str, rows: int = len(KEYS)) -> StateFile:
    """A state file in the store."""
    encoder = ParquetEncoder()
    keys = (KEYS * rows)[:rows]
    encoder.add(pa.RecordBatch.from_pydict({KEY: keys, "value": [*range(rows)]}))
    file = encoder.finish()
    assert file is not None
    ObjectStore(access.url).create(name, file.data)
    return StateFile(
        path=name,
        subtask=0,
        epoch=Epoch(1),
        rows=rows,
        bytes=len(file.data),
        key_groups=1,
        time_start=0,
        time_end=0,
        digest=file.digest,
    )


def content(access: StoreAccess, file: StateFile) -> list[tuple[int, int]]:
    rows = sorted_rows(access, file)
    return [(each[KEY], each["value"]) for batch in rows.batches for each in batch.to_pylist()]


def entries() -> list[Path]:
    return [*(Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / FOLDER).iterdir()]


def delete(access: StoreAccess, file: StateFile) -> None:
    ObjectStore(access.url).delete([file.path])


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def altered(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


ROWS = [(3, 1), (3, 3), (5, 0), (9, 2)]


def test_a_file_is_read_once(store: StoreAccess) -> None:
    file = stored(store, "a.parquet")
    assert content(store, file) == ROWS
    delete(store, file)
    assert content(store, file) == ROWS
    assert len(entries()) == 1


def test_a_file_that_was_just_written_is_not_read(store: StoreAccess) -> None:
    file = stored(store, "a.parquet")
    remember(store, file.path, ObjectStore(store.url).read(file.path))
    delete(store, file)
    assert content(store, file) == ROWS


class Collected:
    """An accumulator without Spark."""

    def __init__(self) -> None:
        self.value = CacheReads()

    def add(self, term: CacheReads) -> None:
        self.value = self.value.plus(term)


def test_a_task_reports_its_own_reads(store: StoreAccess) -> None:
    file = stored(store, "a.parquet")
    reports = CacheReports(Collected())  # type: ignore[arg-type]
    with reports.counting():
        content(store, file)
    assert reports.total == CacheReads(0, 1, file.bytes)
    content(store, file)
    with reports.counting():
        content(store, file)
        content(store, file)
    assert reports.total == CacheReads(2, 1, file.bytes)


def test_a_damaged_entry_is_replaced(store: StoreAccess) -> None:
    file = stored(store, "a.parquet")
    content(store, file)
    for damage in (cut, altered):
        file_cache._verified.clear()
        (damaged,) = entries()
        damaged.write_bytes(damage(damaged.read_bytes()))
        assert content(store, file) == ROWS
    file_cache._verified.clear()
    (damaged,) = entries()
    damaged.write_bytes(b"")
    delete(store, file)
    with pytest.raises(DamagedState, match="is missing"):
        content(store, file)


def test_a_damaged_file_is_not_cached(store: StoreAccess) -> None:
    file = stored(store, "a.parquet").model_copy(update={"digest": "0" * 32})
    with pytest.raises(DamagedState, match="digest"):
        content(store, file)
    assert not (Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / FOLDER).exists()


def test_the_entries_that_were_not_used_for_the_longest_time_are_removed(
    store: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [stored(store, f"{each}.parquet", 1000) for each in range(4)]
    for age, each in enumerate(files[:3]):
        content(store, each)
        os.utime(entry(store, each), (age, age))
    monkeypatch.setattr(file_cache, "LIMIT", 3 * entry(store, files[0]).stat().st_size)
    content(store, files[0])
    content(store, files[3])
    assert [entry(store, each).exists() for each in files] == [True, False, True, True]


def test_many_small_entries_are_removed_in_rounds(
    store: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of epochs writes a hundred thousand of them. To look at each takes time, too."""
    monkeypatch.setattr(file_cache, "MOST_ENTRIES", 128)
    monkeypatch.setattr(file_cache, "_RECENT_SECONDS", 0)
    searches: list[Path] = []

    def searched(folder: Path) -> Iterator[os.DirEntry[str]]:
        searches.append(folder)
        return scandir(folder)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", searched)
    data = ObjectStore(store.url).read(stored(store, "a.parquet").path)
    most = 0
    for number in range(400):
        remember(store, f"{number}.parquet", data)
        most = max(most, len(entries()))
    assert 128 <= most <= 128 + 2
    assert len(searches) <= 400 // 2 + 1


def test_many_entries_that_are_in_use_are_not_removed(
    store: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "MOST_ENTRIES", 3)
    files = [stored(store, f"{each}.parquet") for each in range(6)]
    for each in files[:5]:
        content(store, each)
    os.utime(entry(store, files[2]), (0, 0))
    content(store, files[5])
    assert [each for each in files if not entry(store, each).exists()] == [files[2]]


def test_what_was_verified_is_forgotten_in_time(
    store: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "MOST_ENTRIES", 3)
    for number in range(10):
        file = stored(store, f"{number}.parquet")
        assert content(store, file) == ROWS
        assert len(file_cache._verified) <= 4


def entry(access: StoreAccess, file: StateFile) -> Path:
    found = file_cache._entry(access, file.path)
    assert found is not None
    return found


def test_without_space_on_the_disk_rows_are_held_in_memory(
    store: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_cache, "_make_room", full)
    file = stored(store, "a.parquet")
    assert content(store, file) == ROWS
    assert entries() == []


def test_without_spark_rows_are_held_in_memory(
    store: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert content(store, stored(store, "a.parquet")) == ROWS
