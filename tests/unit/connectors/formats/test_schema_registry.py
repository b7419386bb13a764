"""The client of a schema registry: failures, deadlines, and numbers of requests, over HTTP against a
stand-in. `tests/integration/test_schema_registry.py` has what a real registry answers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from tests.servers.registry_stand_in import RegistryStandIn, running_stand_in

from resurgence.connectors.formats import schema_registry as subject
from resurgence.connectors.formats.schema_registry import (
    SchemaRegistry,
    SchemaRegistryOptions,
    prefix,
    schema_id,
)
from resurgence.errors import ConfigError, ConnectionLost, UserError

NAME = "rides/all-value"


@pytest.fixture
def server() -> Iterator[RegistryStandIn]:
    with running_stand_in() as registry:
        yield registry


def client(server: RegistryStandIn, key: str = "", secret: str = "") -> SchemaRegistry:
    options = {"schema_registry.endpoint": server.url + "/"}
    if key:
        options["schema_registry.api_key"] = key
        options["schema_registry.api_secret"] = secret
    found = SchemaRegistryOptions.read(options).registry(NAME)
    assert found is not None
    return found


def test_all_versions_of_a_subject_are_found_and_read_once(server: RegistryStandIn) -> None:
    registry = client(server)
    assert registry.schemas() == ()
    server.add("other-value", '"int"')
    server.add(NAME, '"long"')
    assert [(each.id, each.text, each.kind) for each in registry.schemas()] == [
        (2, '"long"', "AVRO")
    ]
    server.add(NAME, '"string"')
    assert [each.id for each in registry.schemas()] == [2, 3]
    assert registry.latest().text == '"string"'
    reads = [each for each in server.requests if each.endswith("versions/1")]
    assert len(reads) == 1


def test_a_schema_is_registered_once(server: RegistryStandIn) -> None:
    registry = client(server)
    assert registry.register("AVRO", '"int"') == registry.register("AVRO", '"int"') == 1
    assert server.requests == ["POST /subjects/rides%2Fall-value/versions"]
    assert client(server).register("AVRO", '"int"') == 1
    assert server.subjects == {NAME: [1]}


def test_credentials_are_sent_and_wrong_ones_are_the_users_error(server: RegistryStandIn) -> None:
    server.user, server.password = "me", "s3cret"
    client(server, "me", "s3cret").check()
    for registry in (client(server), client(server, "me", "wrong")):
        with pytest.raises(UserError, match="answered 401: Unauthorized") as caught:
            registry.check()
        assert "schema_registry.api_secret" in caught.value.hint
    assert "wrong" not in repr(client(server, "me", "wrong"))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (409, UserError),
        (422, UserError),
        (400, UserError),
        (429, ConnectionLost),
        (500, ConnectionLost),
    ],
)
def test_refusals_are_translated(
    server: RegistryStandIn, status: int, kind: type[Exception]
) -> None:
    server.status = status
    with pytest.raises(kind, match=f"answered {status}: refused by the test"):
        client(server).register("AVRO", '"int"')


def test_a_subject_that_must_exist_is_named_if_it_does_not(server: RegistryStandIn) -> None:
    with pytest.raises(UserError, match="answered 404") as caught:
        client(server).latest()
    assert NAME in caught.value.hint


def test_an_answer_that_is_not_of_a_registry_is_refused(server: RegistryStandIn) -> None:
    server.add(NAME, '"int"')
    for body in (b"<html>", b'{"a": 1}', b'["x"]'):
        server.body = body
        with pytest.raises(UserError, match="does not answer as a schema registry"):
            client(server).check()


def test_another_server_is_not_taken_for_a_registry_without_the_subject(
    server: RegistryStandIn,
) -> None:
    server.body = b"<html>not found</html>"
    with pytest.raises(UserError, match="answered 404: Not Found"):
        client(server).check()


def test_a_registry_that_is_down_is_a_lost_connection() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ConnectionLost, match="does not respond"):
        SchemaRegistry(f"http://127.0.0.1:{port}", NAME).check()


def test_a_registry_that_hangs_is_given_up_at_the_deadline(
    server: RegistryStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_REQUEST_SECONDS", 0.2)
    server.delay = 30.0
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match="does not respond"):
        client(server).check()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("endpoint", ["registry:8081", "ftp://x"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="not a valid value"):
        SchemaRegistry(endpoint, NAME).check()


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        (
            {"schema_registry.endpoint": "http://x", "schema_registry.api_key": "a"},
            NAME,
            "together",
        ),
        (
            {"schema_registry.api_key": "a", "schema_registry.api_secret": "b"},
            NAME,
            r"requires 'schema_registry\.endpoint'",
        ),
        ({"schema_registry.endpoint": "http://x"}, None, "a connector of messages"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, str], name: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SchemaRegistryOptions.read(options).registry(name)
    assert SchemaRegistryOptions.read({}).registry(name) is None


def test_the_id_of_a_schema_is_in_the_first_bytes_of_a_record() -> None:
    assert prefix(258) == b"\x00\x00\x00\x01\x02"
    assert schema_id(prefix(258) + b"data") == 258
    assert schema_id(b"\x01\x00\x00\x00\x01") is None
    assert schema_id(b"\x00\x00") is None
