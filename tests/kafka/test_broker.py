"""The broker of the tests does what the tests of Kafka rely on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.servers.builds import NoServer
from tests.servers.kafka import PASSWORDS, KafkaBroker, running_broker
from tests.servers.kafka_records import Record, produce

_PATIENCE = 30.0


@contextmanager
def _transaction(broker: KafkaBroker) -> Iterator[Producer]:
    producer = Producer({**broker.settings, "transactional.id": broker.create_topic()})
    producer.init_transactions(_PATIENCE)
    producer.begin_transaction()
    yield producer


def test_records_are_read_as_they_were_produced(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic(partitions=2)
    produced = [
        Record(b"\x00\xff", b"key", (("a", b"1"), ("b", None)), 1_700_000_000_000, partition=0),
        Record(None, b"deleted", partition=1),
        Record(b"line\nbreak", partition=1),
    ]
    kafka_broker.produce(topic, produced)
    found = kafka_broker.read(topic)
    assert [(each.partition, each.offset) for each in found] == [(0, 0), (1, 0), (1, 1)]
    assert [(each.key, each.value, each.headers) for each in found] == [
        (each.key, each.value, each.headers) for each in produced
    ]
    assert found[0].timestamp == 1_700_000_000_000


def test_committed_records_are_read_once_by_both_clients(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic()
    for value, is_committed in ((b"aborted", False), (b"committed\n", True)):
        with _transaction(kafka_broker) as producer:
            producer.produce(topic, value, key=b"key")
            producer.flush(_PATIENCE)
            if is_committed:
                producer.commit_transaction(_PATIENCE)
            else:
                producer.abort_transaction(_PATIENCE)
    with _transaction(kafka_broker) as producer:
        producer.produce(topic, b"open")
        producer.flush(_PATIENCE)
        both = kafka_broker.read(topic), kafka_broker.read_by_java(topic)
        everything = kafka_broker.read(topic, "read_uncommitted")
        producer.abort_transaction(_PATIENCE)
    for found in both:
        assert [(each.key, each.value, each.offset) for each in found] == [
            (b"key", b"committed\n", 2)
        ]
    assert [each.value for each in everything] == [b"aborted", b"committed\n", b"open"]


def test_topics_do_not_appear_by_themselves(kafka_broker: KafkaBroker) -> None:
    impatient = {**kafka_broker.settings, "topic.metadata.propagation.max.ms": 100}
    with pytest.raises(KafkaException) as refused:
        produce(impatient, "nobody-created-this", [b"value"])
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_deleted_topics_are_gone(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic()
    kafka_broker.delete_topic(topic)
    assert topic not in kafka_broker.admin().list_topics(timeout=_PATIENCE).topics


def test_the_user_of_the_secure_listener_can_write(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic()
    for mechanism, password in PASSWORDS.items():
        login = {"sasl.mechanism": mechanism, "sasl.password": password}
        produce({**kafka_broker.secure_settings, **login}, topic, [mechanism.encode()])
    written = [each.value for each in kafka_broker.read(topic)]
    assert written == [each.encode() for each in PASSWORDS]


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_wrong_password_is_refused(kafka_broker: KafkaBroker, mechanism: str) -> None:
    wrong = {"sasl.mechanism": mechanism, "sasl.password": "wrong"}
    refusals = _refusals({**kafka_broker.secure_settings, **wrong})
    assert KafkaError._AUTHENTICATION in refusals


def test_a_server_of_another_authority_is_refused(kafka_broker: KafkaBroker) -> None:
    settings = kafka_broker.secure_settings
    del settings["ssl.ca.location"]
    assert KafkaError._SSL in _refusals(settings)


def _refusals(settings: dict[str, Any]) -> list[int]:
    """The codes of the errors of a client that is refused."""
    seen: list[KafkaError] = []
    watched: dict[str, Any] = {**settings, "error_cb": seen.append, "log_level": 0}
    admin = AdminClient(watched)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    return [each.code() for each in seen]


def test_a_user_can_be_denied_to_write_to_a_topic(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic()
    kafka_broker.deny_write(topic)
    with pytest.raises(KafkaException) as refused:
        produce(kafka_broker.secure_settings, topic, [b"denied"])
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    kafka_broker.produce(topic, [b"allowed"])
    assert [each.value for each in kafka_broker.read(topic)] == [b"allowed"]


def test_a_killed_broker_restarts_with_its_records_and_its_open_transactions() -> None:
    try:
        with running_broker(properties={"log.index.interval.bytes": "1024"}) as broker:
            topic, bootstrap = broker.create_topic(), broker.bootstrap
            broker.produce(topic, [b"before"])
            with _transaction(broker) as producer:
                producer.produce(topic, b"in the transaction")
                producer.flush(_PATIENCE)
                broker.kill()
                broker.restart()
                assert broker.bootstrap == bootstrap
                producer.produce(topic, b"after")
                producer.commit_transaction(_PATIENCE)
            assert [each.value for each in broker.read(topic)] == [
                b"before",
                b"in the transaction",
                b"after",
            ]
    except NoServer as error:
        pytest.skip(f"no Kafka server: {error}")
