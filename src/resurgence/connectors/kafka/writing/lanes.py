"""Commits the lanes of an epoch: their staged parts as Kafka transactions, exactly once.

**Why each part becomes visible once.** The output of an epoch is fixed by a record in the job's
storage before its first transaction, and so are its lanes. Part (epoch, lane, n) is always produced
under the transactional id of its lane, together with a marker. Whoever commits a lane, in the first
attempt or in any later one, does this:

1. Init the producer. The broker aborts an open transaction of this id, completes one whose commit
   was decided, and refuses everything from earlier producers of this id from then on: a zombie, or
   a request that is still on its way.
2. Take the end offset of the marker topic, and read its markers until the last stable offset has
   passed that. Everything that was committed under this id so far is among them, and nobody else
   can commit under it any more.
3. Produce the parts that follow the newest marker, in order, each in a transaction of its own.

Before any of this, a process that takes a job over inits the ids of all lanes that earlier processes
may have used (`fence_lanes`). Otherwise step 2 would wait for a transaction that one of them has left
open in another lane: until the broker times it out, if that lane is committed later, or if its task
waits for a slot.

If another process inits the same id between two steps, the next transaction of this one fails: it
is fenced. The other one read the markers after it had fenced, so it continues after the last part
that this one committed. Two processes can fence each other in turns, but no part is committed twice
or skipped. So there is no difference between a first attempt, a task that Spark repeats, a restore
and a zombie, and nothing has to be known about earlier attempts.

**Nothing depends on the transaction timeout.** The rows are in storage until all lanes are
committed. If the broker aborts a transaction, or forgets a transactional id after a week, the next
attempt produces the part again: the marker was not committed either. The markers do not expire,
because their topic is compacted.

A producer may stay open between epochs. As long as nobody fences it, nobody else commits under its
id, so it knows the newest marker of its lane: the one that it has read, or the last one that it has
produced itself. Then steps 1 and 2 are done for all epochs that follow. After any error it is
closed.

A job in mode `at_least_once` does only step 3, without transactions and markers.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from resurgence.connectors.contract import CoveredInput
from resurgence.connectors.kafka.connection import REQUEST_SECONDS, KafkaConnection, kafka_error
from resurgence.connectors.kafka.writing.librdkafka import NativeProducer, Refused
from resurgence.connectors.kafka.writing.marker_topic import MarkerTopic
from resurgence.connectors.kafka.writing.markers import LaneKey, Marker, MarkerView
from resurgence.connectors.kafka.writing.parts import Part, read_part
from resurgence.errors import (
    MessageRefused,
    ObjectMissing,
    ResurgenceError,
    SinkConflict,
    SinkError,
)
from resurgence.ids import Epoch, JobIdentity
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import task_store
from resurgence.storage.parallel import in_parallel

log = logging.getLogger(__name__)

TRANSACTION_SECONDS = 60.0
"""After this long the broker aborts a transaction, so that readers do not wait for a dead job. Also
how long the delivery of a part may take.
"""
_ABORT_SECONDS = 5.0
_SHOWN_KEY = 200
_OUTCOME_BATCH = pa.schema(
    [("next_offset", pa.int64()), ("conflict", pa.string()), ("hint", pa.string())]
)
_OUTCOME = "next_offset BIGINT, conflict STRING, hint STRING"


@dataclass(frozen=True)
class LaneCommit:
    """An epoch to commit, as its tasks need it."""

    job: JobIdentity
    sink: str
    topic: str
    epoch: Epoch
    covered: CoveredInput
    connection: KafkaConnection
    message_bytes: int
    lanes: tuple[tuple[Part, ...], ...]
    markers: MarkerTopic | None
    """None: at least once."""
    known: MarkerView = field(default_factory=MarkerView)
    transaction_seconds: float = TRANSACTION_SECONDS

    @property
    def place(self) -> str:
        return f"topic '{self.topic}'"

    def conflict(self, view: MarkerView) -> SinkConflict | None:
        """Return why nothing of the epoch may be produced, given the markers."""
        return view.conflict(self.place, self.epoch, self.covered)

    def committed_view(self, next_offset: int) -> MarkerView:
        """Return the markers once all lanes are committed, of which those before an offset were
        read.
        """
        if self.markers is None:
            return self.known
        produced = {
            lane: Marker(epoch=self.epoch, part=len(parts) - 1, input=self.covered)
            for lane, parts in enumerate(self.lanes)
        }
        return MarkerView(next_offset=next_offset, lanes=self.known.lanes | produced)


def transactional_id(job: JobIdentity, sink: str, lane: int) -> str:
    """Return the transactional id of a lane."""
    return f"resurgence-{job}-{sink}-{lane}"


def commit_lanes(spark: SparkSession, commit: LaneCommit, access: StoreAccess) -> MarkerView:
    """Commit all lanes, one Spark task each. Return the markers as they are then. Raises SinkConflict.

    A task does not return the markers that it has read: each names the input of its epoch, so all
    of them from every task would be too much. Those of the epoch are known once it is committed, and
    those of other lanes are of earlier epochs, which are over.
    """
    count = len(commit.lanes)
    results = spark.range(0, count, 1, count).mapInArrow(_task(commit, access), _OUTCOME).collect()
    for row in results:
        if row.conflict is not None:
            raise SinkConflict(row.conflict, hint=row.hint)
    return commit.committed_view(min(row.next_offset for row in results))


def _task(commit: LaneCommit, access: StoreAccess) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for lane in batch.column(0).to_pylist():
                view = commit_lane(commit, lane, access)
                conflict = commit.conflict(view)
                yield pa.RecordBatch.from_pylist(
                    [
                        {
                            "next_offset": view.next_offset,
                            "conflict": conflict and conflict.message,
                            "hint": conflict and conflict.hint,
                        }
                    ],
                    schema=_OUTCOME_BATCH,
                )

    return run


def commit_lane(commit: LaneCommit, lane: int, access: StoreAccess) -> MarkerView:
    """Produce the parts of a lane that are not committed yet, and none if there is a conflict.
    Return the markers read.
    """
    with OpenLane(commit, lane) as opened:
        opened.commit(commit, access)
        return opened.view


class OpenLane:
    """A lane with its producer. Close it after an error, and in the end."""

    def __init__(self, commit: LaneCommit, lane: int) -> None:
        self.view = commit.known
        """The markers read, and those produced here."""
        self._lane = lane
        self._is_ready = commit.markers is None
        """No other producer can commit under the id of the lane, unless it fences this one."""
        key = None
        if commit.markers is not None:
            key = LaneKey(job=commit.job, sink=commit.sink, lane=lane)
        settings = _settings(commit.connection, commit.transaction_seconds, key)
        settings["message.max.bytes"] = commit.message_bytes
        self._producer = NativeProducer(settings)

    def __enter__(self) -> OpenLane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._producer.close()

    def commit(self, commit: LaneCommit, access: StoreAccess) -> None:
        """Produce the parts that are not committed yet, and none if there is a conflict."""
        with _translated(commit.connection, f"writing topic '{commit.topic}'"):
            if commit.markers is None:
                for number in range(len(commit.lanes[self._lane])):
                    try:
                        _produce_part(self._producer, commit, self._lane, number, access)
                    except ObjectMissing:
                        # A part is deleted only after all were produced, unless that was by hand.
                        log.warning(
                            "%s: staged part %s of epoch %d does not exist, so it is taken for"
                            " written",
                            commit.place,
                            commit.lanes[self._lane][number].path,
                            commit.epoch,
                        )
                return
            if not self._is_ready:
                self._producer.init_transactions(REQUEST_SECONDS)
                self.view = commit.markers.read(commit.job, commit.sink, commit.known)
                self._is_ready = True
            if commit.conflict(self.view) is not None:
                return
            committed = self.view.committed_parts(self._lane, commit.epoch)
            for number in range(committed, len(commit.lanes[self._lane])):
                marker = _commit_part(self._producer, commit, self._lane, number, access)
                self.view = self.view.with_marker(self._lane, marker)


def fence_lanes(connection: KafkaConnection, keys: Iterable[LaneKey]) -> None:
    """End the open transactions of lanes, and refuse everything from their producers."""
    in_parallel([partial(_fence, connection, key) for key in keys])


def _fence(connection: KafkaConnection, key: LaneKey) -> None:
    with (
        _translated(connection, f"fencing lane {key.lane} of sink '{key.sink}'"),
        NativeProducer(_settings(connection, TRANSACTION_SECONDS, key)) as producer,
    ):
        producer.init_transactions(REQUEST_SECONDS)


def close_lane(
    connection: KafkaConnection, markers: MarkerTopic, key: LaneKey, up_to: Epoch
) -> None:
    """Fence the producers of a lane, and mark the epochs up to one as over, so that no zombie
    commits a part of them.
    """
    settings = _settings(connection, TRANSACTION_SECONDS, key)
    with (
        _translated(connection, f"writing topic '{markers.name}'"),
        NativeProducer(settings) as producer,
    ):
        producer.init_transactions(REQUEST_SECONDS)
        producer.begin()
        _produce_marker(producer, markers, key, Marker(epoch=up_to, is_closed=True))
        producer.commit(REQUEST_SECONDS)


def _commit_part(
    producer: NativeProducer, commit: LaneCommit, lane: int, number: int, access: StoreAccess
) -> Marker:
    """Produce a part and its marker in a transaction, and return the marker."""
    assert commit.markers is not None
    from confluent_kafka import KafkaException

    producer.begin()
    try:
        _produce_part(producer, commit, lane, number, access)
        key = LaneKey(job=commit.job, sink=commit.sink, lane=lane)
        marker = Marker(epoch=commit.epoch, part=number, input=commit.covered)
        # Last, so that readers of markers wait for this transaction only while it is committed.
        with _translated(commit.connection, f"writing topic '{commit.markers.name}'"):
            _produce_marker(producer, commit.markers, key, marker)
        producer.commit(commit.transaction_seconds)
        return marker
    except (KafkaException, ResurgenceError):
        # The next init would abort it, too. Until then, readers of the topic would wait.
        with contextlib.suppress(KafkaException):
            producer.abort(_ABORT_SECONDS)
        raise


def _produce_part(
    producer: NativeProducer, commit: LaneCommit, lane: int, number: int, access: StoreAccess
) -> None:
    part = commit.lanes[lane][number]
    try:
        messages = read_part(task_store(access), part)
    except ObjectMissing as error:
        if commit.markers is None:
            raise
        raise SinkError(
            f"staged output {access.url}/{part.path} of {commit.place} is missing",
            hint="Restore it from a backup. Staged output was removed by hand.",
        ) from error
    from confluent_kafka import KafkaException

    try:
        refused = producer.produce(commit.topic, messages, commit.transaction_seconds)
    except KafkaException as error:
        # A transaction that is denied fails as a whole, beginning with its first message.
        refused = Refused(0, error.args[0].code())
        if refused.code not in _refusal_hints():
            raise
    if refused is not None:
        raise _refusal(commit, lane, number, messages, refused)


def _produce_marker(
    producer: NativeProducer, markers: MarkerTopic, key: LaneKey, marker: Marker
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    record = pa.RecordBatch.from_pydict(
        {"key": [key.encoded()], "value": [marker.encoded()], "partition": [0]},
        schema=pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())]),
    )
    refused = producer.produce(markers.name, record, REQUEST_SECONDS)
    if refused is not None:
        raise KafkaException(KafkaError(refused.code))


def _settings(
    connection: KafkaConnection, transaction_seconds: float, key: LaneKey | None
) -> dict[str, str | int | float | bool]:
    """Return the settings of a producer, a transactional one if it has the key of a lane."""
    settings = connection.client_settings() | {
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": 5,
        # A topic that was deleted is an error sooner than after half a minute.
        "topic.metadata.propagation.max.ms": 5000,
        # A part is bounded in bytes and is enqueued as a whole.
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_097_151,
        # As the Java client does it, so that a key is in the same partition for all its writers.
        "partitioner": "murmur2_random",
        "message.timeout.ms": round(transaction_seconds * 1000),
    }
    if key is not None:
        settings["transactional.id"] = transactional_id(key.job, key.sink, key.lane)
        settings["transaction.timeout.ms"] = round(transaction_seconds * 1000)
        limit = min(REQUEST_SECONDS, transaction_seconds / 2)
        settings["socket.timeout.ms"] = round(limit * 1000)
    return settings


@contextlib.contextmanager
def _translated(connection: KafkaConnection, doing: str) -> Iterator[None]:
    """Translate the errors of librdkafka."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        fenced = (
            KafkaError._FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.INVALID_PRODUCER_ID_MAPPING,
            KafkaError.UNKNOWN_PRODUCER_ID,
            KafkaError.INVALID_TXN_STATE,
        )
        if cause.code() in fenced:
            raise SinkError(
                f"{doing} was fenced: another process has taken over the transactional id, or the"
                f" transaction timed out ({cause.name()})",
                hint="Check whether another copy of the job is running if this repeats. The job"
                " will retry.",
            ) from error
        raise kafka_error(cause, doing, connection) from error


def _refusal(
    commit: LaneCommit, lane: int, number: int, messages: pa.RecordBatch, refused: Refused
) -> ResurgenceError:
    """Return the error for a message that was not delivered."""
    from confluent_kafka import KafkaError

    error = KafkaError(refused.code)
    hint = _refusal_hints().get(refused.code)
    position = (
        f"{commit.place}, epoch {commit.epoch}, lane {lane}, part {number}, row {refused.row}"
    )
    if "key" in messages.schema.names and (key := messages["key"][refused.row].as_py()) is not None:
        position += f", key {key.decode(errors='replace')[:_SHOWN_KEY]}"
    if hint is None:
        return kafka_error(error, f"writing {position}", commit.connection)
    size = len(messages["value"][refused.row].as_py() or b"")
    return MessageRefused(
        f"{commit.place} refuses a message of {size} bytes: {error.str()}",
        hint=hint,
        position=position,
    )


def _refusal_hints() -> dict[int, str]:
    """Return what the user can do about messages that are refused for good, by the code of the
    error.
    """
    from confluent_kafka import KafkaError

    create = "Create the topic, or check the option 'topic'."
    return {
        KafkaError.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes of the topic, or write less into"
        " one row.",
        KafkaError.UNKNOWN_TOPIC_OR_PART: create,
        KafkaError._UNKNOWN_TOPIC: create,
        KafkaError._UNKNOWN_PARTITION: "Restore the partitions of the topic.",
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant the right to write by an ACL of the cluster.",
        KafkaError.INVALID_RECORD: "Set 'sink.key_field': a compacted topic requires keys.",
    }
