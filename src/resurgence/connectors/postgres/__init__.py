"""`postgres`: tables of a Postgres database, as lookup tables and as exactly-once sinks."""

from __future__ import annotations

from resurgence.connectors.connector import Connector, LookupRole, SinkRole
from resurgence.connectors.postgres.location import PostgresOptions
from resurgence.connectors.postgres.lookup import PostgresLookup
from resurgence.connectors.postgres.sink import PostgresSink, PostgresSinkOptions
from resurgence.graph.connector_spec import Guarantee

__all__ = ["POSTGRES", "PostgresLookup", "PostgresSink", "PostgresSinkOptions"]

POSTGRES = Connector(
    "postgres",
    sink=SinkRole(
        make=PostgresSink,
        options=PostgresSinkOptions,
        guarantee=Guarantee.EXACTLY_ONCE,
        upserts=True,
    ),
    lookup=LookupRole(
        make=lambda options, table: PostgresLookup(table.table, options, table.columns),
        options=PostgresOptions,
    ),
)
