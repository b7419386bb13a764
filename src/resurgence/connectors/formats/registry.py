"""Every format by name: the built-in ones, and those that installed packages add under the entry
point group `resurgence.formats`.
"""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.connectors.formats.avro.datums import AVRO
from resurgence.connectors.formats.contract import Format
from resurgence.connectors.formats.csv_text import CSV
from resurgence.connectors.formats.debezium.events import DEBEZIUM_JSON
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.connectors.formats.protobuf.records import PROTOBUF
from resurgence.connectors.formats.raw_values import RAW_BYTES, RAW_STRING
from resurgence.plugins import FORMAT_GROUP, PluginRegistry

FORMATS: Mapping[str, Format] = PluginRegistry(
    FORMAT_GROUP, Format, (JSON, DEBEZIUM_JSON, CSV, RAW_STRING, RAW_BYTES, AVRO, PROTOBUF, PARQUET)
)
