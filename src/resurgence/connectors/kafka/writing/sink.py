"""The Kafka sink: rows as messages of a topic, exactly once for readers with `read_committed`.

`stage` writes messages as parts to the job's storage (`parts`). `commit` fixes by a record which
parts are the output of the epoch (`commit_log`), then produces them in transactions, each with a
marker (`lanes`, which has the proof). `take_over` fences the producers of earlier processes. `recall`
returns both records and markers: a state dir that was restored from a backup lacks newer records,
but Kafka still has the markers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import (
    CoveredInput,
    SinkMemory,
    StagedOutput,
    require_same_input,
)
from resurgence.connectors.formats.contract import RecordWriter
from resurgence.connectors.kafka.connection import KafkaOptions
from resurgence.connectors.kafka.topics import MessageLimit, message_limit, require_topic
from resurgence.connectors.kafka.writing.lanes import (
    LaneCommit,
    close_lane,
    commit_lanes,
    fence_lanes,
)
from resurgence.connectors.kafka.writing.marker_topic import DEFAULT_MARKER_TOPIC, MarkerTopic
from resurgence.connectors.kafka.writing.markers import LaneKey, MarkerView
from resurgence.connectors.kafka.writing.messages import MessageLayout, as_messages
from resurgence.connectors.kafka.writing.open_lanes import MOST_BYTES, MOST_LANES, OpenLanes
from resurgence.connectors.kafka.writing.parts import (
    Part,
    checked_parts,
    lanes_of,
    most_lanes,
    stage_parts,
)
from resurgence.errors import ConfigError, SinkConflict, SinkError
from resurgence.graph.table_options import option
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity
from resurgence.storage.access import store_access
from resurgence.storage.object_store import shared_store


class CommitMode(StrEnum):
    """The guarantee of a Kafka sink."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class KafkaSinkOptions(KafkaOptions):
    """The options of a Kafka sink."""

    topic: str = option("the topic, which must exist")
    commit_mode: CommitMode = option(
        "`exactly_once` (default): in transactions, which readers with `read_committed` see once."
        " `at_least_once`: without transactions; a row is written again if a commit is interrupted",
        default=CommitMode.EXACTLY_ONCE,
        name="sink.commit_mode",
    )
    key_field: str | None = option(
        "the columns of the key, separated by commas: one as its text, several as a JSON object."
        " By default the `PRIMARY KEY` as a JSON object, or no key",
        default=None,
        name="sink.key_field",
    )
    partition_field: str | None = option(
        "the columns whose hash is the partition, separated by commas. By default the hash of the"
        " key, as the Java client computes it",
        default=None,
        name="sink.partition_field",
    )
    marker_topic: str = option(
        "the compacted topic in which transactions record what they have committed; created if it"
        f" is missing. By default `{DEFAULT_MARKER_TOPIC}`",
        default=DEFAULT_MARKER_TOPIC,
        name="sink.marker_topic",
    )


class KafkaSink:
    """A topic."""

    retracts = False

    def __init__(self, options: KafkaSinkOptions, table: SinkDeclaration) -> None:
        self._options = options
        self._table = table
        self._connection = options.connection()
        self._markers = (
            MarkerTopic(self._connection, options.marker_topic)
            if options.commit_mode is CommitMode.EXACTLY_ONCE
            else None
        )
        self._log = CommitLog(shared_store(table.state_url), table.state_folder)
        self._known = MarkerView()
        """The markers read so far. A later read continues after them."""
        self._open_lanes = OpenLanes()
        self._message_limit: MessageLimit | None = None
        self._has_marker_topic = False
        self._writers: dict[tuple[str, ...], RecordWriter] = {}

    def _writer(self, passed: tuple[str, ...] = ()) -> RecordWriter:
        make = self._table.format.writer
        if make is None:
            raise ConfigError(f"format '{self._table.format.name}' cannot be written to Kafka")
        if passed not in self._writers:
            # Kept, because a writer may have registered its schema.
            settings = self._table.write_settings(passed, f"{self._options.topic}-value")
            self._writers[passed] = make(settings)
        return self._writers[passed]

    def check(self) -> None:
        self._writer().check()
        require_topic(self._connection, self._options.topic)
        # Which job it is, and so whether it has committed, is known when it is restored.
        if self._markers is not None and (self._markers.exists() or not self._log.has_records()):
            self._markers.ensure(self._options.topic)

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        prefix = self._log.staged_prefix(job, epoch, generation)
        return stage_parts(self._messages(rows), self._table.state_url, prefix, self._limit())

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        return checked_parts(self._messages(rows), self._limit())

    def _messages(self, rows: DataFrame) -> DataFrame:
        by_columns = _columns(self._options.partition_field)
        layout = MessageLayout(
            writer=self._writer,
            is_changelog=self._table.format.spec.is_changelog,
            primary_key=self._table.keys,
            key_field=_columns(self._options.key_field),
            partition_field=by_columns,
            partitions=require_topic(self._connection, self._options.topic).partitions
            if by_columns
            else 1,
        )
        return as_messages(rows, layout)

    def _limit(self) -> MessageLimit:
        """Return how large a message may be, as it was when the sink was first used."""
        if self._message_limit is None:
            self._message_limit = message_limit(self._connection, self._options.topic)
        return self._message_limit

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        # An earlier attempt may have fixed output, perhaps by another version of the query.
        if not staged.files and self._log.fixed(job, epoch) is None:
            return
        # Before the record: then any record means that there were markers.
        self._require_markers(job)
        content: dict[str, JsonValue] = {
            "files": [each.path for each in staged.files],
            "rows": [each.rows for each in staged.files],
        }
        fixed = self._log.fix(job, epoch, content, covered)
        held = self._log.covered(fixed)
        require_same_input(f"topic '{self._options.topic}'", epoch, held, covered)
        parts = _parts(fixed, epoch)
        order = self._order(job, epoch, covered, parts)
        if order.lanes:
            try:
                self._known = self._commit_lanes(spark, order, staged)
            except SinkConflict:
                # A zombie, or a replay: later epochs of this state are on record, so this one is
                # over.
                if self._log.recall(job, ()).newest <= epoch:
                    raise
        files = {each.path for each in staged.files} | {each.path for each in parts}
        shared_store(self._table.state_url).delete(files)

    def flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None = None,
    ) -> None:
        """Do nothing: nothing is held back."""

    def _commit_lanes(
        self, spark: SparkSession, order: LaneCommit, staged: StagedOutput
    ) -> MarkerView:
        access = store_access(self._table.state_url)
        # The size of output that only the record names is not known.
        is_small = bool(staged.files) and sum(each.bytes for each in staged.files) <= MOST_BYTES
        if is_small and len(order.lanes) <= MOST_LANES:
            return self._open_lanes.commit(order, access)
        # The producers of the tasks would fence these.
        self._open_lanes.close()
        return commit_lanes(spark, order, access)

    def take_over(self, job: JobIdentity) -> None:
        if self._markers is not None:
            newest = self._log.newest_output(job)
            fixed = 0 if newest is None else _lane_count(newest[1], newest[0])
            # A process that is still alive may be about to fix what it has staged.
            self._fence(job, max(fixed, most_lanes(self._log.staged(job))))

    def _fence(self, job: JobIdentity, lanes: int) -> None:
        fence_lanes(self._connection, [self._lane_key(job, lane) for lane in range(lanes)])

    def _lane_key(self, job: JobIdentity, lane: int) -> LaneKey:
        return LaneKey(job=job, sink=self._table.table, lane=lane)

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        memory = self._log.recall(job, epochs)
        if self._markers is None:
            return memory
        if not self._markers.exists():
            if memory.newest != NO_EPOCH:
                raise self._markers.lost(self._options.topic)
            return memory
        view = self._known = self._markers.read(job, self._table.table, MarkerView())
        held = {epoch: each for epoch, each in view.inputs.items() if epoch in epochs}
        return SinkMemory(
            newest=max(memory.newest, view.newest),
            inputs=memory.inputs | held,
            retracted=memory.retracted,
        )

    def discard(self, staged: StagedOutput) -> None:
        shared_store(self._table.state_url).delete(each.path for each in staged.files)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._log.sweep(job, epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        self._log.forget(job, before)

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Close the epochs, so that no zombie produces them: Kafka cannot retract messages."""
        if self._log.is_retracted(job, after, up_to):
            return
        self._open_lanes.close()
        # Closed first: then no record of these epochs appears any more.
        self._log.close(job, after, up_to, {})
        dead = self._log.between(job, after, up_to)
        if self._markers is not None:
            self._require_markers(job)
            lanes = max((_lane_count(each, up_to) for each in dead), default=0)
            self._fence(job, lanes)
            view = self._markers.read(job, self._table.table, MarkerView())
            for lane in sorted({*view.lanes, *range(lanes)}):
                close_lane(self._connection, self._markers, self._lane_key(job, lane), up_to)
        self._log.mark_retracted(job, after, up_to, {})

    def _require_markers(self, job: JobIdentity) -> None:
        """Make sure, once, that the topic of markers exists, if there is one."""
        if self._markers is None or self._has_marker_topic:
            return
        has_committed = self._log.recall(job, ()).newest != NO_EPOCH
        self._markers.ensure(self._options.topic, has_committed=has_committed)
        self._has_marker_topic = True

    def _order(
        self, job: JobIdentity, epoch: Epoch, covered: CoveredInput, parts: tuple[Part, ...]
    ) -> LaneCommit:
        return LaneCommit(
            job=job,
            sink=self._table.table,
            topic=self._options.topic,
            epoch=epoch,
            covered=covered,
            connection=self._connection,
            message_bytes=self._limit().bytes,
            lanes=lanes_of(parts),
            markers=self._markers,
            known=self._known,
        )


def _columns(text: str | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",")) if text else ()


def _lane_count(content: Mapping[str, JsonValue], epoch: Epoch) -> int:
    return len(lanes_of(_parts(content, epoch)))


def _parts(content: Mapping[str, JsonValue], epoch: Epoch) -> tuple[Part, ...]:
    """Return the parts that an epoch's record fixes; none if the epoch was rolled back."""
    files, rows = content.get("files"), content.get("rows", [])
    if not isinstance(files, list) or not isinstance(rows, list) or len(files) != len(rows):
        raise SinkError(
            f"the commit record of epoch {epoch} is damaged",
            hint="Restore the records of the sink from a backup.",
        )
    return tuple(Part(str(path), int(str(count))) for path, count in zip(files, rows, strict=True))
