"""The client of a schema registry against a real one."""

from __future__ import annotations

import json

import pytest

from resurgence.connectors.formats.schema_registry import RegisteredSchema, SchemaRegistry
from resurgence.errors import UserError
from tests.servers.schema_registry import SchemaRegistryServer

NAME = "rides/all-value"


def client(server: SchemaRegistryServer, name: str = NAME) -> SchemaRegistry:
    return SchemaRegistry(server.url, name)


def record(name: str, **fields: object) -> str:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def test_all_versions_of_a_subject_are_found(schema_registry: SchemaRegistryServer) -> None:
    registry = client(schema_registry)
    registry.check()
    assert registry.schemas() == ()
    first = schema_registry.add(NAME, '"int"')
    schema_registry.add("other-value", '"string"')
    second = schema_registry.add(NAME, '"long"')
    newest = RegisteredSchema(second, "AVRO", '"long"')
    assert registry.schemas() == (RegisteredSchema(first, "AVRO", '"int"'), newest)
    assert registry.latest() == newest


def test_a_schema_that_is_registered_again_keeps_its_id(
    schema_registry: SchemaRegistryServer,
) -> None:
    number = client(schema_registry).register("AVRO", '"int"')
    assert client(schema_registry).register("AVRO", '"int"') == number
    assert client(schema_registry).register("AVRO", '"long"') != number
    assert [*schema_registry.schemas(NAME).values()] == ['"int"', '"long"']


def test_the_kind_of_a_schema_is_known(schema_registry: SchemaRegistryServer) -> None:
    proto = 'syntax = "proto3"; message Ride { int64 id = 1; }'
    number = client(schema_registry).register("PROTOBUF", proto)
    assert client(schema_registry).latest() == RegisteredSchema(number, "PROTOBUF", proto)


def test_a_deleted_version_is_still_read(schema_registry: SchemaRegistryServer) -> None:
    ids = [schema_registry.add(NAME, each) for each in ('"int"', '"long"')]
    schema_registry.delete_version(NAME, 1)
    assert [*schema_registry.schemas(NAME)] == ids[1:]
    assert [each.id for each in client(schema_registry).schemas()] == ids


def test_a_subject_that_must_exist_is_named_if_it_does_not(
    schema_registry: SchemaRegistryServer,
) -> None:
    with pytest.raises(UserError, match="answered 404") as refused:
        client(schema_registry).latest()
    assert NAME in refused.value.hint


def test_an_incompatible_schema_is_refused(schema_registry: SchemaRegistryServer) -> None:
    schema_registry.add(NAME, '"long"')
    schema_registry.require_compatibility(NAME, "BACKWARD")
    with pytest.raises(UserError, match=r"answered 409: .*[Ii]ncompatible") as refused:
        client(schema_registry).register("AVRO", '"string"')
    assert f"compatible with subject '{NAME}'" in refused.value.hint


def test_a_schema_that_cannot_be_parsed_is_refused(schema_registry: SchemaRegistryServer) -> None:
    with pytest.raises(UserError, match="answered 422"):
        client(schema_registry).register("AVRO", "{")


def test_a_schema_that_refers_to_others_is_refused(schema_registry: SchemaRegistryServer) -> None:
    schema_registry.add("car-value", record("Car", plate="string"))
    references = [{"name": "Car", "subject": "car-value", "version": 1}]
    number = schema_registry.add(NAME, record("Ride", car="Car"), references=references)
    with pytest.raises(UserError, match=f"schema {number} of subject '{NAME}' refers to other"):
        client(schema_registry).schemas()


def test_an_address_that_is_not_that_of_the_protocol_is_the_users_error(
    schema_registry: SchemaRegistryServer,
) -> None:
    root = f"http://127.0.0.1:{schema_registry.port}"
    with pytest.raises(UserError, match="answered 404: Not Found"):
        SchemaRegistry(root, NAME).check()
