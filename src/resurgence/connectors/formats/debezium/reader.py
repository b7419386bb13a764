"""Reader of Debezium's change events, one JSON object per record, with or without their schema:

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
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.contract import BAD_POSITION, RECORD_POSITION
from resurgence.connectors.formats.contract import Fault, RecordReader
from resurgence.connectors.formats.debezium.rows import EventRow
from resurgence.connectors.formats.debezium.types import (
    DEFAULT_UNIT,
    DESCRIPTION,
    in_range,
    is_decimal,
    is_temporal,
)
from resurgence.connectors.formats.json import lines as json_lines
from resurgence.connectors.formats.record_columns import NO_METADATA, carried, declared_values
from resurgence.connectors.formats.text_records import explained
from resurgence.graph.values import CHANGE, OPERATION, POSITION, Column

_SCHEMA = f"STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: ARRAY<{DESCRIPTION}>>>>"
_SIDES = ("before", "after")
_NEEDED = {"c": ("after",), "r": ("after",), "u": ("before", "after"), "d": ("before",)}
_KEY_HINT = (
    "Declare a PRIMARY KEY on the table, so that rows are stored by key, or configure the database"
    " to log whole rows (in Postgres, REPLICA IDENTITY FULL)."
)


@dataclass(frozen=True)
class DebeziumReader(RecordReader):
    """Reads the events of one table."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers in TIMESTAMP columns of records without schema."""

    # ---------------------------------------------------------------- parse

    def parse(
        self, records: DataFrame, metadata: Mapping[str, SparkColumn] = NO_METADATA
    ) -> DataFrame:
        """Convert columns `position` and `text` to the declared columns, BAD_POSITION, and `CHANGE`
        and RECORD_POSITION or, with keys, `OPERATION` and `POSITION`. A null is a record that is
        not UTF-8.
        """
        known, _ = carried(self.columns, metadata)
        # What is known of a record goes along with its position.
        placed = records.select(F.struct("position", *known).alias("position"), "text")
        events = self._validated(self._typed(self._parsed(placed)))
        changes = events.selectExpr("position.*", "bad", f"explode({self._items()}) AS item")
        values = declared_values(self.columns, lambda each: f"item.row.`{each.name}`")
        if self.keys:
            hidden = [f"item.change AS `{OPERATION}`", f"position.offset AS `{POSITION}`"]
        else:
            hidden = [f"item.change AS `{CHANGE}`", f"position AS `{RECORD_POSITION}`"]
        bad_position = f"IF(bad, position, NULL) AS `{BAD_POSITION}`"
        return changes.select(*values, *map(F.expr, (*hidden, bad_position)))

    @cached_property
    def _row_columns(self) -> tuple[Column, ...]:
        """The columns of a row in an event; the others are metadata."""
        return tuple(each for each in self.columns if each.metadata is None)

    def _parsed(self, records: DataFrame) -> DataFrame:
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
            records.selectExpr(
                "position", "text", f"coalesce({is_described}, false) AS is_described"
            )
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
            return tuple(each for each in self._row_columns if each.name in self.keys)
        return self._row_columns

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
        names = ", ".join(_text(each.name) for each in self._row_columns)
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
            for each in self._row_columns
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

    def explain(self, raw: bytes | None) -> Fault:
        return explained(raw, self._explain_text)

    def _explain_text(self, text: str) -> Fault:
        tree = json_lines.object_in(text)
        if isinstance(tree, Fault):
            return tree
        event = tree.get("payload") if "op" not in tree and "payload" in tree else tree
        if not isinstance(event, dict):
            return Fault("'payload' is not a JSON object", max(text.find('"payload"'), 0) + 1)
        place = text.find('"payload"') if event is not tree else 0
        op = event.get("op")
        if op == "t":
            reason = "a truncate requires a table with a PRIMARY KEY"
            return Fault(reason, max(text.find('"op"', place), 0) + 1, _KEY_HINT)
        if op not in _NEEDED:
            shown = "missing" if op is None else json.dumps(op)
            reason = f"'op' must be one of c, r, u, d, t, m, but is {shown}"
            return Fault(reason, max(text.find('"op"', place), 0) + 1)
        for side in _NEEDED[op]:
            if found := self._explain_side(text, event, side, max(place, 0)):
                return found
        return Fault(json_lines.MISFIT, 1)

    def _explain_side(
        self, text: str, event: Mapping[str, Any], side: str, begin: int
    ) -> Fault | None:
        row, op = event.get(side), event["op"]
        if self.keys and side == "before" and op == "u":
            return None
        place = max(text.find(f'"{side}"', begin), 0)
        columns = self._columns_of(side)
        if not isinstance(row, dict):
            reason = f"'{side}' is missing: an event with op '{op}' requires the row {side}"
            hint = None if side == "after" or self.keys else _KEY_HINT
            return Fault(reason, place + 1, hint)
        # Leading spaces preserve the column numbers.
        start = text.find("{", place)
        inner = " " * start + _object_at(text, start)
        loose = [each.model_copy(update={"type": _loose_type(each.type)}) for each in columns]
        if found := _found_in(side, json_lines.explain_text(inner, loose), start):
            return found
        absent = [each.name for each in columns if each.name not in row]
        if side == "before" and not self.keys and absent:
            return Fault(f"'before' lacks the column '{absent[0]}'", start + 1, _KEY_HINT)
        for each in columns:
            value = row.get(each.name)
            if value is None or not (is_temporal(each.type) or is_decimal(each.type)):
                continue
            if type(value) is int and is_temporal(each.type):
                if not in_range(value, each.type, self.units.get(each.name, DEFAULT_UNIT)):
                    reason = f"'{each.name}' is {json_lines.OUT_OF_RANGE} {each.type}: {value}"
                    return Fault(f"in '{side}', {reason}", start + 1, json_lines.UNIT_HINT)
                continue
            if found := _found_in(side, json_lines.explain_text(inner, [each]), start):
                return found
        return None


def _found_in(side: str, fault: Fault, start: int) -> Fault | None:
    """Return a fault in the row that begins at a place; None if it is not specific."""
    if fault.reason == json_lines.MISFIT:
        return None
    return Fault(f"in '{side}', {fault.reason}", max(fault.column or 1, start + 1), fault.hint)


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
