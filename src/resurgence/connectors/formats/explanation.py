"""Raw records and the readers of formats: how bytes are parsed, and why a record is bad."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from resurgence.connectors.formats.contract import VALUE, Format, RecordReader
from resurgence.connectors.formats.messages import records_of

RAW = "raw"


def parsed(
    reader: RecordReader, chosen: Format, records: DataFrame, metadata: Mapping[str, SparkColumn]
) -> DataFrame:
    """Parse records, which have columns `position` and RAW. A record of text that is not UTF-8 is
    bad.
    """
    return reader.parse(records_of(records.withColumnRenamed(RAW, VALUE), chosen), metadata)


class Explainer:
    """Returns why a raw record is bad, in Spark tasks."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader

    def __reduce__(self) -> tuple[type[Explainer], tuple[RecordReader]]:
        return Explainer, (self._reader.for_tasks(),)

    def __call__(self, raw: bytes | None) -> str:
        fault = self._reader.explain(raw)
        place = "" if fault.column is None else f"column {fault.column}: "
        return f"{place}{fault.reason}"
