"""Delta tables and their sinks, as tests open, disturb and crash them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import CoveredInput, SourceSpan, StagedOutput
from resurgence.connectors.delta import DeltaSink, DeltaSinkOptions
from resurgence.connectors.delta.table import SinkTable
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.storage.object_store import ObjectStore

JOB = JobIdentity("a1b2c3d4e5f6")
COLUMNS = "id BIGINT, name STRING"


def covering(epoch: int, rows: int = 10) -> CoveredInput:
    span = SourceSpan(start={"line": (epoch - 1) * rows}, end={"line": epoch * rows})
    return CoveredInput(sources={OperatorId("source-in"): span})


@dataclass
class Target:
    """A table, a state dir, and sinks as new processes would open them."""

    spark: SparkSession
    url: str
    state: str

    def open(self, keys: Sequence[str] = (), **options: str) -> DeltaSink:
        declared = SinkDeclaration(
            "out", tuple(keys), state_url=self.state, state_folder="job/staged/sink-out"
        )
        named = {name.replace("__", "."): each for name, each in options.items()}
        return DeltaSink(DeltaSinkOptions.read({"path": self.url, **named}), declared)

    def stage(
        self,
        epoch: int,
        rows: Sequence[tuple[Any, ...]],
        columns: str = COLUMNS,
        *,
        sink: DeltaSink | None = None,
        generation: int = 1,
    ) -> StagedOutput:
        frame = self.spark.createDataFrame([*rows], columns).repartition(2)
        return (sink or self.open()).stage(frame, JOB, Epoch(epoch), Generation(generation))

    def commit(self, epoch: int, staged: StagedOutput, sink: DeltaSink | None = None) -> None:
        (sink or self.open()).commit(self.spark, JOB, Epoch(epoch), staged, covering(epoch))

    def write(self, epoch: int, *ids: int, sink: DeltaSink | None = None) -> StagedOutput:
        staged = self.stage(epoch, [(each, f"n{each}") for each in ids], sink=sink)
        self.commit(epoch, staged, sink)
        return staged

    def upsert(
        self, epoch: int, *changes: tuple[int, str, int], commit: bool = True
    ) -> StagedOutput:
        """Rows with their change, 1 or -1."""
        staged = self.stage(epoch, changes, f"{COLUMNS}, {CHANGE} INT", sink=self.open(["id"]))
        if commit:
            self.commit(epoch, staged, self.open(["id"]))
        return staged

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.url)

    def ids(self) -> list[int]:
        return sorted(self.table.to_pyarrow_table().column("id").to_pylist())

    def rows(self) -> dict[int, str]:
        rows = self.table.to_pyarrow_table().to_pylist()
        found = {each["id"]: each["name"] for each in rows}
        assert len(found) == len(rows)
        return found


def other_rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": ["other"] * len(ids)})


@contextmanager
def before_each_commit(
    monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]
) -> Iterator[list[int]]:
    """Do one step before each attempt of a commit; how many attempts were made."""
    made: list[int] = []
    commit = SinkTable.commit

    def disturbed(self: SinkTable, *arguments: Any, **named: Any) -> None:
        made.append(self.version)
        if len(made) <= len(steps):
            steps[len(made) - 1]()
        commit(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "commit", disturbed)
        yield made


STEPS = (
    *((ObjectStore, name) for name in ("create", "read", "list", "delete")),
    *((SinkTable, name) for name in ("commit", "restore", "refresh")),
)
"""At which a process may end, for `crashes`."""
WRITES = tuple(each for each in STEPS if each[1] in ("create", "delete", "commit", "restore"))
"""A crash around a read is one after the write before it."""
