"""The format `debezium_json`: changes as Debezium's JSON, one event per record. Writes them.

    {"before": null, "after": {"id": 1, "name": "a"}, "op": "c"}

`op` is `c` for an insert, `d` for a delete, `u` for an update. The rows in `before` and `after` are
complete, and written as in `json.writer`. In the engine, a change is one row or two with `CHANGE`.
`reader` reads such events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.formats.contract import (
    Format,
    RecordReader,
    RecordTable,
    RecordWriter,
    WriteSettings,
)
from resurgence.connectors.formats.debezium.reader import DebeziumReader
from resurgence.connectors.formats.debezium.types import DEFAULT_UNIT
from resurgence.connectors.formats.json import writer as json_writer
from resurgence.connectors.formats.json.values import declared_units
from resurgence.connectors.formats.line_encoder import LINE_COMPRESSIONS, LineEncoder
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import TableOptions
from resurgence.graph.values import CHANGE

_MICROS = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def render(rows: DataFrame, keys: Sequence[str], passed: Sequence[str] = ()) -> DataFrame:
    """Render rows as the column VALUE, a text, beside the columns `passed`. Without `CHANGE` all
    rows are inserts. A deleted row must have existed before all these changes: their order is
    arbitrary.

    With keys, a delete and an insert of the same key are an update; the changes of a key are in one
    partition, and an update that changes nothing is omitted. Without keys, deletes precede inserts.
    """
    beside = [f"`{each}`" for each in passed]
    names = [each for each in rows.columns if each != CHANGE and each not in passed]
    row = "struct(" + ", ".join(f"`{each}`" for each in names) + ")"
    if CHANGE not in rows.columns:
        created = (f"IF(false, {row}, NULL) AS before", f"{row} AS after", "'c' AS op")
        return json_writer.render(rows.selectExpr(*created, *beside), passed=passed)
    deleted, inserted = f"IF(`{CHANGE}` < 0, {row}, NULL)", f"IF(`{CHANGE}` > 0, {row}, NULL)"
    if not keys:
        ordered = rows.sortWithinPartitions(CHANGE)
        return json_writer.render(
            ordered.selectExpr(
                f"{deleted} AS before",
                f"{inserted} AS after",
                f"IF(`{CHANGE}` < 0, 'd', 'c') AS op",
                *beside,
            ),
            passed=passed,
        )
    paired = (
        rows.groupBy(*(f"`{each}`" for each in keys), *beside)
        .agg(
            F.expr(f"collect_list({deleted}) AS before"),
            F.expr(f"collect_list({inserted}) AS after"),
        )
        .selectExpr("explode(arrays_zip(before, after)) AS pair", *beside)
        .selectExpr("pair.before AS before", "pair.after AS after", *beside)
    )
    # Rows are compared as they are written, which is to the microsecond.
    written = [
        f"to_json({each}, map('timestampFormat', '{_MICROS}', 'timestampNTZFormat', '{_MICROS}'))"
        for each in ("before", "after")
    ]
    is_change = f"before IS NULL OR after IS NULL OR {' <> '.join(written)}"
    return json_writer.render(
        paired.where(is_change).selectExpr(
            "before",
            "after",
            "CASE WHEN before IS NULL THEN 'c' WHEN after IS NULL THEN 'd' ELSE 'u' END AS op",
            *beside,
        ),
        passed=passed,
    )


@dataclass(frozen=True)
class DebeziumWriter(RecordWriter):
    """Writes changes as Debezium's events."""

    settings: WriteSettings[TableOptions]

    def render(self, rows: DataFrame) -> DataFrame:
        return render(rows, self.settings.keys, self.settings.passed)


def _reader(table: RecordTable[TableOptions]) -> RecordReader:
    units = declared_units(table.options, table.columns, DEFAULT_UNIT)
    return DebeziumReader(table.columns, table.keys, units)


DEBEZIUM_JSON = Format(
    FormatSpec(
        "debezium_json",
        is_changelog=True,
        uses_keys=True,
        purpose="[changelogs](updates.md#debezium_json)",
    ),
    suffix="json",
    is_text=True,
    is_line_based=True,
    skips_tombstones=True,
    reader=_reader,
    writer=DebeziumWriter,
    encoder=LineEncoder,
    compressions=LINE_COMPRESSIONS,
)
