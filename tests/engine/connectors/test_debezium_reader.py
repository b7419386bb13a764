"""Debezium events as databases send them: keys without rows, inline schemas, and values in
Debezium's own types.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.debezium.reader import DebeziumReader
from resurgence.graph.values import OPERATION, POSITION, Column
from tests.engine.connectors.text_records import FILE, text_records

ITEMS = (
    Column(name="id", type="BIGINT", nullable=False),
    Column(name="name", type="STRING", nullable=False),
    Column(name="note", type="STRING"),
)
KEYED = DebeziumReader(ITEMS, ("id",))
NOON = datetime(2024, 5, 6, 12)
NOON_SECONDS = int(NOON.replace(tzinfo=UTC).timestamp())


def parsed(spark: SparkSession, reader: DebeziumReader, events: Sequence[object]) -> DataFrame:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in events]
    lines = text_records(spark, enumerate(texts))
    return reader.parse(lines)


def event(op: str, before: object = None, after: object = None) -> dict[str, object]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"lsn": 7}}


def enveloped(
    payload: object, described: Mapping[str, tuple[str, Mapping[str, str]]] | None = None
) -> dict[str, object]:
    fields = [
        {"field": name, "type": "x", "optional": True, "name": kind, "parameters": dict(more)}
        for name, (kind, more) in (described or {}).items()
    ]
    rows = [
        {"type": "struct", "field": side, "optional": True, "fields": fields}
        for side in ("before", "after")
    ]
    source = {"type": "struct", "field": "source", "fields": [{"type": "int64", "field": "lsn"}]}
    members = [*rows, source, {"type": "string", "optional": False, "field": "op"}]
    return {"schema": {"type": "struct", "fields": members}, "payload": payload}


def test_changes_by_key_require_no_before_image(spark: SparkSession) -> None:
    found = parsed(
        spark,
        KEYED,
        [
            event("r", None, {"id": 1, "name": "a", "note": "x"}),
            event("u", None, {"id": 1, "name": "b"}),
            event("u", {"id": 1, "name": 5}, {"id": 1, "name": "c"}),
            event("d", {"id": 1}),
            event("d", {"id": 1, "name": None, "note": []}),
            event("t"),
            event("u", {"id": 1, "name": "c"}, {"id": 2, "name": "c"}),
        ],
    )
    assert found.columns == ["id", "name", "note", OPERATION, POSITION, BAD_POSITION]
    assert [tuple(each) for each in found.collect()] == [
        (1, "a", "x", "upsert", 0, None),
        (1, "b", None, "upsert", 1, None),
        (1, "c", None, "upsert", 2, None),
        (1, None, None, "delete", 3, None),
        (1, None, None, "delete", 4, None),
        (None, None, None, "truncate", 5, None),
        (1, None, None, "delete", 6, None),
        (2, "c", None, "upsert", 6, None),
    ]


def test_events_that_change_no_row_are_skipped(spark: SparkSession) -> None:
    message = {"op": "m", "ts_ms": 1, "message": {"prefix": "p", "content": "eA=="}}
    skipped = [
        "null",
        " null\r",
        message,
        {"ts_ms": 5},
        enveloped(message),
        enveloped({"ts_ms": 5}),
        enveloped(None),
        {"schema": None, "payload": None},
    ]
    for reader in (KEYED, DebeziumReader(ITEMS)):
        assert parsed(spark, reader, skipped).collect() == []


@pytest.mark.parametrize("schema", [True, False])
def test_the_schema_payload_envelope_is_unwrapped(spark: SparkSession, schema: bool) -> None:
    change = event("u", {"id": 1, "name": "a", "note": None}, {"id": 1, "name": "b"})
    record = enveloped(change) if schema else {"schema": None, "payload": change}
    found = parsed(spark, DebeziumReader(ITEMS), [record]).collect()
    assert [tuple(each) for each in found] == [
        (1, "a", None, -1, (FILE, 0), None),
        (1, "b", None, 1, (FILE, 0), None),
    ]


TYPED = (
    Column(name="id", type="BIGINT"),
    Column(name="at", type="TIMESTAMP"),
    Column(name="plain", type="TIMESTAMP_NTZ"),
    Column(name="day", type="DATE"),
    Column(name="price", type="DECIMAL(12,2)"),
)
DAY = date(2024, 5, 6)
DAYS = (DAY - date(1970, 1, 1)).days


def unscaled(value: int) -> str:
    length = max(1, (value.bit_length() + 8) // 8)
    return base64.b64encode(value.to_bytes(length, "big", signed=True)).decode()


def test_values_are_read_as_the_schema_says(spark: SparkSession) -> None:
    time, connect = "io.debezium.time", "org.apache.kafka.connect.data"
    decimal = (f"{connect}.Decimal", {"scale": "2", "connect.decimal.precision": "12"})
    kinds: list[tuple[dict[str, tuple[str, Mapping[str, str]]], dict[str, object]]] = [
        (
            {
                "at": (f"{time}.Timestamp", {}),
                "plain": (f"{time}.MicroTimestamp", {}),
                "day": (f"{time}.Date", {}),
                "price": decimal,
            },
            {
                "at": NOON_SECONDS * 1000,
                "plain": NOON_SECONDS * 1_000_000,
                "day": DAYS,
                "price": unscaled(-1234567),
            },
        ),
        (
            {
                "at": (f"{time}.NanoTimestamp", {}),
                "plain": (f"{connect}.Timestamp", {}),
                "day": (f"{connect}.Date", {}),
                "price": ("io.debezium.data.VariableScaleDecimal", {}),
            },
            {
                "at": NOON_SECONDS * 1_000_000_000 + 999,
                "plain": NOON_SECONDS * 1000,
                "day": DAYS,
                "price": {"scale": 3, "value": unscaled(-12345670)},
            },
        ),
        (
            {"at": (f"{time}.ZonedTimestamp", {})},
            {
                "at": "2024-05-06T14:00:00.000000+02:00",
                "plain": "2024-05-06T12:00:00",
                "day": "2024-05-06",
                "price": "-12345.67",
            },
        ),
        (
            {},
            {
                "at": NOON_SECONDS * 1_000_000,
                "plain": "2024-05-06 12:00:00",
                "day": DAYS,
                "price": -12345.67,
            },
        ),
    ]
    records = [enveloped(event("c", None, {"id": 1, **row}), kind) for kind, row in kinds]
    records.append(event("c", None, {"id": 1, **kinds[-1][1]}))
    found = parsed(spark, DebeziumReader(TYPED, ("id",)), records).collect()
    wanted = (1, NOON, NOON, DAY, Decimal("-12345.67"))
    assert [tuple(each)[:5] for each in found] == [wanted] * len(records)
    assert {each[BAD_POSITION] for each in found} == {None}


@pytest.mark.parametrize(
    "value",
    [0, 1, -1, 127, 128, -128, -129, 2**63, -(2**63), 2**64 - 1, 10**38 - 1, -(10**38) + 1],
)
def test_decimals_of_any_size_are_read_to_the_last_digit(spark: SparkSession, value: int) -> None:
    columns = (Column(name="id", type="BIGINT"), Column(name="n", type="DECIMAL(38,0)"))
    kind = {"n": ("org.apache.kafka.connect.data.Decimal", {"scale": "0"})}
    record = enveloped(event("c", None, {"id": 1, "n": unscaled(value)}), kind)
    (found,) = parsed(spark, DebeziumReader(columns), [record]).collect()
    assert (found.n, found[BAD_POSITION]) == (Decimal(value), None)


LONG = "12345678901234567890123.5"
AS_WRITTEN = [
    ("STRING", LONG, LONG),
    ("STRING", "1.10", "1.10"),
    ("STRING", '"1.10"', "1.10"),
    ("STRING", f'{{"a":  1.10, "op": {LONG}}}', f'{{"a":  1.10, "op": {LONG}}}'),
    ("STRING", r'"{\"a\": 1.10}"', '{"a": 1.10}'),
    ("ARRAY<STRING>", f"[1.10, null, {LONG}]", f"[1.10, null, {LONG}]"),
    ("STRUCT<a: STRING>", '{"a": 1.10}', "{1.10}"),
    ("MAP<STRING, STRING>", '{"a": 1.10}', "{a -> 1.10}"),
    ("ARRAY<TIMESTAMP>", f"[{NOON_SECONDS * 1_000_000}]", "[2024-05-06 12:00:00]"),
]
ENVELOPES = {
    "bare": "{event}",
    "payload": '{{"payload": {event}}}',
    "null schema": '{{"schema": null, "payload": {event}}}',
    "schema": json.dumps(enveloped("event")).replace("{", "{{").replace("}", "}}").replace('"event"', "{event}"),
}  # fmt: skip


@pytest.mark.parametrize("keys", [("id",), ()], ids=["by key", "whole rows"])
@pytest.mark.parametrize("envelope", ENVELOPES)
def test_numbers_in_texts_are_read_as_they_are_written(
    spark: SparkSession, envelope: str, keys: tuple[str, ...]
) -> None:
    """Every type is a column, and every case the only value of a row, before or after."""
    kinds = sorted({kind for kind, _, _ in AS_WRITTEN})
    columns = (
        Column(name="id", type="BIGINT"),
        *(Column(name=f"it's {at}", type=each) for at, each in enumerate(kinds)),
    )
    lines = []
    for kind, written, _ in AS_WRITTEN:
        row = json.dumps({each.name: None for each in columns[1:]}).replace(
            f'"{columns[1 + kinds.index(kind)].name}": null',
            f'"{columns[1 + kinds.index(kind)].name}": {written}',
        )
        other = f'{{"id": 1, {row[1:]}'
        source = f'{{"after": {{"note": 0.10}}, "x": [{written}]}}'
        event = f'{{"source": {source}, "before": {other}, "after" : {other}, "op": "u"}}'
        lines.append(ENVELOPES[envelope].format(event=event))
    found = parsed(spark, DebeziumReader(columns, keys), lines)
    shown = found.selectExpr(
        *(f"CAST(`{each.name}` AS STRING) AS `{each.name}`" for each in columns), BAD_POSITION
    ).collect()
    values = [[each for each in row[1:-1] if each is not None] for row in shown]
    times = 1 if keys else 2
    assert values == [[wanted] for _, _, wanted in AS_WRITTEN for _ in range(times)]
    assert {row[BAD_POSITION] for row in shown} == {None}


@pytest.mark.parametrize(("unit", "scale"), [("seconds", 1), ("millis", 10**3), ("nanos", 10**9)])
def test_without_a_schema_the_table_says_the_unit(
    spark: SparkSession, unit: str, scale: int
) -> None:
    reader = DebeziumReader(TYPED, ("id",), {"at": unit})
    (found,) = parsed(
        spark, reader, [event("c", None, {"id": 1, "at": NOON_SECONDS * scale})]
    ).collect()
    assert (found.at, found[BAD_POSITION]) == (NOON, None)


BAD_ROWS: dict[str, dict[str, object]] = {
    "a time without a date": {"id": 1, "at": "12:00:00"},
    "a word": {"id": 1, "at": "now"},
    "an instant out of range": {"id": 1, "at": 2**62},
    "a fraction": {"id": 1, "at": 1.5},
    "a day out of range": {"id": 1, "day": 10**7},
    "no decimal": {"id": 1, "price": "x"},
}


@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("schema", [True, False])
def test_values_out_of_range_are_bad_records(spark: SparkSession, case: str, schema: bool) -> None:
    change = event("c", None, BAD_ROWS[case])
    reader = DebeziumReader(TYPED, ("id",))
    record = enveloped(change) if schema else change
    (found,) = parsed(spark, reader, [record]).collect()
    assert found[BAD_POSITION].offset == 0
    reason, column, _ = reader.explain(json.dumps(record).encode())
    (name,) = BAD_ROWS[case].keys() - {"id"}
    assert f"'{name}'" in reason, reason
    assert (column or 0) > 1


BAD: dict[str, tuple[dict[str, object], DebeziumReader, str, bool]] = {
    "update without the row before": (
        event("u", None, {"id": 1, "name": "a"}),
        DebeziumReader(ITEMS),
        "'before' is missing",
        True,
    ),
    "update with the key before": (
        event("u", {"id": 1, "name": "a"}, {"id": 1, "name": "a", "note": "b"}),
        DebeziumReader(ITEMS),
        "'before' lacks the column 'note'",
        True,
    ),
    "truncate": (event("t"), DebeziumReader(ITEMS), "a truncate requires", True),
    "delete without a key": (
        event("d", {"name": "a"}),
        KEYED,
        "in 'before', 'id' is NOT NULL",
        False,
    ),
    "upsert without a key": (
        event("c", None, {"name": "a"}),
        KEYED,
        "in 'after', 'id' is NOT NULL",
        False,
    ),
    "no event": (enveloped(5), KEYED, "'payload' is not a JSON object", False),
}


@pytest.mark.parametrize("case", BAD)
def test_events_that_cannot_be_applied_are_bad_records(spark: SparkSession, case: str) -> None:
    record, reader, wanted, needs_key = BAD[case]
    found = parsed(spark, reader, [record]).collect()
    assert {each[BAD_POSITION].offset for each in found} == {0}
    reason, _, hint = reader.explain(json.dumps(record).encode())
    assert reason.startswith(wanted), reason
    assert needs_key == ("PRIMARY KEY" in (hint or ""))
