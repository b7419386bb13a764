"""What a cluster refuses is the user's error, and names the message."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from resurgence.connectors.kafka.connection import KafkaConnection, Mechanism, Protocol
from resurgence.connectors.kafka.reading.cluster import Cluster
from resurgence.connectors.kafka.topics import require_topic, topic_setting
from resurgence.connectors.kafka.writing.marker_topic import MarkerTopic
from resurgence.errors import MessageRefused, UserError
from tests.kafka.lane_target import LaneTarget
from tests.servers.kafka import KafkaBroker


@pytest.fixture
def target(kafka_broker: KafkaBroker, tmp_path: Path) -> LaneTarget:
    return LaneTarget(kafka_broker, tmp_path)


def secure(broker: KafkaBroker) -> KafkaConnection:
    return KafkaConnection(
        broker.secure_bootstrap,
        Protocol.SASL_SSL,
        Mechanism.SCRAM_SHA_256,
        broker.username,
        broker.password,
        str(broker.ca_file),
    )


def test_a_missing_certificate_is_the_users_error(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resurgence.connectors.kafka.reading.cluster.REQUEST_SECONDS", 3.0)
    anonymous = KafkaConnection(
        kafka_broker.certified_bootstrap, Protocol.SSL, ca_file=str(kafka_broker.ca_file)
    )
    with pytest.raises(UserError, match="certificate") as refused:
        Cluster(anonymous).topics(["any"])
    assert "auth.*" in refused.value.hint


@pytest.mark.parametrize(
    ("role", "mechanism"),
    [
        ("source", Mechanism.PLAIN),
        ("source", Mechanism.SCRAM_SHA_256),
        ("sink", Mechanism.SCRAM_SHA_512),
    ],
)
def test_a_wrong_password_is_the_users_error(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, role: str, mechanism: Mechanism
) -> None:
    monkeypatch.setattr("resurgence.connectors.kafka.reading.cluster.REQUEST_SECONDS", 3.0)
    monkeypatch.setattr("resurgence.connectors.kafka.topics.ANSWER_SECONDS", 3.0)
    connection = replace(secure(kafka_broker), mechanism=mechanism, password="wrong")
    with pytest.raises(UserError, match=r"[Aa]uthentication failed") as refused:
        if role == "source":
            Cluster(connection).topics(["any"])
        else:
            require_topic(connection, "any")
    assert "auth.*" in refused.value.hint
    assert connection.password not in refused.value.message


def test_a_large_message_is_named_by_epoch_part_row_and_key(target: LaneTarget) -> None:
    parts = target.stage(7, (["a"], ["b", "x" * 5000, "c"]))
    with pytest.raises(MessageRefused, match="refuses a message of 5000 bytes") as refused:
        target.commit(target.order(7, parts, message_bytes=2000))
    assert refused.value.position.endswith("epoch 7, lane 0, part 1, row 1, key 0")
    assert target.visible() == ["a"]
    target.commit(target.order(7, parts))
    assert target.visible() == ["a", "b", "x" * 5000, "c"]


@pytest.mark.parametrize("markers", [True, False], ids=["exactly_once", "at_least_once"])
def test_a_denied_write_is_the_users_error(target: LaneTarget, markers: bool) -> None:
    target.broker.deny_write(target.topic)
    connection = secure(target.broker)
    topic = replace(target.markers, connection=connection) if markers else None
    order = target.order(1, target.stage(1, (["a"],)), connection=connection, markers=topic)
    with pytest.raises(MessageRefused, match="authorization failed") as refused:
        target.commit(order)
    assert refused.value.position.endswith("epoch 1, lane 0, part 0, row 0, key 0")
    assert "ACL" in refused.value.hint
    assert target.visible() == []


def test_a_topic_that_was_deleted_is_the_users_error(target: LaneTarget) -> None:
    order = target.order(1, target.stage(1, (["a"],)))
    target.broker.delete_topic(target.topic)
    with pytest.raises(MessageRefused, match=r"[Uu]nknown topic") as refused:
        target.commit(order)
    assert "epoch 1, lane 0, part 0, row 0" in refused.value.position


def test_a_topic_of_markers_that_may_not_be_created_is_the_users_error(
    kafka_broker: KafkaBroker,
) -> None:
    topic, name = kafka_broker.create_topic(), f"m-{uuid.uuid4().hex[:8]}"
    with (
        kafka_broker.topics_denied(),
        pytest.raises(UserError, match=f"creating topic '{name}' was denied") as denied,
    ):
        MarkerTopic(secure(kafka_broker), name).ensure(topic)
    assert "--replication-factor 1 --config cleanup.policy=compact" in denied.value.hint


def test_a_topic_of_markers_that_expire_is_refused(kafka_broker: KafkaBroker) -> None:
    name = kafka_broker.create_topic(config={"cleanup.policy": "delete"})
    with pytest.raises(UserError, match=r"cleanup.policy = delete, but markers must not expire"):
        MarkerTopic(KafkaConnection(kafka_broker.bootstrap), name).ensure(name)


def test_the_topic_of_markers_is_created_once_and_as_safe_as_the_topic(
    kafka_broker: KafkaBroker,
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap)
    # More than there are brokers, which only a producer would notice.
    topic = kafka_broker.create_topic(config={"min.insync.replicas": "2"})
    markers = MarkerTopic(connection, f"m-{uuid.uuid4().hex[:8]}")
    assert not markers.exists()
    markers.ensure(topic)
    markers.ensure(topic)
    assert markers.exists()
    assert topic_setting(connection, markers.name, "min.insync.replicas") == "2"
    assert topic_setting(connection, markers.name, "cleanup.policy") == "compact"


def test_a_denied_marker_names_the_topic_of_markers(target: LaneTarget) -> None:
    connection = secure(target.broker)
    target.broker.deny_write(target.markers.name)
    markers = replace(target.markers, connection=connection)
    order = target.order(1, target.stage(1, (["a"],)), connection=connection, markers=markers)
    with pytest.raises(UserError, match=f"writing topic '{target.markers.name}' failed") as refused:
        target.commit(order)
    assert "ACL" in refused.value.hint
    assert target.visible() == []
