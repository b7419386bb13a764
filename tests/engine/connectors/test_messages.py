"""JSON and Debezium's JSON as messages: tombstones, blank values, metadata, columns beside a value."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.debezium.events import DEBEZIUM_JSON
from resurgence.connectors.formats.json.lines import JSON
from resurgence.graph.values import CHANGE, Column
from tests.engine.connectors.messages import (
    bad_offsets,
    read,
    reader_of,
    rows_of,
    writer_of,
    written,
)

COLUMNS = (
    Column(name="id", type="BIGINT", nullable=False),
    Column(name="at", type="TIMESTAMP"),
)


def test_a_message_without_json_is_bad_and_explained(spark: SparkSession) -> None:
    values = [b'{"id": 1}', None, b"", b" ", b"\xff", b'{\n"id": 2\n}', b"null"]
    reader = reader_of(JSON, COLUMNS)
    found = read(spark, JSON, reader, values)
    assert rows_of(found) == [(1, None), (2, None)]
    assert bad_offsets(found) == [1, 2, 3, 4, 6]
    reasons = [reader.explain(values[each]).reason for each in bad_offsets(found)]
    assert reasons == [
        "no value (tombstone)",
        "not JSON: expecting value",
        "not JSON: expecting value",
        "not UTF-8: byte ff",
        "not a JSON object",
    ]


def test_metadata_may_be_in_other_columns_of_a_message(spark: SparkSession) -> None:
    columns = (
        Column(name="key", type="STRING", metadata="key"),
        *COLUMNS,
        Column(name="place", type="BIGINT", metadata="offset"),
    )
    found = read(spark, JSON, reader_of(JSON, columns), [b'{"id": 7, "key": "x"}', b"{}"])
    assert rows_of(found) == [("0", 7, None, 0)]
    assert bad_offsets(found) == [1]
    text = (
        Column(name="value", type="STRING"),
        Column(name="key", type="STRING", metadata="key"),
    )
    reader = reader_of(JSON, text, {"json.unstructured": "true"})
    assert rows_of(read(spark, JSON, reader, [b"a", b"b"])) == [("a", "0"), ("b", "1")]


def test_tombstones_of_debezium_are_no_records(spark: SparkSession) -> None:
    event = json.dumps({"before": None, "after": {"id": 1}, "op": "c"}).encode()
    found = read(spark, DEBEZIUM_JSON, reader_of(DEBEZIUM_JSON, COLUMNS), [event, None, b"\xff"])
    assert rows_of(found) == [(1, None, 1)]
    assert bad_offsets(found) == [2]


def test_columns_are_passed_beside_json_and_are_no_part_of_it(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, 'a' AS value, 'k' AS __key")
    found = writer_of(JSON, {}, "__key").render(rows)
    assert found.columns == [VALUE, "__key"]
    assert [tuple(each) for each in found.collect()] == [('{"id":1,"value":"a"}', "k")]
    assert written(found) == [b'{"id":1,"value":"a"}']


def test_columns_are_passed_beside_changes_with_and_without_keys(spark: SparkSession) -> None:
    changes = spark.createDataFrame(
        [(1, "a", -1, "k1"), (1, "b", 1, "k1"), (2, "c", 1, "k2")],
        f"id BIGINT, name STRING, {CHANGE} INT, __key STRING",
    )
    for keys, expected in (
        (("id",), {("k1", "u"), ("k2", "c")}),
        ((), {("k1", "d"), ("k1", "c"), ("k2", "c")}),
    ):
        found = writer_of(DEBEZIUM_JSON, {}, "__key", keys=keys).render(changes)
        assert found.columns == [VALUE, "__key"]
        events = [(each["__key"], json.loads(each[VALUE])) for each in found.collect()]
        assert {(key, event["op"]) for key, event in events} == expected
        assert all("__key" not in (event["after"] or event["before"]) for _, event in events)
    inserts = writer_of(DEBEZIUM_JSON, {}, "__key").render(changes.drop(CHANGE))
    assert {each["__key"] for each in inserts.collect()} == {"k1", "k2"}
    assert BAD_POSITION not in inserts.columns
