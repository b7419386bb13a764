"""The metadata database: the desired states of jobs, their statuses, and their events.

It is not the source of truth about checkpoints: if it is lost, each job still resumes from object
storage once it is created again. Desired states and statuses have separate writers and separate
tables. `schema` owns the tables; `database` owns connections, deadlines and the translation of
errors.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa
from pydantic import JsonValue, TypeAdapter
from sqlalchemy.dialects import postgresql, sqlite

from resurgence.control.jobs.job_record import DesiredConfig, JobRecord, JobStatus, PipelineRecord
from resurgence.control.store.database import EVENTS_LOCK, FILES_LOCK, Database
from resurgence.control.store.job_owners import JobOwners
from resurgence.control.store.schema import (
    API_KEYS,
    EVENTS,
    INCIDENTS,
    JOBS,
    PROGRESS,
    SERVICE_VALUES,
    STATUSES,
)
from resurgence.control.telemetry.events import Event
from resurgence.errors import JobLost, UserError
from resurgence.ids import ControllerId, JobName
from resurgence.secrets import shown_value
from resurgence.sql.syntax.masking import masked_sql


class NoSuchJob(UserError):
    """There is no job of that name."""

    code = "job.unknown"


class JobExists(UserError):
    """A job of that name exists already."""

    code = "job.exists"


class KeyExists(UserError):
    """An API key of that name exists already."""

    code = "key.exists"


class KeyRole(StrEnum):
    """What an API key allows."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class ApiKey:
    """An API key. Only a digest of the key itself is stored."""

    name: str
    role: KeyRole
    digest: str
    created_at: datetime


@dataclass(frozen=True)
class StoredEvent:
    """An event and its id. The ids of a job's events only increase."""

    id: int
    event: Event


_RECORD = TypeAdapter(JobRecord)
_PIPELINE = TypeAdapter(PipelineRecord)
_DESIRED = TypeAdapter(DesiredConfig)
_STATUS = TypeAdapter(JobStatus)
_KEY = TypeAdapter(ApiKey)
_INSTANT = TypeAdapter(datetime)
_BOTH = sa.select(JOBS, STATUSES).join(STATUSES, STATUSES.c.job == JOBS.c.name)


class MetadataStore:
    """Thread-safe. Every call returns in bounded time, and raises `StorageError` if the database
    fails. A path is a SQLite file, a text is a URL: `sqlite:///…` or `postgresql://…`.
    """

    def __init__(self, location: Path | str) -> None:
        self._database = Database(location)

    @property
    def can_be_shared(self) -> bool:
        """Whether several controllers at a time can use this database."""
        return self._database.can_be_shared

    def owners(self, lease: timedelta) -> JobOwners:
        """Return the owners of jobs, for a database that can be shared."""
        return JobOwners(self._database, lease)

    def listen(self, changed: Callable[[], None], ended: threading.Event) -> None:
        """Call `changed` whenever a request or a controller changed something, until `ended` is
        set. Blocks; raise StorageError if the connection breaks.
        """
        self._database.listen(changed, ended)

    def files_turn(self) -> AbstractContextManager[None]:
        """Exclude other controllers from storing a pipeline that writes files."""
        return self._database.turn(FILES_LOCK)

    def hold(self) -> bool:
        """Become the only service of this database, until it is closed or the process ends. Return
        False if another service holds it.
        """
        return self._database.hold()

    def still_holds(self) -> bool:
        """Return whether this is still the only service. Raise StorageError if that is unknown."""
        return self._database.still_holds()

    def require_writable(self) -> None:
        """Raise StorageError unless a write succeeds. It writes a real value, because a full disk
        or a read-only server fails only when a transaction commits.
        """
        self.put_value("write_check", "ok")

    def create_job(self, record: JobRecord) -> None:
        """Store a new job. Its SQL is stored verbatim, because the job is started from it."""
        with self._database.writing() as connection:
            try:
                connection.execute(JOBS.insert().values(_job_values(record)))
            except sa.exc.IntegrityError as error:
                raise JobExists(
                    f"job '{record.name}' already exists", hint="Choose another name."
                ) from error
            # Rows that a deleted job of that name may have left.
            for table in (STATUSES, PROGRESS, EVENTS, INCIDENTS):
                connection.execute(table.delete().where(table.c.job == record.name))
            connection.execute(STATUSES.insert().values(_status_values(record.name, record.status)))
            self._database.notify(connection)

    def put_job(self, record: JobRecord) -> None:
        """Insert or replace a job; events and incidents stay. For jobs that are not started from
        here: literal secrets are masked.
        """
        record = replace(record, pipeline=_masked(record.pipeline))
        with self._database.writing() as connection:
            _upsert(connection, JOBS.c.name, _job_values(record))
            _upsert(connection, STATUSES.c.job, _status_values(record.name, record.status))

    def jobs(
        self, names: Collection[JobName] | None = None, owner: ControllerId | None = None
    ) -> list[JobRecord]:
        """Return the jobs of these names, or all, by name; with an `owner`, only those that it owns."""
        query = _BOTH if names is None else _BOTH.where(JOBS.c.name.in_(names))
        if owner is not None:
            query = query.where(JOBS.c.owner == owner)
        with self._database.reading() as connection:
            found = [_record(row) for row in connection.execute(query)]
        return sorted(found, key=lambda each: each.name)

    def job(self, name: JobName) -> JobRecord | None:
        """Return the job of that name, if there is one."""
        with self._database.reading() as connection:
            row = connection.execute(_BOTH.where(JOBS.c.name == name)).first()
            return _record(row) if row else None

    def change_desired(
        self,
        name: JobName,
        change: Callable[[JobRecord], DesiredConfig],
        now: datetime,
        pipeline: PipelineRecord | None = None,
    ) -> JobRecord:
        """Change the desired state of a job, and its pipeline if specified. Return the new record.

        Changes of one job are serialised, so that each sees the previous one. If `change` raises,
        nothing is changed. It must not call the store.
        """
        with self._database.writing() as connection:
            row = connection.execute(
                _BOTH.where(JOBS.c.name == name).with_for_update(of=JOBS)
            ).first()
            if row is None:
                raise NoSuchJob(f"job '{name}' does not exist")
            before = _record(row)
            after = replace(
                before,
                desired=change(before),
                pipeline=pipeline or before.pipeline,
                revision=before.revision + 1,
            )
            values = {**_job_values(after), "changed_at": _instant(now)}
            connection.execute(JOBS.update().where(JOBS.c.name == name).values(values))
            self._database.notify(connection)
        return after

    def record_status(
        self, name: JobName, status: JobStatus, owner: ControllerId | None = None
    ) -> None:
        """Store the status of a job; for its supervisor only. No effect if the job was deleted, or
        if the stored status is that of a newer generation, whose owner took the job over. Raise
        JobLost if another controller than `owner` has the job.
        """
        is_superseded = sa.and_(
            STATUSES.c.identity == status.identity, STATUSES.c.generation > status.generation
        )
        with self._database.writing() as connection:
            _require_owned(connection, name, owner)
            connection.execute(
                STATUSES.update()
                .where(STATUSES.c.job == name, ~is_superseded)
                .values(_status_values(name, status))
            )

    def delete_job(self, name: JobName, owner: ControllerId | None = None) -> None:
        """Delete a job and its history. Idempotent. Raise JobLost if another controller than
        `owner` has the job.
        """
        with self._database.writing() as connection:
            _require_owned(connection, name, owner)
            connection.execute(JOBS.delete().where(JOBS.c.name == name))
            for table in (STATUSES, PROGRESS, EVENTS, INCIDENTS):
                connection.execute(table.delete().where(table.c.job == name))
            self._database.notify(connection)

    def record_events(
        self, events: Sequence[tuple[JobName, Event]], owner: ControllerId | None = None
    ) -> None:
        """Store events atomically; with an `owner`, only those of its jobs. Incidents are also
        stored permanently.
        """
        if not events:
            return
        with self._database.writing() as connection:
            if owner is not None:
                mine = _owned(connection, {job for job, _ in events}, owner)
                events = [each for each in events if each[0] in mine]
            happened = [
                {"job": job, "at": each["at"], "event": each["event"], "facts": each}
                for job, each in events
            ]
            incidents = [
                {"job": job, "detected_at": each["detected_at"], "facts": each}
                for job, each in events
                if each["event"] == "incident"
            ]
            # Without it a lower id could become visible after a higher one, and be missed.
            self._database.take_turns(connection, EVENTS_LOCK)
            if happened:
                connection.execute(EVENTS.insert(), happened)
            if incidents:
                connection.execute(INCIDENTS.insert(), incidents)

    def progress(self, job: JobName | None = None) -> dict[JobName, dict[str, JsonValue]]:
        """Return the progress that owners have stored, of one job or of all."""
        query = sa.select(PROGRESS)
        if job is not None:
            query = query.where(PROGRESS.c.job == job)
        with self._database.reading() as connection:
            return {JobName(row.job): row.facts for row in connection.execute(query)}

    def events(self, job: JobName, *, after: int = 0, limit: int = 1000) -> list[StoredEvent]:
        """Return the first events of a job with ids above `after`, in order."""
        query = (
            sa.select(EVENTS.c.id, EVENTS.c.facts)
            .where(EVENTS.c.job == job, EVENTS.c.id > after)
            .order_by(EVENTS.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [StoredEvent(row.id, row.facts) for row in connection.execute(query)]

    def newest_events(
        self, job: JobName | None, *, before: int = 0, limit: int = 100, kind: str, text: str
    ) -> list[tuple[JobName, StoredEvent]]:
        """Return the newest events, newest first, of one job or of all: those with ids below
        `before`, if it is not 0, of a kind, and with a text in their facts.
        """
        query = sa.select(EVENTS.c.id, EVENTS.c.job, EVENTS.c.facts)
        if job is not None:
            query = query.where(EVENTS.c.job == job)
        if before:
            query = query.where(EVENTS.c.id < before)
        if kind:
            query = query.where(EVENTS.c.event == kind)
        if text:
            as_text = sa.type_coerce(EVENTS.c.facts, sa.String)
            query = query.where(as_text.icontains(text, autoescape=True))
        query = query.order_by(EVENTS.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return [
                (JobName(row.job), StoredEvent(row.id, row.facts))
                for row in connection.execute(query)
            ]

    def last_event_id(self, job: JobName | None = None) -> int:
        """Return the id of the newest event, of one job or of all; 0 if there is none."""
        query = sa.select(sa.func.max(EVENTS.c.id))
        if job is not None:
            query = query.where(EVENTS.c.job == job)
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one() or 0

    def news(self, jobs: Collection[JobName], after: int) -> tuple[int, set[JobName]]:
        """Return the id of the newest event, and which of these jobs have events with ids above
        `after` or do not exist any more.
        """
        newest = (
            sa.select(EVENTS.c.job, sa.func.max(EVENTS.c.id).label("last"))
            .where(EVENTS.c.id > after)
            .group_by(EVENTS.c.job)
        )
        with self._database.reading() as connection:
            existing = set(
                connection.execute(sa.select(JOBS.c.name).where(JOBS.c.name.in_(jobs))).scalars()
            )
            last = {row.job: row.last for row in connection.execute(newest)}
        changed = {each for each in jobs if each in last or each not in existing}
        return max([after, *last.values()]), changed

    def incidents(
        self, job: JobName | None = None, limit: int = 1000
    ) -> list[dict[str, JsonValue]]:
        """Return the newest incidents, of one job or of all, oldest first."""
        query = sa.select(INCIDENTS.c.job, INCIDENTS.c.facts)
        if job is not None:
            query = query.where(INCIDENTS.c.job == job)
        query = query.order_by(INCIDENTS.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            found = [{**row.facts, "job": row.job} for row in connection.execute(query)]
        return found[::-1]

    def prune(self, keep_events: int, jobs: Collection[JobName]) -> None:
        """Delete all but the newest events of each of these jobs. Incidents stay."""
        for job in jobs:
            oldest_first = sa.select(EVENTS.c.id).where(EVENTS.c.job == job)
            newest_to_go = (
                oldest_first.order_by(EVENTS.c.id.desc()).offset(keep_events).limit(1)
            ).scalar_subquery()
            with self._database.writing() as connection:
                connection.execute(
                    EVENTS.delete().where(EVENTS.c.job == job, EVENTS.c.id <= newest_to_go)
                )

    def add_key(self, key: ApiKey) -> None:
        """Store an API key."""
        with self._database.writing() as connection:
            try:
                connection.execute(API_KEYS.insert().values(_KEY.dump_python(key, mode="json")))
            except sa.exc.IntegrityError as error:
                raise KeyExists(
                    f"key '{key.name}' already exists",
                    hint="Choose another name, or remove that one first.",
                ) from error

    def put_key(self, key: ApiKey) -> None:
        """Store an API key, replacing the previous one of that name."""
        with self._database.writing() as connection:
            _upsert(connection, API_KEYS.c.name, _KEY.dump_python(key, mode="json"))

    def keys(self) -> list[ApiKey]:
        """Return all keys, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(API_KEYS)).mappings()
            found = [_KEY.validate_python(dict(row)) for row in rows]
        return sorted(found, key=lambda each: each.name)

    def remove_key(self, name: str) -> bool:
        """Remove a key. Return whether there was one."""
        with self._database.writing() as connection:
            done = connection.execute(API_KEYS.delete().where(API_KEYS.c.name == name))
        return done.rowcount > 0

    def value(self, key: str) -> str | None:
        """Return a value that the service has stored for itself."""
        query = sa.select(SERVICE_VALUES.c.value).where(SERVICE_VALUES.c.name == key)
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one_or_none()

    def service_id(self) -> str:
        """Return the id that all processes serving this database share."""
        with self._database.writing() as connection:
            row = {"name": "service_id", "value": uuid.uuid4().hex}
            make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            connection.execute(make(SERVICE_VALUES).values(row).on_conflict_do_nothing())
            query = sa.select(SERVICE_VALUES.c.value).where(SERVICE_VALUES.c.name == "service_id")
            return str(connection.execute(query).scalar_one())

    def put_value(self, key: str, value: str) -> None:
        """Store a value of the service, replacing the previous one."""
        with self._database.writing() as connection:
            _upsert(connection, SERVICE_VALUES.c.name, {"name": key, "value": value})

    def close(self) -> None:
        self._database.close()


def stored_sql(path: Path, job: JobName) -> str | None:
    """Return the last pipeline of a job, with `***` for literal secrets; None if there is no
    database or no such job.
    """
    if not path.is_file():
        return None
    store = MetadataStore(path)
    try:
        record = store.job(job)
    finally:
        store.close()
    return record.pipeline.sql if record else None


def _owned(
    connection: sa.Connection, names: Collection[JobName], owner: ControllerId
) -> frozenset[str]:
    """Return which of these jobs the controller owns. Until the transaction ends, it loses none."""
    query = sa.select(JOBS.c.name).where(JOBS.c.name.in_(names), JOBS.c.owner == owner)
    return frozenset(connection.execute(query.with_for_update(read=True)).scalars())


def _require_owned(connection: sa.Connection, name: JobName, owner: ControllerId | None) -> None:
    """Raise JobLost if the job has another owner. Until the transaction ends, it gets none."""
    if owner is None:
        return
    query = sa.select(JOBS.c.owner).where(JOBS.c.name == name).with_for_update(read=True)
    row = connection.execute(query).first()
    if row is not None and row.owner != owner:
        raise JobLost(f"job '{name}' is owned by another controller")


def _upsert(
    connection: sa.Connection, key: sa.Column[str], values: Mapping[str, JsonValue]
) -> None:
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(key.table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=values))


def _job_values(record: JobRecord) -> dict[str, JsonValue]:
    return {
        "name": record.name,
        **_PIPELINE.dump_python(record.pipeline, mode="json"),
        "desired": _DESIRED.dump_python(record.desired, mode="json"),
        "created_at": _instant(record.created_at),
        "changed_at": _instant(record.created_at),
        "revision": record.revision,
    }


def _status_values(job: JobName, status: JobStatus) -> dict[str, JsonValue]:
    # Causes quote foreign errors, which may contain characters that no database accepts.
    cause = status.cause.replace("\0", "\ufffd").encode(errors="replace").decode()
    return {"job": job, **_STATUS.dump_python(replace(status, cause=cause), mode="json")}


def _record(row: sa.Row[tuple[object, ...]]) -> JobRecord:
    found = row._mapping
    return _RECORD.validate_python(
        {
            "name": found[JOBS.c.name],
            "pipeline": {
                "sql": found[JOBS.c.sql],
                "state_url": found[JOBS.c.state_url],
                "functions": found[JOBS.c.functions],
                "settings": found[JOBS.c.settings],
            },
            "desired": found[JOBS.c.desired],
            "status": {each.name: found[each] for each in STATUSES.c if each.name != "job"},
            "created_at": found[JOBS.c.created_at],
            "revision": found[JOBS.c.revision],
        }
    )


def _masked(pipeline: PipelineRecord) -> PipelineRecord:
    return replace(
        pipeline,
        sql=masked_sql(pipeline.sql),
        state_url=shown_value("", pipeline.state_url),
        settings={name: shown_value(name, text) for name, text in pipeline.settings.items()},
    )


def _instant(at: datetime) -> str:
    return str(_INSTANT.dump_python(at, mode="json"))
