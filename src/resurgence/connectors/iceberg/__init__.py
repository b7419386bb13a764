"""`iceberg`: tables of Iceberg catalogs, as sources, exactly-once sinks and lookup tables."""

from __future__ import annotations

from resurgence.connectors.connector import (
    Connector,
    FormatChoice,
    LookupRole,
    SinkRole,
    SourceRole,
)
from resurgence.connectors.iceberg.formats import CHANGE_DATA_FEED, ROWS
from resurgence.connectors.iceberg.options import (
    IcebergLookupOptions,
    IcebergSinkOptions,
    IcebergSourceOptions,
)
from resurgence.connectors.iceberg.reading.lookup import IcebergLookup
from resurgence.connectors.iceberg.reading.source import IcebergSource
from resurgence.connectors.iceberg.writing.sink import IcebergSink
from resurgence.graph.connector_spec import Guarantee

__all__ = ["ICEBERG", "IcebergLookup", "IcebergSink", "IcebergSource"]

ICEBERG = Connector(
    "iceberg",
    source=SourceRole(
        make=IcebergSource,
        options=IcebergSourceOptions,
        formats=FormatChoice(ROWS, lambda _other: False, own=(CHANGE_DATA_FEED,)),
    ),
    sink=SinkRole(
        make=IcebergSink,
        options=IcebergSinkOptions,
        guarantee=Guarantee.EXACTLY_ONCE,
        upserts=True,
        appends_or_upserts=True,
    ),
    lookup=LookupRole(
        make=lambda options, table: IcebergLookup(table.table, options, table.columns),
        options=IcebergLookupOptions,
    ),
)
