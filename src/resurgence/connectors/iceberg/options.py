"""The options of Iceberg tables: their catalog, and what each role adds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, SecretStr

from resurgence.connectors.formats.options import SourceOptions
from resurgence.connectors.iceberg.catalogs.catalog import CatalogType, TablePlace
from resurgence.connectors.iceberg.partitioning import PARTITIONING, PARTITIONING_HINT
from resurgence.connectors.lakehouse.options import LakehouseSinkOptions
from resurgence.errors import ConfigError
from resurgence.graph.table_options import TableOptions, option
from resurgence.storage.object_store import storage_url

_OLDEST_MILLIS = 10**11
"""Smaller numbers are no instants in milliseconds, but seconds by mistake."""


class CatalogOptions(TableOptions):
    """A table in a catalog."""

    namespace: str = option("the namespace of the table; its levels are separated by dots")
    table_name: str = option("the name of the table")
    catalog_type: CatalogType = option(
        "the kind of the catalog: `rest` (default), or `sql` for a database that SQLAlchemy can"
        " connect to",
        default=CatalogType.REST,
        name="catalog.type",
    )
    rest_url: str | None = option(
        "the URL of a REST catalog; required for `rest`", default=None, name="catalog.rest.url"
    )
    rest_token: SecretStr | None = option(
        "the bearer token of a REST catalog", default=None, name="catalog.rest.token"
    )
    sql_uri: str | None = option(
        "the database of a SQL catalog as in `sqlite:////data/catalog.db` or"
        " `postgresql+psycopg://user:${env:PASSWORD}@host/database`; required for `sql`",
        default=None,
        name="catalog.sql.uri",
    )
    catalog_name: str = option(
        "the name of the catalog, under which a SQL catalog lists its tables; by default `default`",
        default="default",
        name="catalog.name",
    )
    warehouse: str | None = option(
        "the folder or storage URL under which a SQL catalog creates tables, or the name of a"
        " warehouse that the REST catalog has",
        default=None,
        name="catalog.warehouse",
    )

    def place(self) -> TablePlace:
        """Return the table. Raise ConfigError if the options of its catalog do not match its
        kind.
        """
        by_kind = {
            CatalogType.REST: ("catalog.rest.url", self.rest_url),
            CatalogType.SQL: ("catalog.sql.uri", self.sql_uri),
        }
        name, uri = by_kind.pop(self.catalog_type)
        if uri is None:
            raise ConfigError(
                f"a catalog of type '{self.catalog_type.value}' requires the option '{name}'",
                hint=f"Add '{name}' = '...' to WITH (...), or change 'catalog.type'.",
            )
        for other, value in by_kind.values():
            if value is not None:
                raise ConfigError(
                    f"the option '{other}' does not apply to a catalog of type"
                    f" '{self.catalog_type.value}'",
                    hint="Remove it, or change 'catalog.type'.",
                )
        warehouse = self.warehouse
        if warehouse is not None and self.catalog_type is CatalogType.SQL:
            warehouse = storage_url(warehouse)
        return TablePlace(
            kind=self.catalog_type,
            uri=uri,
            namespace=self.namespace,
            name=self.table_name,
            warehouse=warehouse,
            token=self.rest_token.get_secret_value() if self.rest_token else None,
            catalog_name=self.catalog_name,
        )


class StartKind(StrEnum):
    """The kinds of starts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    SNAPSHOT = "snapshot"


class StopAt(StrEnum):
    """Where a bounded source ends."""

    LATEST = "latest"


@dataclass(frozen=True)
class Start:
    """Where a new job begins to read."""

    kind: StartKind
    value: int = 0
    """For TIMESTAMP: milliseconds since 1970. For SNAPSHOT: its id."""

    def __str__(self) -> str:
        return self.kind.value


def parse_start(value: object) -> Start:
    """Parse the option 'source.offset'. Raise ValueError if it is none of the kinds."""
    if isinstance(value, Start):
        return value
    text = str(value).strip()
    if text in (StartKind.EARLIEST, StartKind.LATEST):
        return Start(StartKind(text))
    if text.startswith("{"):
        found = json.loads(text)
        if [*found] != ["snapshot"] or type(found["snapshot"]) is not int:
            raise ValueError(f"{text} names no snapshot")
        return Start(StartKind.SNAPSHOT, found["snapshot"])
    if text.isdigit():
        if int(text) < _OLDEST_MILLIS:
            raise ValueError(f"{text} is not an instant in milliseconds")
        return Start(StartKind.TIMESTAMP, int(text))
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Start(StartKind.TIMESTAMP, round(at.timestamp() * 1000))


class IcebergSourceOptions(CatalogOptions, SourceOptions):
    """The options of an Iceberg source."""

    offset: Annotated[Start, BeforeValidator(parse_start)] = option(
        "where a new job begins: `latest` (default): with what is appended from now on. `earliest`:"
        " with all rows that the table has. An instant, as in `2024-01-01T00:00:00Z` or in"
        " milliseconds since 1970: with what was appended at or after it. A snapshot, as in"
        ' `{"snapshot": 123}`: with what that snapshot appended',
        default=Start(StartKind.LATEST),
        name="source.offset",
        hint="Use earliest, latest, an instant such as 2024-01-01T00:00:00Z or milliseconds since"
        """ 1970, or a snapshot as in '{"snapshot": 123}'.""",
    )
    stop_at: StopAt | None = option(
        "`latest`: the source ends at the snapshot that was the latest when the job first started;"
        " without it, it is unbounded",
        default=None,
        name="source.stop_at",
    )


class IcebergSinkOptions(CatalogOptions, LakehouseSinkOptions):
    """The options of an Iceberg sink."""

    partitioned_by: str | None = option(
        "how a new table is partitioned: columns or transforms of them, separated by commas, as in"
        " `day(at), bucket(16, id), city`. The transforms are `bucket(n, column)`,"
        " `truncate(n, column)`, `year(column)`, `month(column)`, `day(column)` and `hour(column)`."
        " A table that exists is written with its own partitions",
        default=None,
        name=PARTITIONING,
        hint=PARTITIONING_HINT,
    )


class IcebergLookupOptions(CatalogOptions):
    """The options of an Iceberg lookup table."""
