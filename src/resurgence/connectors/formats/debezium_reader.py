"""Reader of Debezium's change events, one JSON object per line, with or without their schema:

    {"before": null, "after": {"id": 1, "name": "a"}, "op": "c", "ts_ms": 0, "source": {}}
    {"schema": {"fields": []}, "payload": {"before": null, "after": {"id": 1}, "op": "c"}}

`op` is `c` (created), `r` (read by a snapshot), `u` (updated), `d` (deleted) or `t` (truncated).
Tombstones (null), logical decoding messages (`m`) and heartbeats are skipped.

Without keys, `before` must be the whole row: an event becomes one row or two with `CHANGE`. With
keys, only the key of `before` is read: an event becomes an upsert, a delete or a truncate in
`OPERATION`, and the NormaliseSpec that reads them has the retracted rows in its state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.contract import BAD_POSITION, RECORD_POSITION
from resurgence.connectors.formats import json_lines
from resurgence.connectors.formats.debezium_rows import EventRow
from resurgence.connectors.formats.debezium_types import (
    DEFAULT_UNIT,
    DESCRIPTION,
    in_range,
    is_decimal,
    is_temporal,
)
from resurgence.graph.values import CHANGE, OPERATION, POSITION, Column

_SCHEMA = f"STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: ARRAY<{DESCRIPTION}>>>>"
_NOT_BLANK = "text IS NULL OR length(trim(BOTH ' \t\r' FROM text)) > 0"
_NONE: Mapping[str, SparkColumn] = MappingProxyType({})
_SIDES = ("before", "after")
_NEEDED = {"c": ("after",), "r": ("after",), "u": ("before", "after"), "d": ("before",)}
_NO_SPECIFIC_REASON = "does not fit the table's columns"
_KEY_HINT = (
    "Declare a PRIMARY KEY on the table, so that rows are stored by key, or configure the database"
    " to log whole rows (in Postgres, REPLICA IDENTITY FULL)."
)


@dataclass(frozen=True)
class DebeziumReader:
    """Reads the events of one table."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers in TIMESTAMP columns of records without schema."""

    # ---------------------------------------------------------------- parse

    def parse(self, lines: DataFrame, metadata: Mapping[str, SparkColumn] = _NONE) -> DataFrame:
        """Convert columns `position` and `text` to the declared columns, BAD_POSITION, and `CHANGE`
        and RECORD_POSITION or, with keys, `OPERATION` and `POSITION`. Blank lines are skipped; a
        null is a line that is not UTF-8. A change has no metadata.
        """
        events = self._validated(self._typed(self._parsed(lines)))
        changes = events.selectExpr("position", "bad", f"explode({self._items()}) AS item")
        values = [f"item.row.`{each.name}` AS `{each.name}`" for each in self.columns]
        if self.keys:
            hidden = [f"item.change AS `{OPERATION}`", f"position AS `{POSITION}`"]
        else:
            hidden = [f"item.change AS `{CHANGE}`", f"position AS `{RECORD_POSITION}`"]
        return changes.selectExpr(*values, *hidden, f"IF(bad, position, NULL) AS `{BAD_POSITION}`")

    def _parsed(self, lines: DataFrame) -> DataFrame:
        """Parse the event of each line, with its values as written, and the columns in its
        schema.
        """
        bare, full = (self._event(is_described=each) for each in (False, True))
        bare_line = json_lines.parsed_line(f"{bare}, payload: STRUCT<{bare}>")
        full_line = json_lines.parsed_line(f"schema: {_SCHEMA}, payload: STRUCT<{full}>")
        is_described = (
            "contains(text, '\"payload\"') AND get_json_object(text, '$.schema') IS NOT NULL"
        )
        return (
            lines.where(_NOT_BLANK)
            .selectExpr("position", "text", f"coalesce({is_described}, false) AS is_described")
            .select(
                "position",
                "text",
                "is_described",
                F.when(~F.col("is_described"), bare_line).alias("bare"),
                F.when(F.col("is_described"), full_line).alias("full"),
            )
            .selectExpr(
                "position",
                "text",
                "is_described",
                f"{json_lines.record_in('bare')} AS bare",
                f"{json_lines.record_in('full')} AS full",
                f"{json_lines.is_malformed('bare')} AND {json_lines.is_malformed('full')}"
                " AS is_malformed",
            )
        )

    def _event(self, *, is_described: bool) -> str:
        """Return the members of an event."""
        rows = (f"{each.side}: {each.type(is_described=is_described)}" for each in self._rows)
        return ", ".join([*rows, "op: STRING"])

    @cached_property
    def _rows(self) -> tuple[EventRow, EventRow]:
        before, after = (EventRow(each, self._columns_of(each), self.units) for each in _SIDES)
        return before, after

    def _columns_of(self, side: str) -> tuple[Column, ...]:
        """Return the columns to read of a row. Besides its key, `before` may contain anything."""
        if self.keys and side == "before":
            return tuple(each for each in self.columns if each.name in self.keys)
        return self.columns

    def _typed(self, parsed: DataFrame) -> DataFrame:
        """Convert the two rows to the declared types, and mark rows with values that do not fit."""
        described = (
            "flatten(transform(filter(full.schema.fields, each -> each.field IN ('before', 'after')"
            " AND each.fields IS NOT NULL), each -> each.fields))"
        )
        rows = parsed.selectExpr(
            "position",
            "text",
            "is_described",
            "coalesce(bare.op, bare.payload.op, full.payload.op) AS op",
            "coalesce(bare.before, bare.payload.before) AS bare_before",
            "coalesce(bare.after, bare.payload.after) AS bare_after",
            "full.payload.before AS full_before",
            "full.payload.after AS full_after",
            "bare.before IS NULL AS is_wrapped_before",
            "bare.after IS NULL AS is_wrapped_after",
            f"{described} AS described",
            "bare IS NULL AND full IS NULL AS is_tombstone",
            "is_malformed",
        )
        before, after = self._rows
        rows = rows.select("*", *before.parsed, *after.parsed)
        rows = rows.select("*", *before.text, *after.text)
        rows = rows.select("*", *before.written, *after.written)
        event = ("position", "text", "op", "is_tombstone", "is_malformed")
        return rows.select(*event, *before.read, *after.read)

    def _validated(self, typed: DataFrame) -> DataFrame:
        """Return the events that change rows, and mark those that are bad."""
        members = "json_object_keys(coalesce(get_json_object(text, '$.payload'), text))"
        is_heartbeat = f"{members} = array('ts_ms')"
        is_empty = (
            "size(array_except(json_object_keys(text), array('schema', 'payload'))) = 0"
            " AND array_contains(json_object_keys(text), 'payload')"
            " AND get_json_object(text, '$.payload') IS NULL"
        )
        is_skipped = (
            "NOT is_malformed AND (op = 'm' OR is_tombstone"
            f" OR (op IS NULL AND ({is_heartbeat} OR ({is_empty}))))"
        )
        return typed.where(f"NOT coalesce({is_skipped}, false)").selectExpr(
            "position", "op", *_SIDES, f"coalesce({self._is_bad()}, true) AS bad"
        )

    def _is_bad(self) -> str:
        def lacks(side: str) -> str:
            required = [each.name for each in self._columns_of(side) if not each.nullable]
            values = "".join(f" OR {side}.`{name}` IS NULL" for name in required)
            return f"({side} IS NULL OR {side}_misfits{values})"

        if self.keys:
            updated, deleted, truncated = lacks("after"), lacks("before"), "false"
        else:
            whole = f"({lacks('before')} OR {self._is_partial()})"
            updated, deleted, truncated = f"({whole} OR {lacks('after')})", whole, "true"
        return f"""is_malformed OR CASE op
            WHEN 'c' THEN {lacks("after")}
            WHEN 'r' THEN {lacks("after")}
            WHEN 'u' THEN {updated}
            WHEN 'd' THEN {deleted}
            WHEN 't' THEN {truncated}
            ELSE true END"""

    def _is_partial(self) -> str:
        """Return SQL that is true where `before` lacks a column, as if the database logs only
        keys.
        """
        names = ", ".join(_text(each.name) for each in self.columns)
        row = (
            "coalesce(get_json_object(text, '$.payload.before'), get_json_object(text, '$.before'))"
        )
        return f"size(array_except(array({names}), json_object_keys({row}))) > 0"

    def _items(self) -> str:
        """Return SQL for the changes of an event in order: an array of rows with their change."""
        if not self.keys:
            deleted, inserted = _item("before", -1), _item("after", 1)
            return f"""CASE WHEN bad THEN array({inserted}) WHEN op = 'd' THEN array({deleted})
                WHEN op = 'u' THEN array({deleted}, {inserted}) ELSE array({inserted}) END"""
        key = ", ".join(
            (f"before.`{each.name}`" if each.name in self.keys else f"CAST(NULL AS {each.type})")
            + f" AS `{each.name}`"
            for each in self.columns
        )
        upsert = _item("after", "'upsert'")
        delete = _item(f"struct({key})", "'delete'")
        truncate = _item("after", "'truncate'")
        keys = [f"`{each}`" for each in self.keys]
        moved = " OR ".join(f"before.{each} <> after.{each}" for each in keys)
        return f"""CASE WHEN bad THEN array({upsert})
            WHEN op = 't' THEN array({truncate})
            WHEN op = 'd' THEN array({delete})
            WHEN op = 'u' AND ({moved}) THEN array({delete}, {upsert})
            ELSE array({upsert}) END"""

    # ---------------------------------------------------------------- explain

    def explain_bad_line(self, text: str) -> tuple[str, int, str | None]:
        """Return (reason, column from 1, hint if there is a special one) for a bad line."""
        tree = json_lines.object_in(text)
        if not isinstance(tree, dict):
            return *tree, None
        event = tree.get("payload") if "op" not in tree and "payload" in tree else tree
        if not isinstance(event, dict):
            return "'payload' is not a JSON object", max(text.find('"payload"'), 0) + 1, None
        place = text.find('"payload"') if event is not tree else 0
        op = event.get("op")
        if op == "t":
            reason = "a truncate requires a table with a PRIMARY KEY"
            return reason, max(text.find('"op"', place), 0) + 1, _KEY_HINT
        if op not in _NEEDED:
            shown = "missing" if op is None else json.dumps(op)
            reason = f"'op' must be one of c, r, u, d, t, m, but is {shown}"
            return reason, max(text.find('"op"', place), 0) + 1, None
        for side in _NEEDED[op]:
            if found := self._explain_side(text, event, side, max(place, 0)):
                return found
        return _NO_SPECIFIC_REASON, 1, None

    def _explain_side(
        self, text: str, event: Mapping[str, Any], side: str, begin: int
    ) -> tuple[str, int, str | None] | None:
        row, op = event.get(side), event["op"]
        if self.keys and side == "before" and op == "u":
            return None
        place = max(text.find(f'"{side}"', begin), 0)
        columns = self._columns_of(side)
        if not isinstance(row, dict):
            reason = f"'{side}' is missing: an event with op '{op}' requires the row {side}"
            return reason, place + 1, None if side == "after" or self.keys else _KEY_HINT
        # Leading spaces preserve the column numbers.
        start = text.find("{", place)
        inner = " " * start + _object_at(text, start)
        loose = [each.model_copy(update={"type": _loose_type(each.type)}) for each in columns]
        reason, column = json_lines.explain_bad_line(inner, loose)
        if reason != _NO_SPECIFIC_REASON:
            return f"in '{side}', {reason}", max(column, start + 1), None
        absent = [each.name for each in columns if each.name not in row]
        if side == "before" and not self.keys and absent:
            return f"'before' lacks the column '{absent[0]}'", start + 1, _KEY_HINT
        for each in columns:
            value = row.get(each.name)
            if value is None or not (is_temporal(each.type) or is_decimal(each.type)):
                continue
            if type(value) is int and is_temporal(each.type):
                if not in_range(value, each.type, self.units.get(each.name, DEFAULT_UNIT)):
                    reason = f"'{each.name}' is {json_lines.OUT_OF_RANGE} {each.type}: {value}"
                    return f"in '{side}', {reason}", start + 1, None
                continue
            reason, column = json_lines.explain_bad_line(inner, [each])
            if reason != _NO_SPECIFIC_REASON:
                return f"in '{side}', {reason}", max(column, start + 1), None
        return None


def _item(row: str, change: object) -> str:
    return f"named_struct('row', {row}, 'change', {change})"


def _text(value: str) -> str:
    """Return a string literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _loose_type(kind: str) -> str:
    return "STRING" if is_temporal(kind) or is_decimal(kind) else kind


def _object_at(text: str, start: int) -> str:
    """Return the text of the JSON object that begins at a place."""
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end]
