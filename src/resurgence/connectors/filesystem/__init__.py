"""The connector `filesystem`: folders of files, on a disk or in an object store."""

from __future__ import annotations

from resurgence.connectors.connector import Connector, FormatChoice, LookupRole, SinkRole
from resurgence.connectors.directory import DIRECTORY_SOURCE
from resurgence.connectors.filesystem.options import TIME_PATTERN, FilesystemSinkOptions
from resurgence.connectors.filesystem.sink import FilesystemSink
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.connectors.lookups.files import FilesystemLookup, FilesystemLookupOptions
from resurgence.graph.connector_spec import Guarantee, Role

__all__ = ["FILESYSTEM", "FilesystemSink", "FilesystemSinkOptions"]

FILESYSTEM = Connector(
    "filesystem",
    source=DIRECTORY_SOURCE,
    untyped_role=Role.SINK,
    sink=SinkRole(
        make=lambda options, table: FilesystemSink(
            options,
            table.write_settings(),
            table.format,
            [each.name for each in table.columns] or None,
        ),
        options=FilesystemSinkOptions,
        event_time_option=TIME_PATTERN,
        formats=FormatChoice(PARQUET, lambda each: each.writes_files),
        guarantee=Guarantee.EXACTLY_ONCE,
    ),
    lookup=LookupRole(
        make=lambda options, table: FilesystemLookup(table.table, options, table.columns),
        options=FilesystemLookupOptions,
        formats=FormatChoice(PARQUET, lambda each: False),
    ),
)
