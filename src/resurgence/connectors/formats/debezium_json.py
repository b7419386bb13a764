"""The format `debezium_json`: changes as Debezium's JSON, one event per line. Writes them.

    {"before": null, "after": {"id": 1, "name": "a"}, "op": "c"}

`op` is `c` for an insert, `d` for a delete, `u` for an update. The rows in `before` and `after` are
complete, and written as in `json_lines`. In the engine, a change is one row or two with `CHANGE`.
`debezium_reader` reads such events.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.formats import json_lines
from resurgence.connectors.formats.contract import Format, LineReader, RecordTable
from resurgence.connectors.formats.debezium_reader import DebeziumReader
from resurgence.connectors.formats.debezium_types import DEFAULT_UNIT
from resurgence.connectors.formats.json_values import declared_units
from resurgence.connectors.formats.line_encoder import LineEncoder
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.values import CHANGE

_MICROS = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def render(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Render rows as one column of text, each ending in a newline. Without `CHANGE` all rows are
    inserts. A deleted row must have existed before all these changes: their order is arbitrary.

    With keys, a delete and an insert of the same key are an update; the changes of a key are in one
    partition, and an update that changes nothing is omitted. Without keys, deletes precede inserts.
    """
    names = [each for each in rows.columns if each != CHANGE]
    row = "struct(" + ", ".join(f"`{each}`" for each in names) + ")"
    if CHANGE not in rows.columns:
        created = (f"IF(false, {row}, NULL) AS before", f"{row} AS after", "'c' AS op")
        return json_lines.render(rows.selectExpr(*created))
    deleted, inserted = f"IF(`{CHANGE}` < 0, {row}, NULL)", f"IF(`{CHANGE}` > 0, {row}, NULL)"
    if not keys:
        ordered = rows.sortWithinPartitions(CHANGE)
        return json_lines.render(
            ordered.selectExpr(
                f"{deleted} AS before",
                f"{inserted} AS after",
                f"IF(`{CHANGE}` < 0, 'd', 'c') AS op",
            )
        )
    paired = (
        rows.groupBy(*(f"`{each}`" for each in keys))
        .agg(
            F.expr(f"collect_list({deleted}) AS before"),
            F.expr(f"collect_list({inserted}) AS after"),
        )
        .selectExpr("explode(arrays_zip(before, after)) AS pair")
        .selectExpr("pair.before AS before", "pair.after AS after")
    )
    # Rows are compared as they are written, which is to the microsecond.
    written = [
        f"to_json({each}, map('timestampFormat', '{_MICROS}', 'timestampNTZFormat', '{_MICROS}'))"
        for each in ("before", "after")
    ]
    is_change = f"before IS NULL OR after IS NULL OR {' <> '.join(written)}"
    return json_lines.render(
        paired.where(is_change).selectExpr(
            "before",
            "after",
            "CASE WHEN before IS NULL THEN 'c' WHEN after IS NULL THEN 'd' ELSE 'u' END AS op",
        )
    )


def _line_reader(table: RecordTable) -> LineReader:
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
    is_line_based=True,
    line_reader=_line_reader,
    encoder=LineEncoder,
    prepared=lambda rows, settings: render(rows, settings.keys),
)
