"""Avro, in and out, with and without a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.avro.datums import AVRO
from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.schema_registry import prefix
from resurgence.errors import ConfigError, ConnectionLost, UserError
from resurgence.graph.values import Column
from tests.engine.connectors.messages import (
    SUBJECT,
    bad_offsets,
    read,
    reader_of,
    rows_of,
    writer_of,
    written,
)
from tests.servers.registry_stand_in import RegistryStandIn, running_stand_in
from tests.servers.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.usefixtures("avro_jars")

NOON = datetime(2024, 5, 6, 12)
TYPED = """SELECT * FROM VALUES
  (1L, 'a', TIMESTAMP '2024-01-01 00:00:00.123456', DATE '2024-02-29', 1.50BD, X'00ff', true, 0.1D,
   1.5F, 2S, 3Y, array(1, NULL), map('k', TIMESTAMP '2024-01-01 00:00:00'),
   named_struct('a', 1, 'b', array(named_struct('c', 'x'))), TIMESTAMP_NTZ '2024-01-01 00:00:00'),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (-2L, '', NULL, NULL, -0.01BD, X'', false, double('NaN'), float('Infinity'), -2S, -3Y, array(),
   map(), named_struct('a', NULL, 'b', NULL), NULL)
AS t(id, name, at, day, price, data, flag, ratio, small, short, tiny, xs, times, car, local)"""
COLUMNS = (
    Column(name="id", type="BIGINT", nullable=False),
    Column(name="name", type="STRING"),
    Column(name="at", type="TIMESTAMP"),
)


@pytest.fixture
def stand_in() -> Iterator[RegistryStandIn]:
    with running_stand_in() as server:
        yield server


def columns_of(rows: DataFrame) -> list[Column]:
    return [Column(name=each.name, type=each.dataType.simpleString()) for each in rows.schema]


def record(*fields: tuple[str, Any]) -> str:
    named = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Ride", "namespace": "org.test", "fields": named})


def encoded(spark: SparkSession, schema: str, select: str) -> bytes:
    rows = spark.sql(f"SELECT {select}")
    (row,) = rows.select(to_avro(F.struct("*"), schema)).collect()
    return bytes(row[0])


def endpoint(server: RegistryStandIn | SchemaRegistryServer) -> dict[str, str]:
    return {"schema_registry.endpoint": server.url}


def as_text(rows: Sequence[object]) -> list[str]:
    return [str(each) for each in rows]


def test_rows_are_read_as_they_were_written(spark: SparkSession) -> None:
    """Also a record of nulls only, which is how Spark returns one that it cannot read."""
    rows = spark.sql(TYPED)
    values = written(writer_of(AVRO).render(rows))
    found = read(spark, AVRO, reader_of(AVRO, columns_of(rows)), values)
    assert bad_offsets(found) == []
    assert as_text(rows_of(found)) == as_text([tuple(each) for each in rows.collect()])


def test_rows_are_read_as_they_were_written_with_a_registry(
    spark: SparkSession, schema_registry: SchemaRegistryServer
) -> None:
    rows = spark.sql(TYPED)
    values = written(writer_of(AVRO, endpoint(schema_registry)).render(rows))
    (number,) = schema_registry.schemas(SUBJECT)
    assert all(each.startswith(prefix(number)) for each in values)
    reader = reader_of(AVRO, columns_of(rows), endpoint(schema_registry))
    found = read(spark, AVRO, reader, values)
    assert bad_offsets(found) == []
    assert as_text(rows_of(found)) == as_text([tuple(each) for each in rows.collect()])


def test_a_sink_registers_its_schema_once(spark: SparkSession, stand_in: RegistryStandIn) -> None:
    writer = writer_of(AVRO, endpoint(stand_in))
    for _ in range(2):
        writer.render(spark.sql("SELECT 1 AS id"))
    assert stand_in.requests == [f"POST /subjects/{SUBJECT}/versions"]


def test_a_schema_that_the_registry_finds_incompatible_is_the_users_error(
    spark: SparkSession, schema_registry: SchemaRegistryServer
) -> None:
    options = endpoint(schema_registry)
    writer_of(AVRO, options).render(spark.sql("SELECT 1 AS id, 'a' AS name"))
    schema_registry.require_compatibility(SUBJECT, "BACKWARD")
    writer_of(AVRO, options).render(spark.sql("SELECT 1 AS id, 'a' AS name, 2 AS more"))
    with pytest.raises(UserError, match=r"answered 409: .*[Ii]ncompatible") as refused:
        writer_of(AVRO, options).render(spark.sql("SELECT 1 AS id, 2 AS name"))
    assert f"compatible with subject '{SUBJECT}'" in refused.value.hint
    assert len(schema_registry.schemas(SUBJECT)) == 2


def test_columns_are_passed_beside_a_record(
    spark: SparkSession, schema_registry: SchemaRegistryServer
) -> None:
    rows = spark.sql("SELECT 1 AS id, 'k' AS __key")
    found = writer_of(AVRO, endpoint(schema_registry), "__key").render(rows)
    assert found.columns == [VALUE, "__key"]
    ((number, schema),) = schema_registry.schemas(SUBJECT).items()
    assert json.loads(schema) == {
        "type": "record",
        "name": "rides_value",
        "fields": [{"name": "id", "type": ["null", "int"], "default": None}],
    }
    assert written(found) == [prefix(number) + b"\x02\x02"]


def test_bad_records_are_marked_and_explained(spark: SparkSession) -> None:
    schema = record(("id", ["null", "long"]), ("name", "string"))
    good = encoded(spark, schema, "1L AS id, 'abc' AS name")
    absent = encoded(spark, schema, "CAST(NULL AS BIGINT) AS id, 'abc' AS name")
    values = [good, None, b"", good[:-1], good + b"\x00", b"\xff\xff\xff", absent, good]
    reader = reader_of(AVRO, COLUMNS[:2], {"avro.schema": schema})
    found = read(spark, AVRO, reader, values)
    assert rows_of(found) == [(1, "abc"), (1, "abc")]
    assert bad_offsets(found) == [1, 2, 3, 4, 5, 6]
    assert found.where(f"{BAD_POSITION} IS NULL").select("name").count() == 2
    assert reader.explain(None).reason == "no value (tombstone)"
    assert reader.explain(b"").reason.startswith("not a record of the table's Avro schema")


def test_columns_are_found_by_name_and_converted(spark: SparkSession) -> None:
    schema = record(
        ("more", "double"),
        ("id", "int"),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("number", "long"),
        ("text", "string"),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("items", {"type": "array", "items": "int"}),
    )
    columns = (
        Column(name="kind", type="STRING"),
        Column(name="absent", type="STRUCT<a: INT>"),
        Column(name="key", type="STRING", metadata="key"),
        Column(name="id", type="BIGINT"),
        Column(name="at", type="TIMESTAMP"),
        Column(name="number", type="TIMESTAMP"),
        Column(name="text", type="TIMESTAMP"),
        Column(name="items", type="ARRAY<BIGINT>"),
        Column(name="more", type="DECIMAL(4, 1)"),
    )
    select = (
        "1.5D AS more, 7 AS id, TIMESTAMP '2024-05-06 12:00:00' AS at, 1714996800000L AS number,"
        " '{}' AS text, 'B' AS kind, array(1) AS items"
    )
    good = encoded(spark, schema, select.format("2024-05-06T12:00:00Z"))
    bad = [
        encoded(spark, schema, select.format("12:00")),
        encoded(spark, schema, select.format("2024-05-06").replace("1.5D", "1.55D")),
    ]
    options = {"avro.schema": schema, "timestamp_unit": "millis"}
    found = read(spark, AVRO, reader_of(AVRO, columns, options), [good, *bad])
    (row,) = rows_of(found)
    assert row[:8] == ("B", None, "0", 7, NOON, NOON, NOON, [1])
    assert str(row[8]) == "1.5"
    assert bad_offsets(found) == [1, 2]


def test_a_number_that_does_not_fit_its_column_is_bad(spark: SparkSession) -> None:
    schema = record(("a", "long"), ("xs", {"type": "array", "items": "long"}))
    values = [
        encoded(spark, schema, f"{a}L AS a, array({x}L) AS xs")
        for a, x in [(1, 2), (2**40, 2), (1, 2**40)]
    ]
    columns = (Column(name="a", type="INT"), Column(name="xs", type="ARRAY<INT>"))
    found = read(spark, AVRO, reader_of(AVRO, columns, {"avro.schema": schema}), values)
    assert rows_of(found) == [(1, [2])]
    assert bad_offsets(found) == [1, 2]


def test_a_type_that_no_value_fits_is_refused(spark: SparkSession) -> None:
    schema = record(("id", {"type": "array", "items": "int"}))
    reader = reader_of(AVRO, COLUMNS[:1], {"avro.schema": schema})
    with pytest.raises(UserError, match=r"'id' is of another type .* array<int> instead of bigint"):
        read(spark, AVRO, reader, [b""])


def test_records_of_several_versions_are_read_in_one_epoch(
    spark: SparkSession, schema_registry: SchemaRegistryServer
) -> None:
    first = record(("id", "int"), ("name", "string"))
    second = record(("name", ["null", "string"]), ("at", "long"), ("id", "long"))
    other = record(("id", "long"))
    ids = [schema_registry.add(SUBJECT, first), schema_registry.add("other", other)]
    reader = reader_of(AVRO, COLUMNS, endpoint(schema_registry))
    old = prefix(ids[0]) + encoded(spark, first, "1 AS id, 'a' AS name")
    assert rows_of(read(spark, AVRO, reader, [old])) == [(1, "a", None)]

    ids.append(schema_registry.add(SUBJECT, second))
    new = prefix(ids[2]) + encoded(
        spark, second, "CAST(NULL AS STRING) AS name, 1714996800L AS at, 2L AS id"
    )
    foreign = prefix(ids[1]) + encoded(spark, other, "3L AS id")
    unknown = ids[2] + 1000
    values = [old, new, foreign, prefix(unknown) + b"x", b"\x01", b"", new[:-1], None, old]
    found = read(spark, AVRO, reader, values)
    assert rows_of(found) == [(1, "a", None), (2, None, NOON), (1, "a", None)]
    assert bad_offsets(found) == [2, 3, 4, 5, 6, 7]
    assert [reader.explain(each).reason for each in values[2:8]] == [
        f"schema {ids[1]} is not a version of subject 'rides-value'",
        f"schema {unknown} is not a version of subject 'rides-value'",
        "does not begin with the id of a schema",
        "does not begin with the id of a schema",
        f"not a record of schema {ids[2]}, or a value does not fit its column",
        "no value (tombstone)",
    ]


def test_without_any_schema_every_record_is_bad(
    spark: SparkSession, schema_registry: SchemaRegistryServer
) -> None:
    reader = reader_of(AVRO, COLUMNS, endpoint(schema_registry))
    assert bad_offsets(read(spark, AVRO, reader, [prefix(1)])) == [0]


def test_a_registry_is_checked_before_spark_starts(stand_in: RegistryStandIn) -> None:
    stand_in.status = 503
    for each in (reader_of(AVRO, COLUMNS, endpoint(stand_in)), writer_of(AVRO, endpoint(stand_in))):
        with pytest.raises(ConnectionLost):
            each.check()
    reader_of(AVRO, COLUMNS).check()


def test_a_schema_in_an_option_is_used_by_a_sink(
    spark: SparkSession, schema_registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    schema = record(("name", "string"), ("id", "long"))
    options = {"avro.schema": schema, **endpoint(schema_registry)}
    found = written(writer_of(AVRO, options).render(spark.sql("SELECT 1L AS id, 'a' AS name")))
    ((number, registered),) = schema_registry.schemas(SUBJECT).items()
    assert found == [prefix(number) + b"\x02a\x02"]
    assert registered == schema
    with pytest.raises(ConfigError, match="exclude each other"):
        reader_of(AVRO, COLUMNS, options)
    for text in ("{", '"int"'):
        with pytest.raises(UserError, match=r"not a valid value for option 'avro\.schema'"):
            writer_of(AVRO, {"avro.schema": text})


def test_what_avro_cannot_hold_is_refused(spark: SparkSession) -> None:
    for select, message in (
        ("1 AS `a b`", "'a b' cannot be the name of a field"),
        ("map(1, 2) AS m", "map<int,int> cannot be written"),
        ("INTERVAL '1' DAY AS d", "interval day cannot be written"),
    ):
        with pytest.raises(UserError, match=message):
            writer_of(AVRO).render(spark.sql(f"SELECT {select}"))
