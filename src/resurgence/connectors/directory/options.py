"""The options of `filesystem` sources."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from resurgence.connectors.byte_size import SIZE_HINT, ByteSize
from resurgence.connectors.formats.options import RecordSourceOptions
from resurgence.durations import parse_duration
from resurgence.graph.table_options import option

_DISCOVERY_INTERVAL = timedelta(seconds=5)


class FileOrder(StrEnum):
    """The order in which files are read, which is also how unread ones are known."""

    MODIFIED = "modified"
    NAME = "name"


class Compression(StrEnum):
    """How files of lines are compressed."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


class StopAt(StrEnum):
    """Where a bounded source ends."""

    LATEST = "latest"


def _pattern(value: object) -> str:
    try:
        re.compile(str(value))
    except re.error as error:
        raise ValueError(value) from error
    return str(value)


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value
    names = tuple(each.strip() for each in str(value).split(","))
    if not all(names):
        raise ValueError(value)
    return names


class DirectorySourceOptions(RecordSourceOptions):
    """The options of a `filesystem` source."""

    path: str = option(
        "a folder or storage URL: all files under it, at any depth, are read. Its last steps may be"
        " patterns, as in `logs/*/2024-*.json` or `logs/**/*.json`. Names that begin with `.` or `_`"
        " are ignored"
    )
    regex_pattern: Annotated[str, BeforeValidator(_pattern)] | None = option(
        "a regular expression: only files are read in whose path, relative to the folder, it is"
        " found",
        default=None,
        name="source.regex_pattern",
        hint="Use a regular expression such as '\\.json$'.",
    )
    compression: Compression | None = option(
        "how files of lines are compressed: `none`, `gzip` or `zstd`; by default by the name:"
        " `*.gz` is `gzip`, `*.zst` is `zstd`, any other `none`",
        default=None,
        name="source.compression",
    )
    partitioned_by: Annotated[tuple[str, ...], BeforeValidator(_names)] | None = option(
        "columns, separated by commas, whose values are in the names of folders, as in"
        " `day=2024-03-01/city=Berlin/part-0.json`, and not in the files",
        default=None,
        name="partitioning.fields",
        hint="Write it as in 'day, city'.",
    )
    order: FileOrder | None = option(
        "`modified`: by modified time, then by name; the names of new files can be any. `name`: by"
        " name alone; a new file must have a greater name than all before it. By default `name` if"
        " the source is bounded, else `modified`",
        default=None,
        name="source.order",
    )
    stop_at: StopAt | None = option(
        "`latest`: the source ends with the last file that existed when the job first started;"
        " without it, it is unbounded",
        default=None,
        name="source.stop_at",
    )
    discovered_every: Annotated[timedelta, BeforeValidator(parse_duration)] | None = option(
        "how often new files are looked for, as in `5s` (default)",
        default=None,
        name="source.discovery_interval",
        hint="Write it as in 500ms, 5s or 1m.",
    )
    remembered_files: Annotated[int, Field(ge=1, le=100_000)] = option(
        "with the order `modified`: how many of the newest files that were read a checkpoint names,"
        " 500 by default. A file that appears later than that many newer ones is a failure",
        default=500,
        name="source.remembered_files",
        hint="Use a whole number from 1 to 100000.",
    )
    epoch_files: Annotated[int, Field(ge=1, le=100_000)] = option(
        "the maximum number of files that an epoch reads, 500 by default",
        default=500,
        name="source.epoch_files",
        hint="Use a whole number from 1 to 100000.",
    )
    epoch_bytes: ByteSize = option(
        "the maximum size of what an epoch reads, as it is stored, as in `256MiB` (default). A"
        " compressed file is read whole",
        default=256 * 1024**2,
        name="source.epoch_bytes",
        hint=SIZE_HINT,
    )

    @property
    def file_order(self) -> FileOrder:
        """The order of files, as set or by default."""
        if self.order is not None:
            return self.order
        return FileOrder.MODIFIED if self.stop_at is None else FileOrder.NAME

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The columns that are in the names of folders."""
        return self.partitioned_by or ()

    @property
    def discovery_interval(self) -> timedelta:
        """How often new files are looked for, as set or by default."""
        return self.discovered_every or _DISCOVERY_INTERVAL
