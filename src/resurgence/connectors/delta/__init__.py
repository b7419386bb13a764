"""`delta`: tables in Delta Lake's format, as sources, exactly-once sinks and lookup tables."""

from __future__ import annotations

from resurgence.connectors.connector import (
    Connector,
    FormatChoice,
    LookupRole,
    SinkRole,
    SourceRole,
)
from resurgence.connectors.delta.formats import CHANGE_DATA_FEED, ROWS
from resurgence.connectors.delta.reading.lookup import DeltaLookup, DeltaLookupOptions
from resurgence.connectors.delta.reading.source import DeltaSource
from resurgence.connectors.delta.reading.source_options import DeltaSourceOptions
from resurgence.connectors.delta.writing.sink import DeltaSink
from resurgence.connectors.delta.writing.sink_options import DeltaSinkOptions
from resurgence.graph.connector_spec import Guarantee

__all__ = [
    "DELTA",
    "DeltaLookup",
    "DeltaLookupOptions",
    "DeltaSink",
    "DeltaSinkOptions",
    "DeltaSource",
    "DeltaSourceOptions",
]

DELTA = Connector(
    "delta",
    source=SourceRole(
        make=DeltaSource,
        options=DeltaSourceOptions,
        formats=FormatChoice(ROWS, lambda _other: False, own=(CHANGE_DATA_FEED,)),
    ),
    sink=SinkRole(
        make=DeltaSink,
        options=DeltaSinkOptions,
        guarantee=Guarantee.EXACTLY_ONCE,
        upserts=True,
        appends_or_upserts=True,
    ),
    lookup=LookupRole(
        make=lambda options, table: DeltaLookup(table.table, options, table.columns),
        options=DeltaLookupOptions,
    ),
)
