"""A database for the tests of the Postgres sink: its tables, its staging tables, and pipelines that
write to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import CoveredInput, SourceSpan
from resurgence.connectors.postgres import PostgresSink, PostgresSinkOptions
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from tests.engine.harness import source_table, write_lines

JOB = JobIdentity("job")
COLUMNS = "at TIMESTAMP NOT NULL, id BIGINT, name TEXT"
ROWS = 60


@dataclass(frozen=True)
class Tables:
    """A database by its URL."""

    url: str

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for each in statements:
                connection.execute(each.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            return connection.execute(query.encode()).fetchall()

    def ids(self, table: str = "out") -> list[int]:
        return [row[0] for row in self.rows(f"SELECT id FROM {table} ORDER BY id")]

    def staging_tables(self) -> list[str]:
        """Those that exist, whether they are registered or not."""
        found = self.rows(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = 'resurgence' AND relname LIKE 'staged%' AND relkind = 'r'"
        )
        return [name for (name,) in found]

    def sink_sql(
        self, columns: str = "", table: str = "out", name: str = "out", **more: str
    ) -> str:
        """CREATE TABLE for a sink; `sink__x` stands for `sink.x`."""
        chosen = {
            "connector": "postgres",
            "type": "sink",
            "dsn": self.url,
            "table": table,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in chosen.items())
        return f"CREATE TABLE {name} {columns} WITH ({listed});\n"

    def sink(
        self, *keys: str, table: str = "out", name: str = "out", url: str = "", **more: str
    ) -> PostgresSink:
        """A sink without a pipeline."""
        options = {"dsn": url or self.url, "table": table, **more}
        return PostgresSink(PostgresSinkOptions.read(options), SinkDeclaration(name, keys))


def events(folder: Path, rows: int = ROWS) -> str:
    """A source of rows, of which every seventh has the same name."""
    lines = [
        {
            "at": f"2024-03-01T10:{number // 60:02}:{number % 60:02}",
            "id": number,
            "name": f"n{number % 7}",
        }
        for number in range(rows)
    ]
    return source_table(write_lines(folder / "events.json", lines), COLUMNS)


def covered(epoch: int, of: str = "events") -> CoveredInput:
    """The input of an epoch of ten rows."""
    span = SourceSpan(start={"line": epoch * 10 - 10}, end={"line": epoch * 10})
    return CoveredInput(sources={OperatorId(of): span})


@dataclass
class Writer:
    """A job that writes through a sink, without an engine."""

    spark: SparkSession
    sink: PostgresSink
    job: JobIdentity = JOB

    def stage(
        self, epoch: int, rows: list[tuple[Any, ...]], schema: str = "id BIGINT, v STRING"
    ) -> Any:
        frame = self.spark.createDataFrame(rows, schema).repartition(2)
        return self.sink.stage(frame, self.job, Epoch(epoch), Generation(1))

    def commit(self, epoch: int, staged: Any, of: str = "events") -> None:
        self.sink.commit(self.spark, self.job, Epoch(epoch), staged, covered(epoch, of))

    def write(self, epoch: int, rows: list[tuple[Any, ...]]) -> None:
        self.commit(epoch, self.stage(epoch, rows))
