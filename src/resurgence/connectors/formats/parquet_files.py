"""The format `parquet`, encoded by `storage.parquet`."""

from __future__ import annotations

from resurgence.connectors.formats.contract import Format
from resurgence.graph.connector_spec import FormatSpec
from resurgence.storage.parquet import ParquetEncoder

PARQUET = Format(FormatSpec("parquet"), suffix="parquet", encoder=ParquetEncoder)
