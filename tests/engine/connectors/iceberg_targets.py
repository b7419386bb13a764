"""Iceberg tables and their sinks, as tests open, disturb and crash them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import StagedOutput
from resurgence.connectors.iceberg import IcebergSink
from resurgence.connectors.iceberg.options import IcebergSinkOptions
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation
from resurgence.storage.object_store import ObjectStore
from tests.engine.connectors.crashes import Crash
from tests.iceberg_tables import JOB, SINK, covering

COLUMNS = "id BIGINT, name STRING"


@dataclass
class Target:
    """A catalog, a state dir, and sinks as new processes would open them."""

    spark: SparkSession
    folder: Path
    catalog: Catalog
    connection: dict[str, str]
    namespace: str = field(default_factory=lambda: f"db{uuid.uuid4().hex[:8]}")

    def options(self, table: str = "t", **more: str) -> dict[str, str]:
        named = {name.replace("__", "."): each for name, each in more.items()}
        return {"namespace": self.namespace, "table_name": table, **self.connection, **named}

    def sql(self, name: str, role: str, columns: str = "", **more: str) -> str:
        """CREATE TABLE for a table of the catalog, which has the same name."""
        options = {"connector": "iceberg", "type": role, **self.options(name, **more)}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        return f"CREATE TABLE {name} {columns} WITH ({listed});\n"

    def open(self, keys: Sequence[str] = (), **more: str) -> IcebergSink:
        declared = SinkDeclaration(
            "out",
            tuple(keys),
            state_url=f"file://{self.folder}/state",
            state_folder=f"job/staged/{SINK}",
        )
        return IcebergSink(IcebergSinkOptions.read(self.options(**more)), declared)

    def stage(
        self,
        epoch: int,
        rows: Sequence[tuple[Any, ...]],
        columns: str = COLUMNS,
        *,
        sink: IcebergSink | None = None,
    ) -> StagedOutput:
        frame = self.spark.createDataFrame([*rows], columns).repartition(2)
        return (sink or self.open()).stage(frame, JOB, Epoch(epoch), Generation(1))

    def commit(self, epoch: int, staged: StagedOutput, sink: IcebergSink | None = None) -> None:
        (sink or self.open()).commit(self.spark, JOB, Epoch(epoch), staged, covering(epoch))

    def upsert(
        self, epoch: int, *changes: tuple[int, str, int], commit: bool = True
    ) -> StagedOutput:
        """Rows with their change, 1 or -1."""
        staged = self.stage(epoch, changes, f"{COLUMNS}, {CHANGE} INT", sink=self.open(["id"]))
        if commit:
            self.commit(epoch, staged, self.open(["id"]))
        return staged

    def write(self, epoch: int, *ids: int, sink: IcebergSink | None = None) -> StagedOutput:
        staged = self.stage(epoch, [(each, f"n{each}") for each in ids], sink=sink)
        self.commit(epoch, staged, sink)
        return staged

    def table(self, name: str = "t") -> Table:
        return self.catalog.load_table((self.namespace, name))

    def rows(self, name: str = "t") -> dict[int, str]:
        rows = self.table(name).scan().to_arrow().to_pylist()
        found = {each["id"]: each["name"] for each in rows}
        assert len(found) == len(rows)
        return found

    def answer(self, name: str) -> list[str]:
        """All rows of a table, as texts."""
        return sorted(str(each) for each in self.table(name).scan().to_arrow().to_pylist())


def sql_target(spark: SparkSession, folder: Path) -> Target:
    """A SQL catalog."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/wh"
    return Target(
        spark,
        folder,
        SqlCatalog("default", uri=uri, warehouse=warehouse),
        {"catalog.type": "sql", "catalog.sql.uri": uri, "catalog.warehouse": warehouse},
    )


@contextmanager
def before_each_commit(
    monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]
) -> Iterator[list[int]]:
    """Do one step before each request of our own commits; how many were made."""
    made: list[int] = []
    commit = SqlCatalog.commit_table
    is_inside = [False]

    def disturbed(self: SqlCatalog, *arguments: Any) -> Any:
        if not is_inside[0]:
            made.append(1)
            if len(made) <= len(steps):
                is_inside[0] = True
                try:
                    steps[len(made) - 1]()
                finally:
                    is_inside[0] = False
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", disturbed)
        yield made


WRITES = (
    *((ObjectStore, name) for name in ("create", "replace", "delete")),
    (SqlCatalog, "commit_table"),
)
"""At which a process may end, for `crashes`."""


def crash() -> None:
    raise Crash
