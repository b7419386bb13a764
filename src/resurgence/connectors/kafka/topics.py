"""What a sink asks a Kafka cluster, besides producing: which topics exist, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from resurgence.connectors.kafka.connection import (
    KafkaConnection,
    Refusals,
    admin_client,
    kafka_error,
)
from resurgence.errors import UserError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConfigEntry, TopicDescription

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""The deadline of a request about topics."""
_DEFAULT_MESSAGE_BYTES = 1_000_000
"""The default of clients, below that of brokers."""


@dataclass(frozen=True)
class MessageLimit:
    """How large a message may be."""

    bytes: int = _DEFAULT_MESSAGE_BYTES
    is_known: bool = False
    """It is the limit of the topic. If not, this client may not read that, and it is assumed."""


def ask(connection: KafkaConnection, request: Callable[[AdminClient], Future[T]]) -> T:
    """Return the answer to a request. Raise KafkaException if it fails, or is not in time."""
    from confluent_kafka import KafkaError, KafkaException

    refusals = Refusals()
    client = admin_client(connection, refusals)
    try:
        return request(client).result(ANSWER_SECONDS + 1)
    except KafkaException as error:
        raise KafkaException(refusals.reason(client, error.args[0])) from error
    except TimeoutError as error:
        late = KafkaError(KafkaError._TIMED_OUT, f"no answer in {ANSWER_SECONDS:.0f} s")
        raise KafkaException(refusals.reason(client, late)) from error


@dataclass(frozen=True)
class TopicShape:
    """What a topic is made of."""

    partitions: int
    replicas: int
    """Of its first partition."""


def topic_shape(connection: KafkaConnection, topic: str) -> TopicShape | None:
    """Return the shape of a topic; None if it does not exist. Never creates it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    def describe(client: AdminClient) -> Future[TopicDescription]:
        named = TopicCollection([topic])
        return client.describe_topics(named, request_timeout=ANSWER_SECONDS)[topic]

    try:
        partitions = ask(connection, describe).partitions
        return TopicShape(len(partitions), len(partitions[0].replicas))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise kafka_error(error.args[0], f"reading topic '{topic}'", connection) from error


def require_topic(connection: KafkaConnection, topic: str) -> TopicShape:
    """Return the shape of a topic. Raise UserError if it does not exist."""
    shape = topic_shape(connection, topic)
    if shape is None:
        raise UserError(
            f"topic '{topic}' does not exist at {connection.bootstrap}",
            hint="Create it, or check the option 'topic'.",
        )
    return shape


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


def message_limit(connection: KafkaConnection, topic: str) -> MessageLimit:
    """Return how large a message of a topic may be."""
    value = topic_setting(connection, topic, "max.message.bytes")
    return MessageLimit() if value is None else MessageLimit(int(value), is_known=True)
