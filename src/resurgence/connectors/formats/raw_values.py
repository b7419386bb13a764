"""The formats `raw_string` and `raw_bytes`: a record is the only column of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import (
    TEXT,
    VALUE,
    Fault,
    Format,
    RecordReader,
    RecordWriter,
    WriteSettings,
)
from resurgence.connectors.formats.line_encoder import LINE_COMPRESSIONS, LineEncoder
from resurgence.connectors.formats.record_columns import (
    NO_METADATA,
    RECORD_POSITION_SQL,
    carried,
    declared_values,
)
from resurgence.connectors.formats.text_records import NO_VALUE, explained
from resurgence.errors import UserError
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import TableOptions
from resurgence.graph.values import Column


@dataclass(frozen=True)
class RawReader(RecordReader):
    """Reads records without parsing: one declared column is the record, the others are metadata."""

    columns: tuple[Column, ...]
    record: str
    """TEXT or VALUE."""

    def parse(
        self, records: DataFrame, metadata: Mapping[str, SparkColumn] = NO_METADATA
    ) -> DataFrame:
        known, _ = carried(self.columns, metadata)
        return records.select("position", self.record, *known).select(
            *declared_values(self.columns, lambda _: self.record),
            F.expr(f"IF({self.record} IS NULL, position, NULL) AS `{BAD_POSITION}`"),
            F.expr(RECORD_POSITION_SQL),
        )

    def explain(self, raw: bytes | None) -> Fault:
        # Everything else is valid.
        unknown = Fault("cannot be read")
        if self.record == TEXT:
            return explained(raw, lambda _: unknown)
        return NO_VALUE if raw is None else unknown


@dataclass(frozen=True)
class RawWriter(RecordWriter):
    """Writes the only column of each row. A null is a message without a value."""

    format: str
    kind: str
    settings: WriteSettings[TableOptions]

    def render(self, rows: DataFrame) -> DataFrame:
        written = [each for each in rows.schema if each.name not in self.settings.passed]
        found = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in written)
        if [each.dataType.simpleString() for each in written] != [self.kind.lower()]:
            raise UserError(
                f"format '{self.format}' writes one column of type {self.kind}, not ({found})",
                hint="Select only that column.",
            )
        passed = [f"`{each}`" for each in self.settings.passed]
        return rows.selectExpr(f"`{written[0].name}` AS {VALUE}", *passed)


RAW_STRING = Format(
    FormatSpec("raw_string", only_column="STRING", purpose="text as it is"),
    suffix="txt",
    is_text=True,
    is_line_based=True,
    is_free_text=True,
    reader=lambda table: RawReader(table.columns, TEXT),
    writer=lambda settings: RawWriter("raw_string", "STRING", settings),
    encoder=LineEncoder,
    compressions=LINE_COMPRESSIONS,
)
RAW_BYTES = Format(
    FormatSpec("raw_bytes", only_column="BINARY", purpose="bytes as they are"),
    reader=lambda table: RawReader(table.columns, VALUE),
    writer=lambda settings: RawWriter("raw_bytes", "BINARY", settings),
)
