"""Debezium's JSON: lines that say how the rows of a table change.

    {"before": null, "after": {"id": 1, "name": "a"}, "op": "c"}

`op` is `c` for a row that came, `d` for one that went, `u` for one that took the place of another,
and, when read, `r` for a row that was there at first. Other members are passed over. The rows in
`before` and `after` are whole, and written as in `json_lines`. In the engine, a change is one row or
two with `CHANGE`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors import json_lines
from resurgence.connectors.contract import BAD_POSITION
from resurgence.graph.model import CHANGE, Column

_MICROS = "yyyy-MM-dd HH:mm:ss.SSSSSS"
_CORRUPT = "__corrupt"
_NOT_BLANK = "startswith(text, '{') OR text IS NULL OR length(trim(BOTH ' \t\r' FROM text)) > 0"
_NEEDED = {"c": ("after",), "r": ("after",), "u": ("before", "after"), "d": ("before",)}
_NOTHING_WRONG = "does not fit the table's columns"


def parse(lines: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Columns `position` and `text` to the declared columns, `CHANGE` and BAD_POSITION. Of an
    update, the row that goes comes first. Blank lines are passed over; a null is a line that is not
    text.
    """
    row = "STRUCT<" + ", ".join(f"`{each.name}`: {each.type}" for each in columns) + ">"
    schema = f"before {row}, after {row}, op STRING, `{_CORRUPT}` STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = lines.where(_NOT_BLANK).select(
        "position", F.from_json("text", schema, options).alias("parsed")
    )
    judged = parsed.selectExpr(
        "position", "parsed.before", "parsed.after", "parsed.op", f"{_is_bad(columns)} AS bad"
    )
    changes = judged.selectExpr(
        "position",
        "bad",
        """explode(CASE
            WHEN bad THEN array(named_struct('row', after, 'change', 1))
            WHEN op = 'd' THEN array(named_struct('row', before, 'change', -1))
            WHEN op = 'u' THEN array(
                named_struct('row', before, 'change', -1), named_struct('row', after, 'change', 1))
            ELSE array(named_struct('row', after, 'change', 1)) END) AS item""",
    )
    return changes.selectExpr(
        *(f"item.row.`{each.name}` AS `{each.name}`" for each in columns),
        f"item.change AS `{CHANGE}`",
        f"IF(bad, position, NULL) AS `{BAD_POSITION}`",
    )


def _is_bad(columns: Sequence[Column]) -> str:
    required = [each.name for each in columns if not each.nullable]

    def lacks(side: str) -> str:
        values = "".join(f" OR parsed.{side}.`{name}` IS NULL" for name in required)
        return f"parsed.{side} IS NULL{values}"

    return f"""parsed IS NULL OR parsed.`{_CORRUPT}` IS NOT NULL OR CASE
        WHEN parsed.op IN ('c', 'r') THEN {lacks("after")}
        WHEN parsed.op = 'd' THEN {lacks("before")}
        WHEN parsed.op = 'u' THEN {lacks("before")} OR {lacks("after")}
        ELSE true END"""


def render(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows as one column of text, each ending in a newline. Without `CHANGE` all of them came. A row
    that goes must have been there before them all: they are written in any order.

    With keys, a row that goes and one that comes with the same key are an update; the changes of a
    key are in one partition, and nothing is said where nothing changes. Without keys, rows that go
    stand before those that come.
    """
    names = [each for each in rows.columns if each != CHANGE]
    row = "struct(" + ", ".join(f"`{each}`" for each in names) + ")"
    if CHANGE not in rows.columns:
        created = (f"IF(false, {row}, NULL) AS before", f"{row} AS after", "'c' AS op")
        return json_lines.render(rows.selectExpr(*created))
    went, came = f"IF(`{CHANGE}` < 0, {row}, NULL)", f"IF(`{CHANGE}` > 0, {row}, NULL)"
    if not keys:
        ordered = rows.sortWithinPartitions(CHANGE)
        return json_lines.render(
            ordered.selectExpr(
                f"{went} AS before", f"{came} AS after", f"IF(`{CHANGE}` < 0, 'd', 'c') AS op"
            )
        )
    paired = (
        rows.groupBy(*(f"`{each}`" for each in keys))
        .agg(F.expr(f"collect_list({went}) AS before"), F.expr(f"collect_list({came}) AS after"))
        .selectExpr("explode(arrays_zip(before, after)) AS pair")
        .selectExpr("pair.before AS before", "pair.after AS after")
    )
    # As they are written, which is to the microsecond.
    shown = [
        f"to_json({each}, map('timestampFormat', '{_MICROS}', 'timestampNTZFormat', '{_MICROS}'))"
        for each in ("before", "after")
    ]
    is_change = f"before IS NULL OR after IS NULL OR {' <> '.join(shown)}"
    return json_lines.render(
        paired.where(is_change).selectExpr(
            "before",
            "after",
            "CASE WHEN before IS NULL THEN 'c' WHEN after IS NULL THEN 'd' ELSE 'u' END AS op",
        )
    )


def explain_bad_line(text: str, columns: Sequence[Column]) -> tuple[str, int]:
    """(what is wrong, column from 1) of a line that did not parse."""
    tree = json_lines.object_in(text)
    if not isinstance(tree, dict):
        return tree
    op = tree.get("op")
    if op not in _NEEDED:
        shown = "missing" if op is None else json.dumps(op)
        return f"'op' must be one of c, r, u, d, and is {shown}", max(text.find('"op"'), 0) + 1
    for side in _NEEDED[op]:
        place = max(text.find(f'"{side}"'), 0)
        row = tree.get(side)
        if not isinstance(row, dict):
            return f"'{side}' is missing: a change with op '{op}' needs the row {side}", place + 1
        # Spaces in front keep the columns right.
        start = text.find("{", place)
        inner = " " * start + _object_at(text, start)
        reason, column = json_lines.explain_bad_line(inner, columns)
        if reason != _NOTHING_WRONG:
            return f"in '{side}', {reason}", max(column, start + 1)
    return _NOTHING_WRONG, 1


def _object_at(text: str, start: int) -> str:
    """The JSON object that begins at a place."""
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end]
