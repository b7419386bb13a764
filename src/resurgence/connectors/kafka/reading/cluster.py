"""Requests to a Kafka cluster: topics, offsets of logs and of groups, single records.

Thin I/O: each method is one round of requests with a deadline, and its failure is one of our errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from resurgence.connectors.kafka.connection import (
    REQUEST_SECONDS,
    KafkaConnection,
    Refusals,
    admin_client,
    kafka_error,
)
from resurgence.connectors.kafka.reading.offsets import Partition
from resurgence.connectors.kafka.reading.planning import Topic
from resurgence.errors import ResurgenceError, SourceError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, OffsetSpec

T = TypeVar("T")
_SLACK_SECONDS = 1.0
"""How much longer an answer is waited for than the client library does."""


class Cluster:
    """A cluster, by one client that is connected when it is first used."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection
        self._refusals = Refusals()

    @cached_property
    def _admin(self) -> AdminClient:
        from confluent_kafka import KafkaException

        try:
            return admin_client(self.connection, self._refusals)
        except KafkaException as error:
            raise kafka_error(error.args[0], "opening a client", self.connection) from error

    # ---------------------------------------------------------------- topics

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the topics of these names that exist."""
        from confluent_kafka import KafkaError, TopicCollection

        wanted = sorted(set(names))
        if not wanted:
            return {}
        answers = self._admin.describe_topics(
            TopicCollection(wanted), request_timeout=REQUEST_SECONDS
        )
        found = {}
        for name, future in answers.items():
            doing = f"describing topic '{name}'"
            described = self._answer(future, doing, absent=(KafkaError.UNKNOWN_TOPIC_OR_PART,))
            if described is not None:
                numbers = tuple(sorted(each.id for each in described.partitions))
                found[name] = Topic(str(described.topic_id), numbers)
        return found

    def topic_names(self) -> list[str]:
        """Return the names of all topics but Kafka's own."""
        from confluent_kafka import KafkaException

        try:
            listed = self._admin.list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException as error:
            raise self._failed(error.args[0], "listing topics") from error
        return sorted(name for name in listed if not name.startswith("__"))

    # ---------------------------------------------------------------- offsets of logs

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the first offset that the log of each partition holds. A partition without a
        leader is missing.
        """
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, int]:
        """Return the offset after the last record of each partition; if `committed`, after the last
        one before the first open transaction. A partition without a leader is missing.
        """
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.latest(), committed=committed)

    def at_time(self, partitions: Iterable[Partition], millis: int) -> dict[Partition, int]:
        """Return the offset of the first record at or after an instant. A partition without one is
        missing.
        """
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets(partitions, OffsetSpec.for_timestamp(millis))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def _offsets(
        self, partitions: Iterable[Partition], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[Partition, int]:
        from confluent_kafka import IsolationLevel, KafkaError, TopicPartition

        wanted = {TopicPartition(each.topic, each.number): spec for each in partitions}
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        answers = self._admin.list_offsets(
            wanted, isolation_level=level, request_timeout=REQUEST_SECONDS
        )
        found = {}
        for place, future in answers.items():
            partition = Partition(place.topic, place.partition)
            doing = f"listing the offsets of {partition.name}"
            absent = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART)
            answer = self._answer(future, doing, absent)
            if answer is not None:
                found[partition] = int(answer.offset)
        return found

    # ---------------------------------------------------------------- offsets of groups

    def group_offsets(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offsets that a group has committed. A partition without one is missing."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        wanted = [TopicPartition(each.topic, each.number) for each in partitions]
        answers = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=REQUEST_SECONDS
        )
        (future,) = answers.values()
        answer = self._answer(future, f"reading the offsets of group '{group}'")
        listed = [] if answer is None else answer.topic_partitions
        return {
            Partition(each.topic, each.partition): each.offset
            for each in listed
            if each.offset >= 0
        }

    def commit_group(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        done: Callable[[Exception | None], None],
    ) -> None:
        """Commit offsets of a group, and call `done` from another thread with the outcome."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        places = [
            TopicPartition(each.topic, each.number, offset) for each, offset in offsets.items()
        ]
        answers = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=REQUEST_SECONDS
        )
        (future,) = answers.values()

        def finished(answer: Future[object]) -> None:
            failed = answer.exception()
            if failed is None:
                listed = getattr(answer.result(), "topic_partitions", ())
                failed = next((each.error for each in listed if each.error is not None), None)
            done(failed if failed is None or isinstance(failed, Exception) else _Refused(failed))

        future.add_done_callback(finished)

    # ---------------------------------------------------------------- records

    def value_at(self, partition: Partition, offset: int, *, committed: bool) -> bytes | None:
        """Return the value of one record, None for a tombstone; if `committed`, only if its
        transaction is. Raise SourceError if it cannot be read within the deadline.
        """
        from confluent_kafka import KafkaException

        try:
            return self._value_at(partition, offset, committed=committed)
        except KafkaException as error:
            raise kafka_error(
                error.args[0], f"reading {partition.name}", self.connection
            ) from error

    def _value_at(self, partition: Partition, offset: int, *, committed: bool) -> bytes | None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                **self.connection.client_settings(),
                "group.id": "resurgence",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            consumer.assign([TopicPartition(partition.topic, partition.number, offset)])
            message = consumer.poll(REQUEST_SECONDS)
            if message is None or message.error() is not None or message.offset() != offset:
                raise SourceError(
                    f"the record at offset {offset} of {partition.name} cannot be read",
                    hint=f"Check the brokers at {self.connection.bootstrap}.",
                )
            value = message.value()
            return value.encode() if isinstance(value, str) else value
        finally:
            consumer.close()

    def _answer(self, future: Future[T], doing: str, absent: Collection[int] = ()) -> T | None:
        """Return the answer to a request; None if it failed with a code of `absent`. Raise our error
        for any other failure, and if there is no answer.
        """
        from confluent_kafka import KafkaError, KafkaException

        try:
            answer = future.result(REQUEST_SECONDS + _SLACK_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in absent:
                return None
            raise self._failed(error.args[0], doing) from error
        except FutureTimeout as error:
            late = KafkaError(KafkaError._TIMED_OUT, f"no answer within {REQUEST_SECONDS:g} s")
            raise self._failed(late, doing) from error
        self._refusals.answered(self._admin)
        return answer

    def _failed(self, error: KafkaError, doing: str) -> ResurgenceError:
        return kafka_error(self._refusals.reason(self._admin, error), doing, self.connection)


class _Refused(Exception):
    """The broker refused a part of a request."""
