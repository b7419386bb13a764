"""What a job has committed, recorded in the database that it writes: the schema `resurgence`.

| table | a row |
|---|---|
| `sinks` | a sink of a job: the newest epoch that it has committed or retracted. The marker |
| `commits` | a committed epoch, and the input that it covers |
| `retractions` | epochs that a rollback declared dead |
| `staging` | a staging table, and the epoch whose rows it has |

The transaction that writes an epoch locks the marker first, and advances it. So an epoch is written
once, whoever tries: a second attempt, a job that was restored, a zombie. Epochs are committed in
their order, so a zombie with an older epoch finds a newer marker, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from resurgence.connectors.contract import CoveredInput, SinkMemory
from resurgence.errors import SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity

if TYPE_CHECKING:
    import psycopg

SCHEMA = "resurgence"
_CREATION_LOCK = 7_263_006
_TABLES = """
CREATE SCHEMA IF NOT EXISTS resurgence;
CREATE TABLE IF NOT EXISTS resurgence.sinks (
    job text, sink text, newest bigint NOT NULL DEFAULT 0, PRIMARY KEY (job, sink));
CREATE TABLE IF NOT EXISTS resurgence.commits (
    job text, sink text, epoch bigint, input text NOT NULL, rows bigint NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, sink, epoch));
CREATE TABLE IF NOT EXISTS resurgence.retractions (
    job text, sink text, first bigint, last bigint, PRIMARY KEY (job, sink, first, last));
CREATE TABLE IF NOT EXISTS resurgence.staging (
    name text PRIMARY KEY, job text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL)
"""
_EXISTS = "SELECT to_regclass('resurgence.staging') IS NOT NULL"


def has_markers(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the tables exist."""
    found = connection.execute(_EXISTS).fetchone()
    return bool(found and found[0])


def create_markers(connection: psycopg.Connection[Any]) -> None:
    """Create the tables unless they exist. A user without the right to create them can write to
    those that someone else created.
    """
    if not has_markers(connection):
        connection.execute(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})".encode())
        connection.execute(_TABLES.encode())


@dataclass(frozen=True)
class Marker:
    """The marker of a sink, and its records. Every method runs in the caller's transaction."""

    job: JobIdentity
    sink: str

    @property
    def _key(self) -> tuple[str, str]:
        return self.job, self.sink

    def lock(self, connection: psycopg.Connection[Any]) -> Epoch:
        """Lock the marker until the transaction ends, and return the newest epoch."""
        connection.execute(
            "INSERT INTO resurgence.sinks (job, sink) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            self._key,
        )
        found = connection.execute(
            "SELECT newest FROM resurgence.sinks WHERE (job, sink) = (%s, %s) FOR UPDATE",
            self._key,
        ).fetchone()
        return Epoch(found[0]) if found else NO_EPOCH

    def advance(
        self, connection: psycopg.Connection[Any], epoch: Epoch, covered: CoveredInput, rows: int
    ) -> None:
        """Record an epoch as committed. The marker is locked."""
        connection.execute(
            "UPDATE resurgence.sinks SET newest = %s WHERE (job, sink) = (%s, %s)",
            (epoch, *self._key),
        )
        connection.execute(
            "INSERT INTO resurgence.commits (job, sink, epoch, input, rows)"
            " VALUES (%s, %s, %s, %s, %s)",
            (*self._key, epoch, covered.model_dump_json(), rows),
        )

    def covered(
        self, connection: psycopg.Connection[Any], epochs: Collection[Epoch]
    ) -> dict[Epoch, CoveredInput]:
        """Return the input of those of these epochs that are on record."""
        found = connection.execute(
            "SELECT epoch, input FROM resurgence.commits"
            " WHERE (job, sink) = (%s, %s) AND epoch = ANY(%s)",
            (*self._key, [int(each) for each in epochs]),
        )
        try:
            return {Epoch(epoch): CoveredInput.model_validate_json(text) for epoch, text in found}
        except ValidationError as error:
            raise SinkError(
                f"a record of job {self.job} in {SCHEMA}.commits is damaged: its input cannot be"
                " read",
                hint="Restore the record from a backup. It was edited by hand.",
            ) from error

    def recall(self, connection: psycopg.Connection[Any], epochs: Collection[Epoch]) -> SinkMemory:
        """Return the records of the sink."""
        newest = connection.execute(
            "SELECT newest FROM resurgence.sinks WHERE (job, sink) = (%s, %s)", self._key
        ).fetchone()
        retracted = connection.execute(
            "SELECT first, last FROM resurgence.retractions"
            " WHERE (job, sink) = (%s, %s) ORDER BY last, first",
            self._key,
        ).fetchall()
        return SinkMemory(
            newest=Epoch(newest[0]) if newest else NO_EPOCH,
            inputs=self.covered(connection, epochs),
            retracted=tuple((Epoch(first), Epoch(last)) for first, last in retracted),
        )

    def forget(self, connection: psycopg.Connection[Any], before: Epoch) -> None:
        """Drop the records of epochs before one, but for the newest."""
        connection.execute(
            "DELETE FROM resurgence.commits c USING resurgence.sinks s"
            " WHERE (c.job, c.sink) = (%s, %s) AND (s.job, s.sink) = (c.job, c.sink)"
            " AND c.epoch < least(%s, s.newest)",
            (*self._key, before),
        )
        connection.execute(
            "DELETE FROM resurgence.retractions WHERE (job, sink) = (%s, %s) AND last < %s",
            (*self._key, before),
        )

    def retract(self, connection: psycopg.Connection[Any], after: Epoch, up_to: Epoch) -> None:
        """Close the epochs after one up to another, so that no zombie commits them."""
        newest = self.lock(connection)
        connection.execute(
            "UPDATE resurgence.sinks SET newest = %s WHERE (job, sink) = (%s, %s)",
            (max(newest, up_to), *self._key),
        )
        connection.execute(
            "INSERT INTO resurgence.retractions (job, sink, first, last) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (*self._key, after + 1, up_to),
        )
