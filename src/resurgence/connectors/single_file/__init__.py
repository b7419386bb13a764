"""`single_file`: one local file of lines, as a source and as an exactly-once sink."""

from __future__ import annotations

from resurgence.connectors.connector import Connector, FormatChoice, SinkRole, SourceRole
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.single_file.sink import (
    SingleFileSink,
    SingleFileSinkOptions,
    hidden_folder,
)
from resurgence.connectors.single_file.source import (
    METADATA,
    SingleFileSource,
    SingleFileSourceOptions,
)
from resurgence.graph.connector_spec import Guarantee

__all__ = [
    "SINGLE_FILE",
    "SingleFileSink",
    "SingleFileSinkOptions",
    "SingleFileSource",
    "SingleFileSourceOptions",
]

SINGLE_FILE = Connector(
    "single_file",
    source=SourceRole(
        make=lambda options, table: SingleFileSource(options, table.reader(options)),
        options=SingleFileSourceOptions,
        formats=FormatChoice(JSON, lambda each: each.reads_lines),
        metadata=METADATA,
    ),
    sink=SinkRole(
        make=lambda options, table: SingleFileSink(options, table.write_settings(), table.format),
        options=SingleFileSinkOptions,
        formats=FormatChoice(JSON, lambda each: each.writes_lines),
        guarantee=Guarantee.EXACTLY_ONCE,
        records_folder=hidden_folder,
    ),
)
