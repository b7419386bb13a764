"""The Postgres sink: rows appended to a table, or upserted and deleted by its PRIMARY KEY, exactly
once.

`stage` lets tasks COPY rows into a staging table (`staging`). `commit` is one transaction: it locks
the marker of the sink, merges the staged rows (`merge`), and advances the marker (`markers`). What
the table would refuse is found before the epoch is sealed, while rows are staged or by a trial of
the merge (`target`).

Retraction is not possible: which row of a table came from which epoch is not on record.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import (
    CoveredInput,
    SinkMemory,
    StagedOutput,
    require_same_input,
)
from resurgence.connectors.net_rows import IS_DELETED, net_rows
from resurgence.connectors.postgres.column_types import (
    TargetColumn,
    WrittenColumn,
    creation_hint,
)
from resurgence.connectors.postgres.connections import Database
from resurgence.connectors.postgres.copy_text import rendered
from resurgence.connectors.postgres.location import PostgresOptions, quoted, quoted_table
from resurgence.connectors.postgres.markers import Marker, create_markers, has_markers
from resurgence.connectors.postgres.merge import (
    StagedRows,
    count_staged,
    merge_statements,
    take_turn,
)
from resurgence.connectors.postgres.staging import (
    REHEARSED_PART,
    Rehearsal,
    StagingTable,
    columns_of,
    rehearse_rows,
    stage_rows,
    staged_parts,
    sweep_staging,
)
from resurgence.connectors.postgres.target import Target, read_target
from resurgence.durations import parse_duration
from resurgence.errors import ConfigError, SinkError
from resurgence.graph.table_options import option
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation, JobIdentity

if TYPE_CHECKING:
    import psycopg

_STATEMENT_TIMEOUT = timedelta(minutes=5)
_DELETED = TargetColumn(IS_DELETED, "boolean", "bool")


class PostgresSinkOptions(PostgresOptions):
    """The options of a Postgres sink."""

    table: str = option(
        "the table, which must exist, with its schema if needed: `sales.orders`. Names are"
        " case-sensitive"
    )
    statement_timeout: Annotated[timedelta, BeforeValidator(parse_duration)] | None = option(
        "how long the server works on one statement, waits for locks included; `5 minutes` by"
        " default",
        default=None,
        name="sink.statement_timeout",
        hint="Write it as in 90s or 5 minutes.",
    )


class PostgresSink:
    """A table of a Postgres database."""

    retracts = False

    def __init__(self, options: PostgresSinkOptions, table: SinkDeclaration) -> None:
        self._stored = options.table
        self._keys = table.keys
        self._table = table
        self._database = Database(
            options.location(table.table),
            f"table {quoted_table(options.table)}",
            options.statement_timeout or _STATEMENT_TIMEOUT,
        )
        self._staging = StagingTable(self._database)

    def check(self) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise ConfigError(
                f"table '{self._table.table}' requires the package psycopg",
                hint="Install it with `pip install 'resurgence[postgres]'`.",
            )
        declared = [WrittenColumn(each.name, each.type) for each in self._table.columns]
        with self._database.transaction() as connection:
            target = self._target(connection, declared)
            create_markers(connection)
        if declared:
            target.require_fitting(declared, self._keys)

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        marker = self._marker(job)
        target, columns, shaped = self._shaped(rows)
        table = self._staging.prepare(marker, epoch, columns)
        staged = stage_rows(shaped, self._database, table)
        if staged.files and self._needs_trial(target, shaped):
            self._try(target, staged)
        return staged

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        target, columns, shaped = self._shaped(rows)
        statements: list[str] = []
        if self._needs_trial(target, shaped):
            keys = _names(target, self._keys)
            rehearsed = StagedRows(tuple(shaped.columns), (REHEARSED_PART,))
            statements = merge_statements(target.sql, keys, [rehearsed])
            statements.append(_CHECK_NOW)
        return rehearse_rows(shaped, self._database, Rehearsal(columns, tuple(statements)))

    def _shaped(self, rows: DataFrame) -> tuple[Target, tuple[str, ...], DataFrame]:
        """Return the table, the columns of a staging table, and rows as they are staged. The table
        may have been altered, so it is looked at in every epoch.
        """
        written = [
            WrittenColumn(each.name, each.dataType.simpleString().upper())
            for each in rows.schema
            if each.name != CHANGE
        ]
        with self._database.transaction() as connection:
            target = self._target(connection, written)
        target.require_fitting(written, self._keys)
        names = [each.name for each in written]
        columns = target.staging_columns(names, self._keys)
        fitting = target.named(names)
        net = rows
        if CHANGE in rows.columns:
            net = net_rows(rows, self._keys).select(*names, IS_DELETED)
            columns, fitting = (*columns, f"{quoted(IS_DELETED)} boolean"), (*fitting, _DELETED)
        return target, columns, rendered(net, fitting)

    def _needs_trial(self, target: Target, shaped: DataFrame) -> bool:
        return target.needs_trial([n for n in shaped.columns if n != IS_DELETED], self._keys)

    def _try(self, target: Target, staged: StagedOutput) -> None:
        """Merge staged rows and roll that back. Raise MessageRefused if the table refuses one."""

        def merge(connection: psycopg.Connection[Any]) -> None:
            self._merge(connection, target, staged)
            connection.execute(_CHECK_NOW.encode())

        self._database.run(merge, keep=False)

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        if not staged.files:
            return
        marker = self._marker(job)

        def write(connection: psycopg.Connection[Any]) -> None:
            if epoch <= marker.lock(connection):
                held = marker.covered(connection, [epoch]).get(epoch)
                require_same_input(self._database.place, epoch, held, covered)
                return
            self._merge(connection, self._target(connection, ()), staged)
            marker.advance(connection, epoch, covered, staged.rows)

        self._database.run(write)

    def _merge(
        self, connection: psycopg.Connection[Any], target: Target, staged: StagedOutput
    ) -> None:
        connection.execute(take_turn(target.oid).encode())
        tables = [
            StagedRows(tuple(columns_of(connection, table)), tuple(parts))
            for table, parts in staged_parts(staged).items()
        ]
        for rows in tables:
            self._require_staged(connection, rows)
        for each in merge_statements(target.sql, _names(target, self._keys), tables):
            connection.execute(each.encode())

    def _require_staged(self, connection: psycopg.Connection[Any], rows: StagedRows) -> None:
        expected = sum(each.rows for each in rows.parts)
        query = count_staged(rows).encode()
        counted = connection.execute(query).fetchone() if rows.columns else None
        found = counted[0] if counted else 0
        if found != expected:
            raise SinkError(
                f"staged output of {self._database.place} is missing: {rows.parts[0].table} has"
                f" {found} of {expected} rows",
                hint="Restore the table from a backup. Staged output was removed by hand, or the"
                " option 'dsn' names another database.",
            )

    def flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None = None,
    ) -> None:
        """Do nothing: nothing is held back."""

    def take_over(self, job: JobIdentity) -> None:
        """Do nothing: the server ends transactions with their connection."""

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        def read(connection: psycopg.Connection[Any]) -> SinkMemory:
            if not has_markers(connection):
                return SinkMemory()
            return self._marker(job).recall(connection, epochs)

        return self._database.run(read)

    def discard(self, staged: StagedOutput) -> None:
        """Leave it to the next epoch, which empties the staging table, or to the sweep."""

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        sweep_staging(self._database, self._marker(job), epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        def drop(connection: psycopg.Connection[Any]) -> None:
            if has_markers(connection):
                self._marker(job).forget(connection, before)

        self._database.run(drop)

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Close the epochs, so that no zombie commits them. Their rows remain."""

        def close(connection: psycopg.Connection[Any]) -> None:
            create_markers(connection)
            self._marker(job).retract(connection, after, up_to)

        self._database.run(close)
        sweep_staging(self._database, self._marker(job), up_to)

    def _marker(self, job: JobIdentity) -> Marker:
        return Marker(job, self._table.table)

    def _target(
        self, connection: psycopg.Connection[Any], columns: Sequence[WrittenColumn]
    ) -> Target:
        hint = creation_hint(self._stored, columns, self._keys)
        return read_target(connection, self._stored, hint)


_CHECK_NOW = "SET CONSTRAINTS ALL IMMEDIATE"
"""Deferred constraints are checked at once, as at a commit."""


def _names(target: Target, names: Sequence[str]) -> list[str]:
    return [each.name for each in target.named(names)]
