"""The tables of the metadata database.

They are created in one transaction by one process; others wait for it. Structured values are JSON
text and instants are ISO 8601 text, so that any tool can read them.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue

from resurgence.errors import ConfigError


class Json(sa.TypeDecorator[JsonValue]):
    """A JSON value, stored as text; None is NULL."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: JsonValue, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> JsonValue:
        found: JsonValue = None if value is None else json.loads(value)
        return found


SCHEMA_VERSION = 3

_TABLES = sa.MetaData()


def _required(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.String) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String, primary_key=True)


def _own_id() -> sa.Column[int]:
    """A column of ids that the database assigns, and never reuses after a deletion."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column("id", number, sa.Identity(), primary_key=True)


JOBS = sa.Table(
    "jobs",
    _TABLES,
    _key("name"),
    _required("sql"),
    _required("state_url"),
    sa.Column("functions", sa.String),
    _required("settings", Json),
    _required("desired", Json),
    _required("created_at"),
    _required("changed_at"),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("owner", sa.String),
    sa.Column("orphaned", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("jobs_of_owner", "owner"),
)
STATUSES = sa.Table(
    "statuses",
    _TABLES,
    _key("job"),
    _required("state"),
    _required("cause"),
    _required("run", sa.BigInteger),
    _required("reset_run", sa.BigInteger),
    _required("parallelism", sa.BigInteger),
    _required("generation", sa.BigInteger),
    _required("identity"),
    sa.Column("worker", Json),
    sa.Column("failure", Json),
    sa.Column("history", Json),
    sa.Column("changed_at", sa.String),
)
PROGRESS = sa.Table("progress", _TABLES, _key("job"), _required("facts", Json))
CONTROLLERS = sa.Table(
    "controllers",
    _TABLES,
    _key("id"),
    _required("process", Json),
    _required("url"),
    _required("leaving", sa.Boolean),
    _required("reaches_storage", sa.Boolean),
    # Not text: only the database's clock judges it.
    sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
)
EVENTS = sa.Table(
    "events",
    _TABLES,
    _own_id(),
    _required("job"),
    _required("at"),
    _required("event"),
    _required("facts", Json),
    sa.Index("events_of_job", "job", "id"),
    sa.Index("events_of_kind", "event", "id"),
    sa.Index("events_of_job_and_kind", "job", "event", "id"),
    sqlite_autoincrement=True,
)
INCIDENTS = sa.Table(
    "incidents",
    _TABLES,
    _own_id(),
    _required("job"),
    _required("detected_at"),
    _required("facts", Json),
    sa.Index("incidents_of_job", "job", "id"),
    sqlite_autoincrement=True,
)
API_KEYS = sa.Table(
    "api_keys",
    _TABLES,
    _key("name"),
    _required("role"),
    _required("digest"),
    _required("created_at"),
)
SERVICE_VALUES = sa.Table("service_values", _TABLES, _key("name"), _required("value"))
_VERSION = sa.Table("schema_version", _TABLES, _required("version", sa.Integer))


def is_current(connection: sa.Connection) -> bool:
    """Return whether the tables exist. Raise ConfigError if they belong to another release or to
    another application.
    """
    tables = sa.inspect(connection)
    if not tables.has_table(_VERSION.name):
        if tables.has_table(JOBS.name):
            raise ConfigError(
                "the metadata database has a table 'jobs' of another application",
                hint="Use a separate database.",
            )
        return False
    version = connection.execute(sa.select(_VERSION.c.version)).scalar_one()
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"the metadata database has schema version {version}, but this release requires "
            f"{SCHEMA_VERSION}",
            hint="Use the release that created it, or another database.",
        )
    return True


def create_tables(connection: sa.Connection) -> None:
    """Create the tables if they are missing. The caller's transaction excludes all others."""
    if not is_current(connection):
        _TABLES.create_all(connection)
        connection.execute(_VERSION.insert().values(version=SCHEMA_VERSION))
