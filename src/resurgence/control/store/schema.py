"""The tables of the metadata database, and how a database of an older release becomes one of these.

Steps are literal and never changed once released; a new shape of the tables is a new step at the
end. All that are missing are taken in one transaction, by one process: the others wait for it.
Structured values are JSON text, which any tool can read; so are instants, as ISO 8601.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from pydantic import JsonValue

from resurgence.errors import ConfigError


class Json(sa.TypeDecorator[JsonValue]):
    """A JSON value as text; None is NULL."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: JsonValue, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> JsonValue:
        found: JsonValue = None if value is None else json.loads(value)
        return found


_TABLES = sa.MetaData()
JOBS = sa.Table(
    "jobs",
    _TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("sql", sa.String),
    sa.Column("state_url", sa.String),
    sa.Column("functions", sa.String),
    sa.Column("settings", Json),
    sa.Column("desired", Json),
    sa.Column("created_at", sa.String),
    sa.Column("changed_at", sa.String),
)
STATUSES = sa.Table(
    "statuses",
    _TABLES,
    sa.Column("job", sa.String, primary_key=True),
    sa.Column("state", sa.String),
    sa.Column("cause", sa.String),
    sa.Column("run", sa.BigInteger),
    sa.Column("reset_run", sa.BigInteger),
    sa.Column("parallelism", sa.BigInteger),
    sa.Column("generation", sa.BigInteger),
    sa.Column("identity", sa.String),
    sa.Column("worker", Json),
    sa.Column("failure", Json),
    sa.Column("history", Json),
    sa.Column("changed_at", sa.String),
)
EVENTS = sa.Table(
    "events",
    _TABLES,
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("job", sa.String),
    sa.Column("at", sa.String),
    sa.Column("event", sa.String),
    sa.Column("facts", Json),
)
INCIDENTS = sa.Table(
    "incidents",
    _TABLES,
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("job", sa.String),
    sa.Column("detected_at", sa.String),
    sa.Column("facts", Json),
)
API_KEYS = sa.Table(
    "api_keys",
    _TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("role", sa.String),
    sa.Column("digest", sa.String),
    sa.Column("created_at", sa.String),
)
SERVICE_VALUES = sa.Table(
    "service_values",
    _TABLES,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.String),
)

STEPS: tuple[tuple[str, ...], ...] = (
    (  # 1: what `resurgence run` made before databases had a version
        """CREATE TABLE jobs (
            name VARCHAR NOT NULL PRIMARY KEY, identity VARCHAR, state VARCHAR NOT NULL,
            cause VARCHAR NOT NULL, generation INTEGER NOT NULL, sql VARCHAR NOT NULL,
            changed_at VARCHAR NOT NULL)""",
        """CREATE TABLE events (
            id INTEGER NOT NULL PRIMARY KEY, job VARCHAR NOT NULL, at VARCHAR NOT NULL,
            event VARCHAR NOT NULL, facts VARCHAR NOT NULL)""",
        "CREATE INDEX ix_events_job ON events (job)",
        """CREATE TABLE incidents (
            id INTEGER NOT NULL PRIMARY KEY, job VARCHAR NOT NULL, detected_at VARCHAR NOT NULL,
            facts VARCHAR NOT NULL)""",
        "CREATE INDEX ix_incidents_job ON incidents (job)",
    ),
    (  # 2: what is wanted apart from what is; ids that are never used again; keys of the API
        "ALTER TABLE jobs RENAME TO jobs_1",
        "ALTER TABLE events RENAME TO events_1",
        "ALTER TABLE incidents RENAME TO incidents_1",
        """CREATE TABLE jobs (
            name VARCHAR NOT NULL PRIMARY KEY, sql VARCHAR NOT NULL, state_url VARCHAR NOT NULL,
            functions VARCHAR, settings VARCHAR NOT NULL, desired VARCHAR NOT NULL,
            created_at VARCHAR NOT NULL, changed_at VARCHAR NOT NULL)""",
        """INSERT INTO jobs
            SELECT name, sql, '', NULL, '{}', '{"parallelism": 1, "wanted": "stopped"}',
                changed_at, changed_at
            FROM jobs_1""",
        """CREATE TABLE statuses (
            job VARCHAR NOT NULL PRIMARY KEY, state VARCHAR NOT NULL, cause VARCHAR NOT NULL,
            run BIGINT NOT NULL, reset_run BIGINT NOT NULL, parallelism BIGINT NOT NULL,
            generation BIGINT NOT NULL, identity VARCHAR NOT NULL, worker VARCHAR, failure VARCHAR, history VARCHAR,
            changed_at VARCHAR)""",
        """INSERT INTO statuses
            SELECT name, state, cause, 1, 0, 0, generation, COALESCE(identity, ''), NULL, NULL, NULL,
                changed_at
            FROM jobs_1""",
        """CREATE TABLE events (
            id <own id>, job VARCHAR NOT NULL, at VARCHAR NOT NULL, event VARCHAR NOT NULL,
            facts VARCHAR NOT NULL)""",
        """INSERT INTO events (job, at, event, facts)
            SELECT job, at, event, facts FROM events_1 ORDER BY id""",
        "CREATE INDEX events_of_job ON events (job, id)",
        """CREATE TABLE incidents (
            id <own id>, job VARCHAR NOT NULL, detected_at VARCHAR NOT NULL,
            facts VARCHAR NOT NULL)""",
        """INSERT INTO incidents (job, detected_at, facts)
            SELECT job, detected_at, facts FROM incidents_1 ORDER BY id""",
        "CREATE INDEX incidents_of_job ON incidents (job, id)",
        "DROP TABLE jobs_1",
        "DROP TABLE events_1",
        "DROP TABLE incidents_1",
        """CREATE TABLE api_keys (
            name VARCHAR NOT NULL PRIMARY KEY, role VARCHAR NOT NULL, digest VARCHAR NOT NULL,
            created_at VARCHAR NOT NULL)""",
        """CREATE TABLE service_values (
            name VARCHAR NOT NULL PRIMARY KEY, value VARCHAR NOT NULL)""",
    ),
)

_OWN_ID = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
}
_FIRST_COLUMNS = {"name", "identity", "state", "cause", "generation", "sql", "changed_at"}


def is_current(connection: sa.Connection) -> bool:
    """Whether no step is missing; a ConfigError if the database is of a newer release."""
    version = _version(connection)
    if version > len(STEPS):
        raise ConfigError(
            f"the metadata database was written by a newer release: its tables have version "
            f"{version}, and this release knows {len(STEPS)}",
            hint="use that release, or another database",
        )
    return version == len(STEPS)


def upgrade(connection: sa.Connection) -> None:
    """Take the steps that are missing. The caller's transaction keeps all others out."""
    if is_current(connection):
        return
    version = _version(connection)
    own_id = _OWN_ID[connection.dialect.name]
    for step in STEPS[version:]:
        for statement in step:
            connection.exec_driver_sql(statement.replace("<own id>", own_id))
    connection.exec_driver_sql("DROP TABLE IF EXISTS schema_version")
    connection.exec_driver_sql("CREATE TABLE schema_version (version INTEGER NOT NULL)")
    connection.exec_driver_sql(f"INSERT INTO schema_version VALUES ({len(STEPS)})")


def _version(connection: sa.Connection) -> int:
    """How many steps the database has taken."""
    tables = sa.inspect(connection)
    if tables.has_table("schema_version"):
        return int(connection.exec_driver_sql("SELECT version FROM schema_version").scalar_one())
    if not tables.has_table("jobs"):
        return 0
    if {each["name"] for each in tables.get_columns("jobs")} != _FIRST_COLUMNS:
        raise ConfigError(
            "the metadata database holds a table 'jobs' of something else",
            hint="give it a database of its own",
        )
    return 1
