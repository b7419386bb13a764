"""The metadata database: jobs, events and incidents, for people to look at.

It holds no truth about checkpoints: it can be lost, and the job goes on from object storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.dialects.sqlite import insert

from resurgence.clock import instant_text
from resurgence.control.events import Event
from resurgence.errors import StorageError
from resurgence.ids import JobName
from resurgence.sql.masking import masked_sql

_METADATA = sa.MetaData()
_JOBS = sa.Table(
    "jobs",
    _METADATA,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("identity", sa.String),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("cause", sa.String, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("sql", sa.String, nullable=False),
    sa.Column("changed_at", sa.String, nullable=False),
)
_EVENTS = sa.Table(
    "events",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("at", sa.String, nullable=False),
    sa.Column("event", sa.String, nullable=False),
    sa.Column("facts", sa.String, nullable=False),
)
_INCIDENTS = sa.Table(
    "incidents",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("detected_at", sa.String, nullable=False),
    sa.Column("facts", sa.String, nullable=False),
)


class MetadataStore:
    """SQLite in one file."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 10})
            with self._engine.begin() as connection:
                connection.execute(sa.text("PRAGMA journal_mode=WAL"))
                _METADATA.create_all(connection)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise StorageError(
                f"cannot open the metadata database {path}: {error}",
                hint="it holds no state: move it away and a new one is made",
            ) from error

    def record_state(
        self,
        job: JobName,
        *,
        identity: str,
        state: str,
        cause: str,
        generation: int,
        sql: str,
        now: datetime,
    ) -> None:
        """The job's actual status. Literal secrets of the pipeline are not kept."""
        values = {
            "identity": identity,
            "state": state,
            "cause": cause,
            "generation": generation,
            "sql": masked_sql(sql),
            "changed_at": instant_text(now),
        }
        statement = insert(_JOBS).values(name=job, **values)
        with self._translated() as connection:
            connection.execute(
                statement.on_conflict_do_update(index_elements=["name"], set_=values)
            )

    def record_event(self, job: JobName, event: Event) -> None:
        """Something that happened."""
        with self._translated() as connection:
            connection.execute(
                _EVENTS.insert().values(
                    job=job, at=event["at"], event=event["event"], facts=json.dumps(event)
                )
            )
            if event["event"] == "incident":
                connection.execute(
                    _INCIDENTS.insert().values(
                        job=job, detected_at=event["detected_at"], facts=json.dumps(event)
                    )
                )

    def incidents(self, job: JobName) -> list[dict[str, JsonValue]]:
        """The job's incidents, oldest first."""
        query = (
            sa.select(_INCIDENTS.c.facts).where(_INCIDENTS.c.job == job).order_by(_INCIDENTS.c.id)
        )
        with self._translated() as connection:
            return [json.loads(row.facts) for row in connection.execute(query)]

    def state(self, job: JobName) -> str | None:
        """The state that the job was last seen in."""
        with self._translated() as connection:
            found = connection.execute(sa.select(_JOBS.c.state).where(_JOBS.c.name == job)).first()
        return str(found.state) if found else None

    def sql(self, job: JobName) -> str | None:
        """The pipeline that the job ran last, with `***` for literal secrets."""
        with self._translated() as connection:
            found = connection.execute(sa.select(_JOBS.c.sql).where(_JOBS.c.name == job)).first()
        return str(found.sql) if found else None

    @contextmanager
    def _translated(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise StorageError(f"the metadata database fails: {error}") from error

    def close(self) -> None:
        self._engine.dispose()


def stored_sql(path: Path, job: JobName) -> str | None:
    """The pipeline that a job ran last, with `***` for literal secrets, if the database is there
    and knows it.
    """
    if not path.is_file():
        return None
    store = MetadataStore(path)
    try:
        return store.sql(job)
    finally:
        store.close()
