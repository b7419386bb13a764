"""The options of Kafka sources."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from resurgence.connectors.byte_size import SIZE_HINT, ByteSize
from resurgence.connectors.formats.options import RecordSourceOptions
from resurgence.connectors.kafka.connection import KafkaOptions
from resurgence.connectors.kafka.reading.start import START_HINT, Start, StartKind, parse_start
from resurgence.errors import ConfigError
from resurgence.graph.table_options import option
from resurgence.ids import JobName


class ReadMode(StrEnum):
    """Whether records of transactions are read before they are committed."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class DataLoss(StrEnum):
    """What happens if records that are due are no longer in the log."""

    FAIL = "fail"
    SKIP = "skip"


class StopAt(StrEnum):
    """Where a bounded source ends."""

    LATEST = "latest"


def _pattern(value: object) -> str:
    try:
        re.compile(str(value))
    except re.error as error:
        raise ValueError(value) from error
    return str(value)


class KafkaSourceOptions(KafkaOptions, RecordSourceOptions):
    """The options of a Kafka source."""

    topic: str | None = option(
        "the topic, or several, separated by commas. Either this or `topic_pattern` is required",
        default=None,
    )
    topic_pattern: Annotated[str, BeforeValidator(_pattern)] | None = option(
        "a regular expression: all topics whose whole name matches are read, also those that are"
        " created later",
        default=None,
        hint="Use a regular expression such as 'rides-.*'.",
    )
    offset: Annotated[Start, BeforeValidator(parse_start)] = option(
        "where a new job begins: `latest` (default), `earliest`, `group` (the offsets that the"
        " consumer group has committed, else `earliest`), an instant as in `2024-01-01T00:00:00Z` or"
        ' in milliseconds since 1970, or offsets by partition as in `{"0": 12}` or'
        ' `{"topic": {"0": 12}}`',
        default=Start(StartKind.LATEST),
        name="source.offset",
        hint=START_HINT,
    )
    stop_at: StopAt | None = option(
        "`latest`: the source ends at the offsets that were the latest when the job first started;"
        " without it, it is unbounded",
        default=None,
        name="source.stop_at",
    )
    read_mode: ReadMode = option(
        "`read_committed` (default): records of a transaction are read once it is committed."
        " `read_uncommitted`: at once, also if it is aborted later",
        default=ReadMode.READ_COMMITTED,
        name="source.read_mode",
    )
    group_id: str | None = option(
        "the consumer group whose offsets the job commits, for tools that monitor lag; by default"
        " `resurgence-JOB-TABLE`",
        default=None,
        name="source.group_id",
    )
    group_id_prefix: str | None = option(
        "the prefix of the default group: `PREFIXJOB-TABLE`",
        default=None,
        name="source.group_id_prefix",
    )
    epoch_bytes: ByteSize = option(
        "the size of the records that an epoch reads, approximately, as in `256MiB` (default)",
        default=256 * 1024**2,
        name="source.epoch_bytes",
        hint=SIZE_HINT,
    )
    on_data_loss: DataLoss = option(
        "`fail` (default): the job fails if records that are due are no longer in the log. `skip`:"
        " it continues with the next ones, and counts those that it skipped",
        default=DataLoss.FAIL,
    )

    def topic_names(self) -> tuple[str, ...]:
        """Return the topics by name. Raise ConfigError unless there is one kind of topics."""
        if (self.topic is None) == (self.topic_pattern is None):
            raise ConfigError(
                "a Kafka source requires either the option 'topic' or 'topic_pattern'",
                hint="Add topic = '...' to WITH (...)."
                if self.topic is None
                else "Remove one of them.",
            )
        names = tuple(each.strip() for each in (self.topic or "").split(","))
        return tuple(each for each in names if each)

    def pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of topics, if there is one."""
        return None if self.topic_pattern is None else re.compile(self.topic_pattern)

    def group(self, table: str, job: JobName | None) -> str:
        """Return the consumer group of a table in a job."""
        if self.group_id is not None:
            return self.group_id
        prefix = "resurgence-" if self.group_id_prefix is None else self.group_id_prefix
        return f"{prefix}{job or ''}-{table}"
