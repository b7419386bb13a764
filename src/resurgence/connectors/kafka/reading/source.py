"""The Kafka source: ranges of offsets, read by Spark's connector in batch mode.

Its offset has the next offset of every partition. An epoch is planned from what the cluster reports:
the end of each log, which is the last stable offset unless uncommitted records are read. A change of
topics is a range of its own without rows: new partitions, and records that were lost. So everything
that a range reads begins at an offset that the range before it has recorded.

Offsets are not counts. Compaction, aborted transactions and the markers of transactions leave gaps,
so `rows` of a range is an upper bound, and rows are counted when they are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.contract import (
    PARTITION,
    RECORD_BYTES,
    RECORD_TIME,
    PartitionSpan,
    Source,
    left_out,
)
from resurgence.connectors.formats.contract import TEXT, VALUE, Fault
from resurgence.connectors.formats.explanation import RAW, Explainer
from resurgence.connectors.formats.messages import records_of
from resurgence.connectors.kafka.options import DataLoss, KafkaSourceOptions, ReadMode, StopAt
from resurgence.connectors.kafka.reading.cluster import Cluster
from resurgence.connectors.kafka.reading.group_offsets import GroupOffsets
from resurgence.connectors.kafka.reading.offsets import (
    Partition,
    Positions,
    TopicPosition,
    nested,
    numbered,
)
from resurgence.connectors.kafka.reading.planning import (
    MOST_PARTITIONS,
    RecordSize,
    Topic,
    all_partitions,
    available,
    is_at_stop,
    reconciled,
    rotated,
    shares,
)
from resurgence.connectors.kafka.reading.start import StartKind, explicit_offsets
from resurgence.errors import (
    BadRecord,
    ConnectionLost,
    ResurgenceError,
    SourceError,
    SourceRangeGone,
    UserError,
)
from resurgence.graph.values import Column
from resurgence.state.records import InputRange, Offset, RecordPosition

log = logging.getLogger(__name__)

METADATA = {
    "key": "BINARY",
    "headers": "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
}
"""The metadata of a record."""
_DISCOVERY_INTERVAL = timedelta(seconds=5)
_BUSY_DISCOVERY_INTERVAL = timedelta(milliseconds=500)
"""While there are records to read: those that are lost are to be found before Spark reads them. Not
in every plan, because most plans are discarded until an epoch is due.
"""
_LEAST_TASK_ROWS = 10_000
"""A partition is not split over tasks of fewer rows."""
_LAST_COMMIT_SECONDS = 5.0
_FINGERPRINT_KEY = secrets.token_bytes(16)
_LOST_HINT = (
    "Set on_data_loss = 'skip' on the table to continue after the lost records and count them, or"
    " start a new job with another --name. Raise the retention of the topic if the job was too slow."
)
_REPLAY_HINT = (
    "Start a new job with another --name. The records of an epoch that must be replayed are gone;"
    " on_data_loss does not apply, because their results may be visible already."
)
_BAD_RECORD_HINT = (
    "Fix the producer, or set bad_data = 'dead_letter' on the table to store such records aside, or"
    " 'drop' to drop and count them."
)
_HIDDEN = tuple(
    Column(name=name, type="BIGINT", metadata=name)
    for name in (PARTITION, RECORD_TIME, RECORD_BYTES)
)
"""What the engine measures while it reads."""


@dataclass(frozen=True)
class _Planned:
    """The last plan with rows."""

    end: Offset
    last: Partition
    """The last partition in the rotation."""


class KafkaSource(Source):
    """The records of some topics."""

    counts_exactly = False
    position_sql = "concat(position.partition, '@', position.offset)"

    def __init__(self, options: KafkaSourceOptions, declaration: SourceDeclaration) -> None:
        self._options = options
        self._table = declaration.table
        self._names = options.topic_names()
        self._pattern = options.pattern()
        self._connection = options.connection()
        self._cluster = Cluster(self._connection)
        self._format = declaration.format
        subject = f"{self._names[0]}-value" if len(self._names) == 1 else None
        self._reader = declaration.reader(options, subject, _HIDDEN)
        self._explainer = Explainer(self._reader)
        self._has_headers = any(each.metadata == "headers" for each in declaration.columns)
        self.bad_data = options.bad_data
        self._is_committed = options.read_mode is ReadMode.READ_COMMITTED
        self._group = options.group(declaration.table, declaration.job)
        self._group_offsets = GroupOffsets(self._cluster, self._group)
        self._topics: dict[str, Topic] | None = None
        self._discovered_at: datetime | None = None
        self._unread: dict[str, int] = {}
        self._planned: _Planned | None = None
        self._rotation: Partition | None = None
        """The last partition of the newest epoch in the order of partitions."""
        self._record_size = RecordSize()

    # ---------------------------------------------------------------- topics

    def check(self) -> None:
        self._reader.check()
        found = self._cluster.topics(self._names)
        missing = [each for each in self._names if each not in found]
        if missing:
            raise UserError(
                f"topic '{missing[0]}' does not exist at {self._connection.bootstrap}",
                hint="Create the topic, or check the option 'topic'.",
            )

    def _discover(self, now: datetime) -> dict[str, Topic]:
        """Ask the cluster for the topics and partitions to read."""
        names = self._names
        if self._pattern is not None:
            names = tuple(filter(self._pattern.fullmatch, self._cluster.topic_names()))
        self._topics = self._cluster.topics(names)
        self._discovered_at = now
        return self._topics

    # ---------------------------------------------------------------- start

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        self.check()
        topics = self._discover(now)
        partitions = all_partitions(topics)
        chosen = self._first_offsets(partitions)
        stop = None
        if self._options.stop_at is StopAt.LATEST:
            stop = nested(self._cluster.ends(partitions, committed=self._is_committed))
        positions = {
            name: TopicPosition(
                id=topic.id,
                partitions={each: chosen[Partition(name, each)] for each in topic.partitions},
            )
            for name, topic in topics.items()
        }
        # The log may begin later by now, or than the offset that the user or the group names. The
        # first plan finds that out, and counts what is lost.
        self._discovered_at = None
        return Positions(topics=positions, stop=stop).as_offset()

    def _first_offsets(self, partitions: list[Partition]) -> dict[Partition, int]:
        start = self._options.offset
        starts = self._cluster.starts(partitions)
        ends = self._cluster.ends(partitions, committed=self._is_committed)
        for each in partitions:
            if each not in starts or each not in ends:
                raise self._no_leader(each)
        match start.kind:
            case StartKind.LATEST:
                return ends
            case StartKind.GROUP:
                return starts | self._cluster.group_offsets(self._group, partitions)
            case StartKind.TIMESTAMP:
                return ends | self._cluster.at_time(partitions, start.millis)
            case StartKind.OFFSETS:
                skips = self._options.on_data_loss is DataLoss.SKIP
                return starts | explicit_offsets(start, self._topics or (), starts, ends, skips)
            case StartKind.EARLIEST:
                return starts

    # ---------------------------------------------------------------- plan

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        positions = Positions.of(offset)
        if is_at_stop(positions):
            # Whatever happens to the topics now, nothing of them is due.
            self._unread = {}
            return InputRange(start=offset, end=offset, rows=0, final=True)
        due = positions.next
        ends = self._cluster.ends(due, committed=self._is_committed)
        found = available(positions, ends)
        self._unread = {each.name: rows for each, rows in found.items()}
        is_doubtful = any(each not in ends or ends[each] < due[each] for each in due)
        interval = _BUSY_DISCOVERY_INTERVAL if found else _DISCOVERY_INTERVAL
        if is_doubtful or self._discovered_at is None or now - self._discovered_at >= interval:
            changed = self._with_changes(positions, ends, now)
            if changed is not None:
                return changed
        if not found:
            return None
        return self._range(offset, positions, found, most_rows)

    def _range(
        self, offset: Offset, positions: Positions, found: Mapping[Partition, int], most_rows: int
    ) -> InputRange:
        """Return the next range that has rows."""
        by_bytes = self._record_size.most_rows(self._options.epoch_bytes)
        if self._planned is not None and self._planned.end == offset:
            # The plan was adopted, so the rotation advances. Plans may also be discarded.
            self._rotation = self._planned.last
        chosen = rotated(found, self._rotation)[:MOST_PARTITIONS]
        rows = shares({each: found[each] for each in chosen}, min(most_rows, by_bytes))
        before = positions.next
        end = positions.moved({each: before[each] + count for each, count in rows.items()})
        self._unread = {
            each.name: left for each, count in found.items() if (left := count - rows.get(each, 0))
        }
        self._planned = _Planned(end.as_offset(), [*rows][-1])
        return InputRange(
            start=offset, end=end.as_offset(), rows=sum(rows.values()), final=is_at_stop(end)
        )

    def _with_changes(
        self, positions: Positions, ends: Mapping[Partition, int], now: datetime
    ) -> InputRange | None:
        """Return a range without rows that brings the position in line with the topics; None if it
        is.
        """
        topics = self._discover(now)
        partitions = all_partitions(topics)
        starts = self._cluster.starts(partitions)
        if len(starts) < len(partitions):
            raise self._no_leader(next(each for each in partitions if each not in starts))
        due = positions.next
        doubtful = [each for each, end in ends.items() if end < due[each] and each in starts]
        result = reconciled(
            positions,
            topics,
            starts,
            deleted=self._deleted(positions, topics),
            ends=self._cluster.ends(doubtful, committed=False),
        )
        if result.losses and self._options.on_data_loss is DataLoss.FAIL:
            raise self._lost([each.message for each in result.losses], _LOST_HINT)
        if result.positions == positions:
            return None
        for each in result.losses:
            log.warning("table '%s': skipped lost records: %s", self._table, each.message)
        self._unread = {}
        return InputRange(
            start=positions.as_offset(),
            end=result.positions.as_offset(),
            rows=0,
            skipped_rows=sum(each.rows or 0 for each in result.losses),
        )

    def _deleted(self, positions: Positions, topics: Mapping[str, Topic]) -> set[str]:
        """Return the topics that the source should read, and that do not exist."""
        if self._pattern is None:
            return set(self._names) - topics.keys()
        return {each for each in positions.topics if self._pattern.fullmatch(each)} - topics.keys()

    def _lost(self, messages: list[str], hint: str) -> SourceRangeGone:
        return SourceRangeGone(f"table '{self._table}': {'; '.join(messages[:3])}", hint=hint)

    def _no_leader(self, partition: Partition) -> ConnectionLost:
        return ConnectionLost(
            f"{partition.name} has no leader",
            hint=f"Check the brokers at {self._connection.bootstrap}. The job will retry.",
        )

    # ---------------------------------------------------------------- read

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        start, end = Positions.of(input_range.start), Positions.of(input_range.end)
        spans = start.spans(end)
        if self._planned is not None and self._planned.end == input_range.end:
            self._require_same_topics(start, spans)
        else:
            self._require_held(start, spans)
        raw = self._raw(
            spark, spans, -(-input_range.rows // parallelism), has_headers=self._has_headers
        )
        placed = left_out(raw.select("*", _position().alias("position")), input_range.excluded)
        metadata = {
            **{each: F.col(each) for each in METADATA},
            PARTITION: _partition_number(spans),
            RECORD_TIME: F.expr("unix_micros(timestamp)"),
        }
        return self._parsed(placed, metadata)

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        spans = Positions.of(input_range.start).spans(Positions.of(input_range.end))
        raw = self._raw(spark, spans, -(-input_range.rows // parallelism), has_headers=True)
        records = raw.select(
            _position().alias("position"), F.col("value").alias(RAW), "key", "headers", "timestamp"
        )
        return left_out(records, input_range.excluded)

    def parse(self, records: DataFrame) -> DataFrame:
        partition = F.col("position.partition")
        metadata = {
            "key": F.col("key"),
            "headers": F.col("headers"),
            "topic": F.substring_index(partition, "/", 1),
            "partition": F.substring_index(partition, "/", -1).cast("int"),
            "offset": F.col("position.offset"),
            "timestamp": F.col("timestamp"),
            # They are not records of a range that is read, so they move no watermark.
            PARTITION: F.lit(None).cast("bigint"),
            RECORD_TIME: F.lit(None).cast("bigint"),
        }
        return self._parsed(records.withColumnRenamed(RAW, VALUE), metadata)

    def explainer(self) -> Callable[[bytes | None], str]:
        return self._explainer

    def _parsed(self, messages: DataFrame, metadata: Mapping[str, SparkColumn]) -> DataFrame:
        value = TEXT if self._format.is_text else VALUE
        size = F.expr(f"coalesce(octet_length({value}), 0) + coalesce(octet_length(key), 0)")
        records = records_of(messages, self._format)
        return self._reader.parse(records, {**metadata, RECORD_BYTES: size})

    def _raw(
        self,
        spark: SparkSession,
        spans: Mapping[Partition, tuple[int, int]],
        task_rows: int,
        *,
        has_headers: bool,
    ) -> DataFrame:
        """Return the records of Spark's connector."""
        starts = nested({each: first for each, (first, _) in spans.items()})
        ends = nested({each: end for each, (_, end) in spans.items()})
        level = "read_committed" if self._is_committed else "read_uncommitted"
        client = {**self._connection.spark_options(), "kafka.isolation.level": level}
        options = {
            **client,
            "assign": json.dumps({topic: [*numbers] for topic, numbers in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "kafka.group.id": self._spark_group(client),
            "maxRecordsPerPartition": str(max(_LEAST_TASK_ROWS, task_rows)),
            "includeHeaders": str(has_headers).lower(),
            "failOnDataLoss": "true",
        }
        return spark.read.format("kafka").options(**options).load()

    def _spark_group(self, client: Mapping[str, str]) -> str:
        """Return the group by which Spark's executors keep consumers open for the next epoch. By
        default it is another one for every read, and each epoch would wait for new connections. A
        consumer with other settings must not be reused. Nothing is committed to this group.
        """
        return f"{self._group}-{_fingerprint(client)}"

    def _changed_topics(self, start: Positions, spans: Iterable[Partition]) -> list[str]:
        """Return which topics are no longer those of a position, in words."""
        names = sorted({each.topic for each in spans})
        topics = self._cluster.topics(names)
        deleted = [f"topic '{each}' was deleted" for each in names if each not in topics]
        return deleted + [
            f"topic '{name}' was deleted and created again"
            for name, topic in topics.items()
            if topic.id != start.topics[name].id
        ]

    def _require_same_topics(self, start: Positions, spans: Iterable[Partition]) -> None:
        """Raise an error if a topic was created again since a range was planned: other records
        would have its offsets.
        """
        messages = self._changed_topics(start, spans)
        if messages and self._options.on_data_loss is DataLoss.FAIL:
            raise self._lost(messages, _LOST_HINT)
        if messages:
            raise SourceError(
                f"table '{self._table}': {messages[0]} after the epoch was planned",
                hint="The job will retry, and skip the lost records.",
            )

    def holds(self, input_range: InputRange) -> bool:
        start = Positions.of(input_range.start)
        return not self._gone(start, start.spans(Positions.of(input_range.end)))

    def _require_held(self, start: Positions, spans: Mapping[Partition, tuple[int, int]]) -> None:
        """Raise SourceRangeGone unless the cluster holds a recorded range."""
        messages = self._gone(start, spans)
        if messages:
            raise self._lost(messages, _REPLAY_HINT)

    def _gone(self, start: Positions, spans: Mapping[Partition, tuple[int, int]]) -> list[str]:
        """Return what the cluster no longer holds of a recorded range, in words."""
        messages = self._changed_topics(start, spans)
        if messages:
            return messages
        starts = self._cluster.starts(spans)
        ends = self._cluster.ends(spans, committed=False)
        for partition, (first, last) in spans.items():
            if partition not in starts or partition not in ends:
                raise self._no_leader(partition)
            if first < starts[partition] or last > ends[partition]:
                messages.append(
                    f"{partition.name} holds offsets from {starts[partition]} up to"
                    f" {ends[partition]}, but those from {first} up to {last} are to be read"
                )
        return messages

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start, end = Positions.of(input_range.start), Positions.of(input_range.end)
        wanted, cut = input_range.rows // 2, dict[Partition, int]()
        if wanted == 0:
            return None
        left = wanted
        for partition, (first, last) in start.spans(end).items():
            taken = min(left, last - first)
            cut[partition] = first + taken
            left -= taken
        middle = start.moved(cut).as_offset()
        return (
            InputRange(
                start=input_range.start, end=middle, rows=wanted, excluded=input_range.excluded
            ),
            InputRange(
                start=middle,
                end=input_range.end,
                rows=input_range.rows - wanted,
                final=input_range.final,
                excluded=input_range.excluded,
            ),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = Positions.of(input_range.start), Positions.of(input_range.end)
        spans = [
            f"{partition.name} from offset {first} up to {last}"
            for partition, (first, last) in start.spans(end).items()
        ]
        more = f" and {len(spans) - 8} more" if len(spans) > 8 else ""
        return ", ".join(spans[:8]) + more or "no records"

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        partition = Partition.named(position.partition)
        place = f"topic '{partition.topic}', partition {partition.number}, offset {position.offset}"
        try:
            value = self._cluster.value_at(partition, position.offset, committed=self._is_committed)
        except ResurgenceError as error:
            fault = Fault(f"a bad record, which cannot be read again: {error.message}")
        else:
            fault = self._reader.explain(value)
        column = f", column {fault.column}" if fault.column is not None else ""
        return BadRecord(
            f"{place}{column}: {fault.reason}",
            hint=fault.hint or _BAD_RECORD_HINT,
            position=place,
        )

    # ---------------------------------------------------------------- partitions and progress

    def partitions(self, input_range: InputRange) -> tuple[PartitionSpan, ...]:
        start, end = Positions.of(input_range.start), Positions.of(input_range.end)
        spans = start.spans(end)
        bases = numbered(spans)
        return tuple(
            PartitionSpan(
                each.name,
                bases.get(each.topic, 0) + each.number,
                spans[each][1] - spans[each][0] if each in spans else 0,
            )
            for each in end.next
        )

    def unread(self) -> Mapping[str, int]:
        return self._unread

    def measured(self, rows: int, size: int) -> None:
        self._record_size = self._record_size.measured(rows, size)

    def committed(self, input_range: InputRange) -> None:
        self._group_offsets.commit(Positions.of(input_range.end).next)

    def close(self) -> None:
        # The process ends without waiting for threads.
        self._group_offsets.wait(_LAST_COMMIT_SECONDS)


def _fingerprint(settings: Mapping[str, str]) -> str:
    """Return a text that is the same for the same settings in this process. Passwords are among them,
    and brokers log it, so nobody must be able to compute it for a password.
    """
    text = json.dumps(settings, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=6, key=_FINGERPRINT_KEY).hexdigest()


def _position() -> SparkColumn:
    name = F.concat(F.col("topic"), F.lit("/"), F.col("partition"))
    return F.struct(name.alias("partition"), F.col("offset").alias("offset"))


def _partition_number(spans: Mapping[Partition, tuple[int, int]]) -> SparkColumn:
    """Return the number of a record's partition among all that are read."""
    (first, base), *others = numbered(spans).items()
    number = F.lit(base)
    if others:
        number = F.when(F.col("topic") == first, base)
        for topic, each in others:
            number = number.when(F.col("topic") == topic, each)
    return number + F.col("partition")
