"""Protobuf, in and out, with and without a schema registry."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.protobuf.messages import MessageType
from resurgence.connectors.formats.protobuf.records import PROTOBUF
from resurgence.connectors.formats.schema_registry import prefix
from resurgence.errors import ConfigError, UserError
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
from tests.servers.schema_registry import SchemaRegistryServer

Kind = descriptor_pb2.FieldDescriptorProto
FIELDS = {
    "id": Kind.TYPE_INT64,
    "name": Kind.TYPE_STRING,
    "price": Kind.TYPE_DOUBLE,
    "flag": Kind.TYPE_BOOL,
    "data": Kind.TYPE_BYTES,
    "big": Kind.TYPE_UINT64,
    "small": Kind.TYPE_INT32,
}
COLUMNS = (
    Column(name="id", type="BIGINT", nullable=False),
    Column(name="name", type="STRING", nullable=False),
    Column(name="at", type="TIMESTAMP"),
    Column(name="kind", type="STRING"),
    Column(name="car", type="STRUCT<plate: STRING, seats: BIGINT>"),
    Column(name="tags", type="ARRAY<STRING>"),
    Column(name="data", type="BINARY"),
    Column(name="big", type="DECIMAL(20, 0)"),
)
NOON = datetime(2024, 5, 6, 12)


def descriptor_set() -> Any:
    """The file with `Other` and `Ride`, and what it imports."""
    file = descriptor_pb2.FileDescriptorProto(
        name="ride.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    file.message_type.add(name="Other").field.add(
        name="x", number=1, type=Kind.TYPE_INT32, label=Kind.LABEL_OPTIONAL
    )
    ride = file.message_type.add(name="Ride")
    kinds = ride.enum_type.add(name="Kind")
    for number, name in enumerate(["UNKNOWN", "TAXI"]):
        kinds.value.add(name=name, number=number)
    car = ride.nested_type.add(name="Car")
    for number, (name, kind) in enumerate(
        {"plate": Kind.TYPE_STRING, "seats": Kind.TYPE_INT32}.items(), start=1
    ):
        car.field.add(name=name, number=number, type=kind, label=Kind.LABEL_OPTIONAL)
    for number, (name, kind) in enumerate(FIELDS.items(), start=1):
        ride.field.add(name=name, number=number, type=kind, label=Kind.LABEL_OPTIONAL)
    ride.oneof_decl.add(name="_name")
    ride.field[1].proto3_optional = True
    ride.field[1].oneof_index = 0
    for number, (name, kind, of) in enumerate(
        [
            ("at", Kind.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            ("kind", Kind.TYPE_ENUM, ".shop.Ride.Kind"),
            ("car", Kind.TYPE_MESSAGE, ".shop.Ride.Car"),
        ],
        start=20,
    ):
        ride.field.add(name=name, number=number, type=kind, type_name=of, label=Kind.LABEL_OPTIONAL)
    ride.field.add(name="tags", number=30, type=Kind.TYPE_STRING, label=Kind.LABEL_REPEATED)
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return descriptor_pb2.FileDescriptorSet(file=[imported, file])


def message_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_set().file:
        pool.AddSerializedFile(each.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "ride.desc"
    path.write_bytes(descriptor_set().SerializeToString())
    return {"protobuf.descriptor_file": str(path), "protobuf.message": "shop.Ride"}


def ride(**fields: Any) -> Any:
    return message_class("shop.Ride")(**fields)


def full_ride() -> Any:
    found = ride(id=1, name="a", kind=1, tags=["x", "y"], data=b"\x00\xff", big=2**63 + 1)
    found.at.FromDatetime(NOON)
    found.car.plate = "p"
    return found


ROW = (1, "a", NOON, "TAXI", ("p", 0), ["x", "y"], b"\x00\xff", 2**63 + 1)


def test_messages_are_read_by_the_names_of_fields(
    spark: SparkSession, options: dict[str, str]
) -> None:
    columns = (Column(name="key", type="STRING", metadata="key"), *COLUMNS)
    reader = reader_of(PROTOBUF, columns, options)
    reader.check()
    values = [full_ride().SerializeToString(), ride(id=2, name="").SerializeToString()]
    first, second = rows_of(read(spark, PROTOBUF, reader, values))
    assert first == ("0", *ROW)
    # Fields without presence have a default, others are null.
    assert second == ("1", 2, "", None, "UNKNOWN", None, [], b"", 0)


def test_bad_messages_are_marked_and_explained(
    spark: SparkSession, options: dict[str, str]
) -> None:
    good = full_ride().SerializeToString()
    values = [good, None, good[:-1], b"\xff", ride(id=3).SerializeToString(), b"\x12\x01\xff", good]
    reader = reader_of(PROTOBUF, COLUMNS, options)
    found = read(spark, PROTOBUF, reader, values)
    assert rows_of(found) == [ROW, ROW]
    assert bad_offsets(found) == [1, 2, 3, 4, 5]
    only_nullable = reader_of(PROTOBUF, COLUMNS[2:], options)
    assert bad_offsets(read(spark, PROTOBUF, only_nullable, values)) == [1, 2, 3, 5]
    reasons = [reader.explain(each).reason for each in values[1:6]]
    assert reasons[0] == "no value (tombstone)"
    assert all("failed to decode" in each for each in (reasons[1], reasons[2], reasons[4]))
    assert reasons[3] == "does not fit the table's columns"


def test_many_messages_with_few_bad_ones_are_read(
    spark: SparkSession, options: dict[str, str]
) -> None:
    good = full_ride().SerializeToString()
    values = [good] * 3000
    for place in (0, 1499, 2999):
        values[place] = b"\xff"
    found = read(spark, PROTOBUF, reader_of(PROTOBUF, COLUMNS, options), values)
    assert bad_offsets(found) == [0, 1499, 2999]
    assert rows_of(found) == [ROW] * 2997


SELECT = (
    "SELECT 1L AS id, 'a' AS name, TIMESTAMP '2024-05-06 12:00:00' AS at, 'TAXI' AS kind,"
    " named_struct('plate', 'p', 'seats', 0) AS car, array('x', 'y') AS tags, X'00ff' AS data,"
    " 9223372036854775809BD AS big, 'k' AS __key"
)


def test_rows_are_read_as_they_were_written(spark: SparkSession, options: dict[str, str]) -> None:
    found = writer_of(PROTOBUF, options, "__key").render(spark.sql(SELECT))
    assert found.columns == [VALUE, "__key"]
    assert [each["__key"] for each in found.collect()] == ["k"]
    values = written(found)
    assert str(message_class("shop.Ride").FromString(values[0])) == str(full_ride())
    reader = reader_of(PROTOBUF, COLUMNS, options)
    assert rows_of(read(spark, PROTOBUF, reader, values)) == [ROW]


def test_a_null_is_a_field_that_is_not_set(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.sql("SELECT 7L AS id, CAST(NULL AS STRING) AS name, CAST(NULL AS TIMESTAMP) AS at")
    assert written(writer_of(PROTOBUF, options).render(rows)) == [ride(id=7).SerializeToString()]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("5000000000L AS small", "a value of column small does not fit"),
        ("'BUS' AS kind", "'BUS' is not a value of enum 'shop.Ride.Kind'"),
        ("array('x', NULL) AS tags", "'tags' of 'shop.Ride' cannot contain a null"),
    ],
)
def test_values_that_a_message_cannot_hold_fail(
    spark: SparkSession, options: dict[str, str], select: str, message: str
) -> None:
    rendered = writer_of(PROTOBUF, options).render(spark.sql(f"SELECT {select}"))
    with pytest.raises(PySparkException, match=message):
        rendered.collect()


def test_columns_must_be_fields_of_a_fitting_type(
    spark: SparkSession, options: dict[str, str]
) -> None:
    with pytest.raises(UserError, match=r"message 'shop\.Ride' has no field 'nam'") as caught:
        reader_of(PROTOBUF, (Column(name="nam", type="STRING"),), options).check()
    assert "name" in caught.value.hint
    with pytest.raises(UserError, match="has no field 'x'"):
        writer_of(PROTOBUF, options).render(spark.sql("SELECT 1 AS x"))
    reader = reader_of(PROTOBUF, (Column(name="car", type="INT"),), options)
    with pytest.raises(UserError, match="'car' and its field in the Protobuf message differ"):
        read(spark, PROTOBUF, reader, [b""])


def test_a_registry_adds_the_id_of_the_schema_and_the_place_of_the_message(
    spark: SparkSession, options: dict[str, str], schema_registry: SchemaRegistryServer
) -> None:
    number = schema_registry.add(SUBJECT, "message Ride {}", "PROTOBUF")
    both = {**options, "schema_registry.endpoint": schema_registry.url}
    values = written(writer_of(PROTOBUF, both, "__key").render(spark.sql(SELECT)))
    assert values[0].startswith(prefix(number) + b"\x02\x02")
    reader = reader_of(PROTOBUF, COLUMNS, both)
    plain = full_ride().SerializeToString()
    others = [plain, prefix(number) + b"\x00" + b"\x08\x01", b"", prefix(number)]
    found = read(spark, PROTOBUF, reader, [*values, *others])
    assert rows_of(found) == [ROW]
    assert bad_offsets(found) == [1, 2, 3, 4]
    assert [reader.explain(each).reason for each in others] == [
        "does not begin with the id of a schema",
        "not a message of type 'shop.Ride'",
        "does not begin with the id of a schema",
        "not a message of type 'shop.Ride'",
    ]


def test_the_place_of_a_message_is_that_in_its_file() -> None:
    descriptors = descriptor_set().SerializeToString()
    places = {
        name: MessageType(descriptors, name).index
        for name in ("shop.Other", "shop.Ride", "shop.Ride.Car")
    }
    assert places == {
        "shop.Other": b"\x00",
        "shop.Ride": b"\x02\x02",
        "shop.Ride.Car": b"\x04\x02\x00",
    }


def test_a_wrong_descriptor_file_is_the_users_error(
    options: dict[str, str], tmp_path: Path
) -> None:
    broken, partial = tmp_path / "broken", tmp_path / "partial"
    broken.write_bytes(b"\xff\xff")
    whole = descriptor_set()
    del whole.file[0]
    partial.write_bytes(whole.SerializeToString())
    for name, value, message in (
        ("protobuf.descriptor_file", str(tmp_path / "none"), "cannot be read"),
        ("protobuf.descriptor_file", str(broken), "not a complete descriptor file"),
        ("protobuf.descriptor_file", str(partial), "not a complete descriptor file"),
        ("protobuf.message", "shop.Rides", "there is no message 'shop.Rides'"),
    ):
        with pytest.raises(ConfigError, match=message):
            reader_of(PROTOBUF, COLUMNS, {**options, name: value})
