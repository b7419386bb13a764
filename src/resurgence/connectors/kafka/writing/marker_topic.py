"""The topic of markers: created when it is missing, and read up to what was committed.

All jobs share one topic with one partition. Reading is bounded: compaction retains one marker per
lane, and its segments are small and short-lived, so that compaction reaches all but the newest
markers. A sink that has read the topic once continues at that offset.

Markers are read with `read_committed`, which ends at the last stable offset: the first offset of a
transaction that is still open. To see every commit before a moment, take the end offset then, and
read until the last stable offset has passed it. The process that takes a job over has ended the open
transactions of its sinks before, so these do not delay that. Those of other jobs may last until they
time out, if their process was killed. They hide nothing unless a marker of this sink follows the
last stable offset, which is looked up with `read_uncommitted`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resurgence.connectors.kafka.connection import KafkaConnection, kafka_error
from resurgence.connectors.kafka.topics import (
    ANSWER_SECONDS,
    ask,
    require_topic,
    topic_setting,
    topic_shape,
)
from resurgence.connectors.kafka.writing.markers import LaneKey, Marker, MarkerView
from resurgence.errors import ConnectionLost, SinkConflict, UserError
from resurgence.ids import JobIdentity

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

DEFAULT_MARKER_TOPIC = "resurgence-markers"
STABLE_SECONDS = 120.0
"""How long to wait for the last stable offset: longer than any transaction can be open."""
_PARTITION = 0
_IN_SYNC = "min.insync.replicas"
_POLL_SECONDS = 0.02
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": str(600_000),
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class MarkerTopic:
    """The markers of a cluster. Travels to Spark tasks."""

    connection: KafkaConnection
    name: str = DEFAULT_MARKER_TOPIC

    def ensure(self, target: str, *, has_committed: bool = False) -> None:
        """Create the topic unless it exists, as safe as the topic that the sink writes. Raise
        UserError if that is denied, or if the topic drops the markers of jobs that are stopped. If
        the job has committed before, a missing topic is a SinkConflict.
        """
        if not self.exists():
            if has_committed:
                raise self.lost(target)
            self._create(target)
            self._wait_until_known()
            return
        policy = topic_setting(self.connection, self.name, "cleanup.policy")
        if policy not in (None, "compact"):
            raise UserError(
                f"topic '{self.name}' has cleanup.policy = {policy}, but markers must not expire",
                hint=f"Run `kafka-configs.sh --alter --topic {self.name} --add-config"
                " cleanup.policy=compact`.",
            )

    def exists(self) -> bool:
        return topic_shape(self.connection, self.name) is not None

    def lost(self, target: str) -> SinkConflict:
        """Return the error for a topic that is missing although a job has committed."""
        return SinkConflict(
            f"topic '{self.name}' does not exist, but the job has committed epochs to '{target}'",
            hint="Restore the topic. Without its markers, an epoch whose commit was interrupted is"
            f" written twice. To accept that, run `{self._command(target)}`.",
        )

    def _command(self, target: str) -> str:
        replicas, settings = self._like(target)
        listed = " ".join(f"--config {name}={value}" for name, value in settings.items())
        return (
            f"kafka-topics.sh --create --topic {self.name} --partitions 1"
            f" --replication-factor {replicas} {listed}"
        )

    def _like(self, target: str) -> tuple[int, dict[str, str]]:
        """Return the replication factor of the topic that the sink writes, and the settings of a
        topic of markers that acknowledges writes as that topic does. The defaults of the brokers
        may be for topics that may be lost.
        """
        replicas = require_topic(self.connection, target).replicas
        in_sync = topic_setting(self.connection, target, _IN_SYNC)
        return replicas, _SETTINGS | ({} if in_sync is None else {_IN_SYNC: in_sync})

    def _wait_until_known(self) -> None:
        """Wait until brokers name the new topic: they answer that it is created before they have
        all learned of it.
        """
        ends_at = time.monotonic() + ANSWER_SECONDS
        while not self.exists():
            if time.monotonic() > ends_at:
                raise ConnectionLost(
                    f"topic '{self.name}' was created, but brokers do not name it after"
                    f" {ANSWER_SECONDS:g} s",
                    hint="Check the brokers of the cluster and their controller.",
                )
            time.sleep(_POLL_SECONDS)

    def _create(self, target: str) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        replicas, settings = self._like(target)
        new = NewTopic(self.name, 1, replicas, config=settings)
        try:
            ask(
                self.connection,
                lambda client: client.create_topics([new], request_timeout=ANSWER_SECONDS)[
                    self.name
                ],
            )
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code not in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.POLICY_VIOLATION,
            ):
                raise kafka_error(
                    error.args[0], self._doing("creating"), self.connection
                ) from error
            raise UserError(
                f"creating topic '{self.name}' was denied: {error.args[0].str()}",
                hint=f"Run `{self._command(target)}`.",
            ) from error

    def read(self, job: JobIdentity, sink: str, known: MarkerView) -> MarkerView:
        """Return the markers of a sink that are committed now, given those before an offset. A
        topic that is missing is an error: taken for an empty one, it would lead to duplicates.
        """
        from confluent_kafka import KafkaException

        try:
            end = self._end()
        except KafkaException as error:
            raise kafka_error(error.args[0], self._doing("reading"), self.connection) from error
        if end <= known.next_offset:
            return known
        return self._read_up_to(end, known, lambda key: (key.job, key.sink) == (job, sink))

    def _end(self) -> int:
        """Return the end offset, which includes open transactions."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        partition = TopicPartition(self.name, _PARTITION)

        def list_end(client: AdminClient) -> Future[ListOffsetsResultInfo]:
            return client.list_offsets(
                {partition: OffsetSpec.latest()},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=ANSWER_SECONDS,
            )[partition]

        return int(ask(self.connection, list_end).offset)

    def _read_up_to(
        self, end: int, known: MarkerView, is_own: Callable[[LaneKey], bool]
    ) -> MarkerView:
        lanes = dict(known.lanes)
        with closing(self._polled("read_committed", known.next_offset)) as polled:
            for each in polled:
                if isinstance(each, int):
                    if each >= end or not self._has_own(each, end, is_own):
                        return MarkerView(next_offset=each, lanes=lanes)
                elif (key := LaneKey.decoded(each.key())) is not None and is_own(key):
                    lanes[key.lane] = Marker.decoded(each.value(), self.name)
        raise self._late(end)

    def _has_own(self, start: int, end: int, is_own: Callable[[LaneKey], bool]) -> bool:
        """Return whether there are markers of the sink from one offset up to another, be they
        committed or not.
        """
        with closing(self._polled("read_uncommitted", start)) as polled:
            for each in polled:
                if isinstance(each, int):
                    if each >= end:
                        return False
                elif (key := LaneKey.decoded(each.key())) is not None and is_own(key):
                    return True
        raise self._late(end)

    def _polled(self, level: str, start: int) -> Generator[Message | int, None, None]:
        """Yield the records from an offset on, and the next offset whenever there are no more for
        now, until it takes too long.
        """
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        consumer = Consumer(
            {
                **self.connection.client_settings(),
                # Required, but not used: partitions are assigned, and no offset is committed.
                "group.id": "resurgence",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": level,
                "fetch.wait.max.ms": 20,
            }
        )
        deadline = time.monotonic() + STABLE_SECONDS
        try:
            consumer.assign([TopicPartition(self.name, _PARTITION, start)])
            while time.monotonic() <= deadline:
                for record in consumer.consume(1000, timeout=_POLL_SECONDS):
                    error = record.error()
                    if error is None:
                        yield record
                    elif error.code() == KafkaError._PARTITION_EOF:
                        yield record.offset() or 0
                    else:
                        raise kafka_error(error, self._doing("reading"), self.connection)
        except KafkaException as error:
            raise kafka_error(error.args[0], self._doing("reading"), self.connection) from error
        finally:
            consumer.close()

    def _late(self, end: int) -> ConnectionLost:
        return ConnectionLost(
            f"topic '{self.name}' could not be read up to offset {end} within"
            f" {STABLE_SECONDS:.0f} s",
            hint="Check for transactions that hang, with kafka-transactions.sh find-hanging. The job"
            " will retry.",
        )

    def _doing(self, verb: str) -> str:
        return f"{verb} topic '{self.name}'"
