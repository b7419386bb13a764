"""What others read of Delta and Iceberg tables while epochs of several files are committed: whole
epochs only.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from resurgence.graph.values import CHANGE
from tests.engine.connectors import delta_tables, iceberg_targets

EPOCHS = 6
IDS = range(4)
"""Each is a partition, so an epoch is as many files."""
COPIES = 5
Read = Callable[[], tuple[int, list[dict[str, Any]]]]
"""Returns a version of the table, and its rows."""


@dataclass(frozen=True)
class Place:
    """A table, and how others read it."""

    target: Any
    """One of `delta_tables` or `iceberg_targets`, which are alike."""
    read: Read
    in_duckdb: Callable[[], str]
    """The table in a FROM clause."""

    def write(self, epoch: int, *, keys: tuple[str, ...]) -> None:
        """With keys, an epoch replaces all rows of the one before it."""
        if keys:
            old = [(each, f"{epoch - 1}", -1) for each in IDS] if epoch > 1 else []
            rows: list[tuple[Any, ...]] = [*old, *((each, f"{epoch}", 1) for each in IDS)]
            columns = f"id BIGINT, name STRING, {CHANGE} INT"
        else:
            rows = [(each, f"{epoch}") for each in IDS for _ in range(COPIES)]
            columns = "id BIGINT, name STRING"
        sink = self.target.open(keys, partitioning__fields="id")
        staged = self.target.stage(epoch, rows, columns, sink=sink)
        self.target.commit(epoch, staged, sink)


def delta(spark: SparkSession, folder: Path) -> Place:
    target = delta_tables.Target(spark, f"file://{folder}/table", f"file://{folder}/state")

    def read() -> tuple[int, list[dict[str, Any]]]:
        table = DeltaTable(target.url)
        return table.version(), table.to_pyarrow_table().to_pylist()

    return Place(target, read, lambda: f"delta_scan('{folder}/table')")


def iceberg(spark: SparkSession, folder: Path) -> Place:
    target = iceberg_targets.sql_target(spark, folder)
    # With connections of its own, because it reads in another thread.
    catalog = SqlCatalog("default", uri=target.connection["catalog.sql.uri"])

    def read() -> tuple[int, list[dict[str, Any]]]:
        table = catalog.load_table((target.namespace, "t"))
        return len(table.snapshots()), table.scan().to_arrow().to_pylist()

    return Place(target, read, lambda: f"iceberg_scan('{target.table().metadata_location}')")


@contextmanager
def read_meanwhile(read: Read) -> Iterator[Mapping[int, list[dict[str, Any]]]]:
    """Read a table again and again, in another thread; what each version has."""
    seen: dict[int, list[dict[str, Any]]] = {}
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            version, rows = read()
            seen.setdefault(version, rows)

    with ThreadPoolExecutor(1) as threads:
        polling = threads.submit(poll)
        try:
            yield seen
        finally:
            is_over.set()
        polling.result()


@pytest.mark.parametrize("opened", [delta, iceberg])
@pytest.mark.parametrize("keys", [(), ("id",)], ids=["append", "upsert"])
def test_whoever_reads_during_commits_sees_whole_epochs(
    spark: SparkSession,
    tmp_path: Path,
    opened: Callable[[SparkSession, Path], Place],
    keys: tuple[str, ...],
) -> None:
    place = opened(spark, tmp_path)
    place.write(1, keys=keys)
    with read_meanwhile(place.read) as seen:
        for epoch in range(2, EPOCHS + 1):
            place.write(epoch, keys=keys)
    assert len(seen) >= EPOCHS - 2, "the reader was too slow"
    for rows in [*seen.values(), place.read()[1]]:
        epochs = Counter(each["name"] for each in rows)
        if keys:
            assert [*epochs.values()] == [len(IDS)]
            assert sorted(each["id"] for each in rows) == [*IDS]
        else:
            expected = range(1, len(epochs) + 1)
            assert epochs == {f"{each}": len(IDS) * COPIES for each in expected}


@pytest.mark.parametrize("opened", [delta, iceberg])
@pytest.mark.parametrize("keys", [(), ("id",)], ids=["append", "upsert"])
def test_duckdb_reads_what_was_committed(
    spark: SparkSession,
    tmp_path: Path,
    duckdb_rows: Callable[[str], list[list[object]]],
    opened: Callable[[SparkSession, Path], Place],
    keys: tuple[str, ...],
) -> None:
    place = opened(spark, tmp_path)
    for epoch in (1, 2):
        place.write(epoch, keys=keys)
    query = f"SELECT id, name, count(*) FROM {place.in_duckdb()} GROUP BY ALL ORDER BY ALL"
    epochs, copies = (["2"], 1) if keys else (["1", "2"], COPIES)
    assert duckdb_rows(query) == [[each, epoch, copies] for each in IDS for epoch in epochs]
