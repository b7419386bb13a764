"""The data files of a Delta table: those that a commit adds, and those that a version has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.delta.file_details import PARTITION, STATISTICS
from resurgence.connectors.lookups.files import FilePart


@dataclass(frozen=True)
class AddedFile:
    """A data file that becomes part of the table."""

    path: str
    bytes: int
    partition: Mapping[str, str | None]
    statistics: str


@dataclass(frozen=True)
class LiveFile:
    """A data file that is part of the table."""

    path: str
    bytes: int
    rows: int | None
    """None if the log has no statistics of it."""
    partition: Mapping[str, object]
    """The value of each partition column, as Python has it."""
    lowest: Mapping[str, object]
    highest: Mapping[str, object]
    nulls: Mapping[str, int | None]


def added_file(file: StagedFile) -> AddedFile:
    """Return a file that tasks have written."""
    partition = file.details[PARTITION]
    assert isinstance(partition, dict)
    texts = {name: None if value is None else str(value) for name, value in partition.items()}
    return AddedFile(file.path, file.bytes, texts, str(file.details[STATISTICS]))


def live_files(actions: Sequence[Mapping[str, Any]]) -> Iterator[LiveFile]:
    """Return files from the flattened actions of a handle."""
    for each in actions:
        yield LiveFile(
            unquote(each["path"]),
            int(each["size_bytes"]),
            each.get("num_records"),
            _with_prefix(each, "partition."),
            _with_prefix(each, "min."),
            _with_prefix(each, "max."),
            _with_prefix(each, "null_count."),
        )


def _with_prefix(action: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in action.items()
        if name.startswith(prefix)
    }


def as_parts(files: Sequence[LiveFile], columns: StructType) -> tuple[FilePart, ...]:
    """Return files with the values of their partition columns."""
    types = {each.name: each.type for each in to_arrow_schema(columns, timezone="UTC")}
    return tuple(
        FilePart(
            each.path,
            {name.lower(): pa.scalar(value, types[name]) for name, value in each.partition.items()},
        )
        for each in files
    )


def file_name(path: str) -> str:
    """Return the last part of a path or URI, however often it was encoded."""
    name = path.rsplit("/", 1)[-1]
    while (plain := unquote(name)) != name:
        name = plain
    return name
