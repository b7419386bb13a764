"""The rows that say which controller owns which job; Postgres only.

A controller has one row with one lease, however many jobs it owns: renewing it costs the same for
one job and for a thousand. A job belongs to the controller that its row names. Whoever declares a
controller dead deletes its row, in the transaction that frees its jobs; so a controller whose
renewal finds no row knows that it has lost them all. Leases are written and compared by the clock of
the database alone.

`assignment` decides what is claimed and released, and who is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from pydantic import JsonValue, TypeAdapter
from sqlalchemy.dialects.postgresql import insert

from resurgence.control.fleet.assignment import Dead, JobFact, Peer
from resurgence.control.jobs.job_record import DesiredConfig, JobStatus, Wanted, should_start
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.database import Database
from resurgence.control.store.schema import CONTROLLERS, JOBS, PROGRESS, STATUSES
from resurgence.ids import ControllerId, JobName
from resurgence.state.records import Owner

_DESIRED = TypeAdapter(DesiredConfig)
_STILL_FRESH = 0.5
"""The part of a lease that is left to a controller that renewed lately."""


@dataclass(frozen=True)
class Fleet:
    """All controllers and all jobs, as one transaction saw them."""

    peers: tuple[Peer, ...]
    jobs: tuple[JobFact, ...]


class JobOwners:
    """Thread-safe; each call is one transaction and returns in bounded time."""

    def __init__(self, database: Database, lease: timedelta) -> None:
        self._database = database
        self.lease = lease

    def join(self, me: ControllerId, process: Owner, url: str) -> None:
        """Add a controller, with a lease and without jobs."""
        with self._database.writing() as connection:
            connection.execute(
                CONTROLLERS.insert().values(
                    id=me,
                    process=process.model_dump(mode="json"),
                    url=url,
                    leaving=False,
                    reaches_storage=True,
                    lease_until=self._lease_end(),
                )
            )

    def renew(self, me: ControllerId, *, leaving: bool, reaches_storage: bool = True) -> bool:
        """Renew the lease of a controller. Return False if it was declared dead: all its jobs are
        lost.
        """
        with self._database.writing() as connection:
            renewed = connection.execute(
                CONTROLLERS.update()
                .where(CONTROLLERS.c.id == me)
                .values(
                    lease_until=self._lease_end(), leaving=leaving, reaches_storage=reaches_storage
                )
            )
        return renewed.rowcount == 1

    def fleet(self) -> Fleet:
        """Return all controllers and jobs."""
        with self._database.reading() as connection:
            # In this order: a controller that is listed had not lost its jobs before they are read.
            facts = _facts(connection)
            return Fleet(self._peers(connection), facts)

    def declare_dead(self, dead: Sequence[Dead]) -> None:
        """Free the jobs of dead controllers. One that has renewed its lease in the meantime is
        spared, unless its process has ended.
        """
        with self._database.writing() as connection:
            for each in sorted(dead, key=lambda one: one.id):
                has_ended = (
                    sa.true() if each.is_proven else CONTROLLERS.c.lease_until < sa.func.now()
                )
                gone = connection.execute(
                    CONTROLLERS.delete().where(CONTROLLERS.c.id == each.id, has_ended)
                )
                if gone.rowcount:
                    _free(connection, each.id, orphaned=each.is_proven)
            self._database.notify(connection)

    def claim(self, me: ControllerId, names: Sequence[JobName]) -> dict[JobName, bool]:
        """Claim unowned jobs for a live controller. Return those that it now owns, and whether
        their workers wait to be adopted.
        """
        with self._database.writing() as connection:
            # No one can declare it dead before this transaction ends.
            if not _is_member(connection, me):
                return {}
            free = connection.execute(
                sa.select(JOBS.c.name, JOBS.c.orphaned)
                .where(JOBS.c.name.in_(names), JOBS.c.owner.is_(None))
                .order_by(JOBS.c.name)
                .with_for_update()
            ).all()
            found = {JobName(row.name): bool(row.orphaned) for row in free}
            connection.execute(
                JOBS.update().where(JOBS.c.name.in_(found)).values(owner=me, orphaned=False)
            )
        return found

    def release(self, me: ControllerId, name: JobName) -> None:
        """Free one job, so that another controller claims it."""
        with self._database.writing() as connection:
            connection.execute(
                JOBS.update()
                .where(JOBS.c.name == name, JOBS.c.owner == me)
                .values(owner=None, orphaned=False)
            )
            self._database.notify(connection)

    def release_all(self, me: ControllerId) -> None:
        """Free all jobs of a controller."""
        with self._database.writing() as connection:
            _free(connection, me, orphaned=False)
            self._database.notify(connection)

    def leave(self, me: ControllerId) -> None:
        """Remove a controller and free the jobs that it still has."""
        with self._database.writing() as connection:
            connection.execute(CONTROLLERS.delete().where(CONTROLLERS.c.id == me))
            _free(connection, me, orphaned=False)
            self._database.notify(connection)

    def owner(self, name: JobName) -> ControllerId | None:
        """Return the controller that owns a job."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(JOBS.c.owner).where(JOBS.c.name == name)).scalar()

    def owns(self, me: ControllerId, name: JobName) -> bool:
        """Return whether a controller owns a job."""
        return self.owner(name) == me

    def put_progress(self, me: ControllerId, progress: dict[JobName, dict[str, JsonValue]]) -> None:
        """Store the progress of jobs that a controller owns, for the others to show."""
        with self._database.writing() as connection:
            mine = connection.execute(
                sa.select(JOBS.c.name).where(JOBS.c.owner == me, JOBS.c.name.in_(progress))
            ).scalars()
            rows = [{"job": name, "facts": progress[JobName(name)]} for name in mine]
            if rows:
                statement = insert(PROGRESS).values(rows)
                connection.execute(
                    statement.on_conflict_do_update(
                        index_elements=[PROGRESS.c.job], set_={"facts": statement.excluded.facts}
                    )
                )

    def _lease_end(self) -> sa.ColumnElement[datetime]:
        return sa.func.now() + self.lease

    def _peers(self, connection: sa.Connection) -> tuple[Peer, ...]:
        fresh = CONTROLLERS.c.lease_until > sa.func.now() + self.lease * _STILL_FRESH
        expired = CONTROLLERS.c.lease_until < sa.func.now()
        rows = connection.execute(
            sa.select(CONTROLLERS, fresh.label("fresh"), expired.label("expired"))
        )
        return tuple(
            Peer(
                id=ControllerId(row.id),
                process=Owner.model_validate(row.process),
                url=row.url,
                is_expired=row.expired,
                is_fresh=row.fresh,
                is_leaving=row.leaving,
                reaches_storage=row.reaches_storage,
            )
            for row in rows
        )


def _facts(connection: sa.Connection) -> tuple[JobFact, ...]:
    query = sa.select(
        JOBS.c.name,
        JOBS.c.owner,
        JOBS.c.revision,
        JOBS.c.desired,
        STATUSES.c.state,
        STATUSES.c.run,
        STATUSES.c.reset_run,
    ).join(STATUSES, STATUSES.c.job == JOBS.c.name)
    facts = []
    for row in connection.execute(query):
        desired = _DESIRED.validate_python(row.desired)
        status = JobStatus(state=StateName(row.state), run=row.run, reset_run=row.reset_run)
        facts.append(
            JobFact(
                name=JobName(row.name),
                owner=ControllerId(row.owner) if row.owner else None,
                is_active=should_start(desired, status) or desired.wanted is Wanted.DELETED,
                is_running=status.state is StateName.RUNNING,
                revision=row.revision,
            )
        )
    return tuple(facts)


def _free(connection: sa.Connection, owner: ControllerId, *, orphaned: bool) -> None:
    freed = JOBS.update().where(JOBS.c.owner == owner)
    connection.execute(freed.values(owner=None, orphaned=orphaned))


def _is_member(connection: sa.Connection, me: ControllerId) -> bool:
    query = sa.select(CONTROLLERS.c.id).where(CONTROLLERS.c.id == me).with_for_update(read=True)
    return connection.execute(query).first() is not None
