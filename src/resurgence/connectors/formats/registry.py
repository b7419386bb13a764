"""Every format by name: the built-in ones, and those that installed packages add under the entry
point group `resurgence.formats`.
"""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.connectors.formats.contract import Format
from resurgence.connectors.formats.debezium_json import DEBEZIUM_JSON
from resurgence.connectors.formats.json_lines import JSON
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.plugins import FORMAT_GROUP, PluginRegistry

FORMATS: Mapping[str, Format] = PluginRegistry(FORMAT_GROUP, Format, (JSON, DEBEZIUM_JSON, PARQUET))
