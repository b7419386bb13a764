"""What a sink asks a Kafka cluster, besides producing: which topics exist, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from resurgence.connectors.kafka.connection import KafkaConnection, admin_client, kafka_error
from resurgence.errors import UserError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConfigEntry, TopicDescription

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""The deadline of a request about topics."""
_DEFAULT_MESSAGE_BYTES = 1_000_000


def ask(connection: KafkaConnection, request: Callable[[AdminClient], Future[T]]) -> T:
    """Return the answer to a request. Raise KafkaException if it fails, or is not in time."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        return request(admin_client(connection)).result(ANSWER_SECONDS + 1)
    except TimeoutError as error:
        raise KafkaException(
            KafkaError(KafkaError._TIMED_OUT, f"no answer in {ANSWER_SECONDS:.0f} s")
        ) from error


def topic_partitions(connection: KafkaConnection, topic: str) -> int | None:
    """Return the number of a topic's partitions; None if it does not exist. Never creates it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    def describe(client: AdminClient) -> Future[TopicDescription]:
        named = TopicCollection([topic])
        return client.describe_topics(named, request_timeout=ANSWER_SECONDS)[topic]

    try:
        return len(ask(connection, describe).partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise kafka_error(error.args[0], f"reading topic '{topic}'", connection) from error


def require_topic(connection: KafkaConnection, topic: str) -> int:
    """Return the number of a topic's partitions. Raise UserError if it does not exist."""
    partitions = topic_partitions(connection, topic)
    if partitions is None:
        raise UserError(
            f"topic '{topic}' does not exist at {connection.bootstrap}",
            hint="Create it, or check the option 'topic'.",
        )
    return partitions


def topic_setting(connection: KafkaConnection, topic: str, name: str) -> str | None:
    """Return a setting of a topic; None if this client may not read it."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    def describe(client: AdminClient) -> Future[dict[str, ConfigEntry]]:
        named = ConfigResource(ResourceType.TOPIC, topic)
        return client.describe_configs([named], request_timeout=ANSWER_SECONDS)[named]

    try:
        entry = ask(connection, describe).get(name)
    except KafkaException as error:
        denied = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        if error.args[0].code() in denied:
            # The right to read settings is needed for nothing else.
            return None
        doing = f"reading the settings of topic '{topic}'"
        raise kafka_error(error.args[0], doing, connection) from error
    return None if entry is None or entry.value is None else str(entry.value)


def message_bytes_limit(connection: KafkaConnection, topic: str) -> int:
    """Return how large a message of a topic may be: the broker's limit, or the default of
    clients.
    """
    value = topic_setting(connection, topic, "max.message.bytes")
    return int(value) if value is not None else _DEFAULT_MESSAGE_BYTES
