"""Avro and Protobuf through topics of a broker, with and without a schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tests.engine.harness import Job, read_lines, sink_table, source_table, write_lines
from tests.kafka.topics import TopicJob, drained
from tests.servers.schema_registry import SchemaRegistryServer

COLUMNS = "id BIGINT NOT NULL, name TEXT NOT NULL"
PROTO = 'syntax = "proto3"; message Ride { int64 id = 1; string name = 2; }'
ROWS: list[dict[str, object]] = [{"id": each, "name": f"n{each}"} for each in range(5)]


@pytest.mark.usefixtures("avro_jars")
def test_avro_and_protobuf_through_a_topic_with_and_without_a_registry(
    topics: TopicJob, schema_registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    protobuf = {
        "format": "protobuf",
        "protobuf.descriptor_file": str(descriptor_file(tmp_path)),
        "protobuf.message": "Ride",
    }
    endpoint = {"schema_registry.endpoint": schema_registry.url}
    tables = {
        "avro": {"format": "avro"},
        "avro_by_id": {"format": "avro", **endpoint},
        "proto": protobuf,
        "proto_by_id": {**protobuf, **endpoint},
    }
    names = {each: topics.broker.create_topic() for each in tables}
    proto_id = schema_registry.add(f"{names['proto_by_id']}-value", PROTO, "PROTOBUF")
    write = source_table(write_lines(tmp_path / "events.json", ROWS), COLUMNS, delay=None)
    read = ""
    for each, options in tables.items():
        common = {
            "connector": "kafka",
            "bootstrap_servers": topics.broker.bootstrap,
            "topic": names[each],
            **options,
        }
        markers = {"sink.marker_topic": f"{names[each]}-markers"}
        write += table(each, COLUMNS, {"type": "sink", **common, **markers})
        write += f"INSERT INTO {each} SELECT id, name FROM events;\n"
        start = {"source.offset": "earliest", "source.stop_at": "latest"}
        read += table(each, COLUMNS, {"type": "source", **common, **start})
        read += sink_table(tmp_path / f"{each}.json", name=f"{each}_out", connector="single_file")
        read += f"INSERT INTO {each}_out SELECT id, name FROM {each};\n"
    drained(Job(topics.spark, tmp_path, write, name="write").open())
    avro_subject = f"{names['avro_by_id']}-value"
    assert schema_registry.subjects() == {avro_subject, f"{names['proto_by_id']}-value"}
    (avro_id,) = schema_registry.schemas(avro_subject)
    drained(Job(topics.spark, tmp_path, read, name="read").open())
    for each in tables:
        assert sorted(read_lines(tmp_path / f"{each}.json"), key=str) == ROWS
        number = {"avro_by_id": avro_id, "proto_by_id": proto_id}.get(each)
        prefix = b"" if number is None else b"\0" + number.to_bytes(4, "big")
        values = [record.value or b"" for record in topics.broker.read(names[each])]
        assert all(value.startswith(prefix) for value in values)
        assert len(values) == len(ROWS)


def table(name: str, columns: str, options: Mapping[str, str]) -> str:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({listed});\n"


def descriptor_file(folder: Path) -> Path:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="ride.proto", syntax="proto3")
    message = file.message_type.add(name="Ride")
    for number, (name, type_) in enumerate(
        (("id", kind.TYPE_INT64), ("name", kind.TYPE_STRING)), 1
    ):
        message.field.add(name=name, number=number, type=type_, label=kind.LABEL_OPTIONAL)
    path = folder / "ride.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path
