"""Every format by name."""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.connectors.formats.contract import Format
from resurgence.connectors.formats.debezium_json import DEBEZIUM_JSON
from resurgence.connectors.formats.json_lines import JSON
from resurgence.connectors.formats.parquet_files import PARQUET

FORMATS: Mapping[str, Format] = {each.name: each for each in (JSON, DEBEZIUM_JSON, PARQUET)}
