"""The events of Nexmark as Parquet files, generated once into the cache folder.

An event is a row with the columns of a person, of an auction or of a bid; all others are null. The
columns are flat, because not every system can skip the fields of a struct that a query does not
read. Events are in the order in which a generator would send them, a millisecond of event time
apart, and out of order by up to 50 of them. The last three, one of each kind, are a day later, so
that all windows before them close in every system. They refer to nothing, and their ids are `END`.

The same rows are stored twice. `epochs` has a file for each epoch, in the order of time, as
systems read them that take files in order. Flink assigns files to its readers in no order, which
would make rows late, so `readers` has one file for each reader, as with partitions of a log.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from resurgence.cache_folder import cache_folder
from resurgence.connectors.generator import NUMBER
from resurgence.connectors.nexmark import COLUMNS, NexmarkOptions, NexmarkSource

LAYOUT = 1
"""Increased when files that were generated before must not be used any more."""
START = "2024-01-01T00:00:00"
READERS = 2
KINDS = {"people": "person", "auctions": "auction", "bids": "bid"}
"""The views that queries read, and the kind of their events."""
END = -1
_FIRST_MTIME = 1_704_067_200


def _fields() -> dict[str, dict[str, str]]:
    """Return the types of the fields of each kind of event, without the time, which all share."""
    declared = {each.name: each.type for each in COLUMNS}
    found = {}
    for kind in KINDS.values():
        listed = declared[kind].removeprefix("STRUCT<").removesuffix(">").split(", ")
        named = (each.replace("`", "").split(": ") for each in listed)
        found[kind] = {name: sql for name, sql in named if name != "datetime"}
    return found


FIELDS: Mapping[str, Mapping[str, str]] = _fields()


def flat_columns() -> dict[str, str]:
    """Return the columns of the files, with their types; `timestamp` is the last one."""
    columns = {
        f"{kind}_{name}": sql for kind, fields in FIELDS.items() for name, sql in fields.items()
    }
    return {**columns, "timestamp": "TIMESTAMP"}


def view_sql(view: str) -> str:
    """Return the query of a view of all events of one kind, over the table `nexmark`."""
    kind = KINDS[view]
    names = [*FIELDS[kind]]
    listed = ", ".join(f"{kind}_{name} AS `{name}`" for name in names)
    return (
        f"SELECT {listed}, `timestamp` AS `datetime` FROM nexmark"
        f" WHERE {kind}_{names[0]} IS NOT NULL"
    )


@dataclass(frozen=True)
class Events:
    """How many events there are, and how many a file of an epoch has."""

    rows: int
    epoch_rows: int

    @property
    def folder(self) -> Path:
        name = f"nexmark-{LAYOUT}-{self.rows}-{self.epoch_rows}"
        return cache_folder() / "benchmarks" / name

    @property
    def epochs(self) -> Path:
        return self.folder / "epochs"

    @property
    def readers(self) -> Path:
        return self.folder / "readers"

    @property
    def side(self) -> Path:
        """The table at rest that q13 joins."""
        return self.folder / "side"


def generate(spark: SparkSession, events: Events) -> None:
    """Write all files unless they exist. They appear at once, under their final name."""
    if events.folder.exists():
        return
    staging = events.folder.with_name(f"{events.folder.name}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    flat = _flat(spark, events.rows - len(KINDS)).unionAll(_end(spark, events.rows)).cache()
    try:
        for number, first in enumerate(range(0, events.rows, events.epoch_rows)):
            part = flat.where(f"`{NUMBER}` >= {first} AND `{NUMBER}` < {first + events.epoch_rows}")
            # Some systems read files in the order of their modified times.
            _write_file(part, staging / "epochs" / f"{number:05}.parquet", _FIRST_MTIME + number)
        for number in range(READERS):
            part = flat.where(f"`{NUMBER}` DIV 50 % {READERS} = {number}")
            _write_file(part, staging / "readers" / f"{number:05}.parquet", _FIRST_MTIME)
    finally:
        flat.unpersist()
    side = spark.range(10).selectExpr(
        "id AS key", "concat('value ', id) AS value", f"0L AS `{NUMBER}`"
    )
    _write_file(side, staging / "side" / "00000.parquet", _FIRST_MTIME)
    staging.rename(events.folder)


def _flat(spark: SparkSession, rows: int) -> DataFrame:
    options = {"event_time_interval": "1ms", "start_time": START, "message_count": str(rows)}
    source = NexmarkSource(NexmarkOptions.read(options), COLUMNS)
    now = datetime.now(UTC)
    planned = source.plan(source.first_offset(now, READERS), rows, now)
    assert planned is not None
    listed = (
        f"{kind}.{name} AS {kind}_{name}" for kind, fields in FIELDS.items() for name in fields
    )
    return source.numbered(spark, planned, READERS).selectExpr(*listed, "timestamp", f"`{NUMBER}`")


def _end(spark: SparkSession, rows: int) -> DataFrame:
    """Return the last event of each kind."""
    at = f"TIMESTAMP '{START}' + make_dt_interval(1, 0, 0, {rows} / 1000)"
    last = {
        # The seller is not the person of that id, and the bid is not for that auction.
        "auction_id": END - 1,
        "auction_seller": END - 1,
        "auction_expires": at,
        "timestamp": at,
    }
    values = {"BIGINT": END, "STRING": "''"}
    parts = []
    for number, kind in enumerate(KINDS.values(), start=rows - len(KINDS)):
        listed = (
            f"{last.get(name, values.get(sql)) if _is_of(name, kind) else f'CAST(NULL AS {sql})'}"
            f" AS {name}"
            for name, sql in flat_columns().items()
        )
        parts.append(f"SELECT {', '.join(listed)}, {number}L AS `{NUMBER}`")
    return spark.sql(" UNION ALL ".join(parts))


def _is_of(column: str, kind: str) -> bool:
    return column == "timestamp" or column.startswith(f"{kind}_")


def _write_file(rows: DataFrame, file: Path, modified: int) -> None:
    """Write one Parquet file, in the order of the numbers."""
    folder = file.with_suffix(".parts")
    ordered = rows.coalesce(1).sortWithinPartitions(NUMBER).drop(NUMBER)
    ordered.write.option("compression", "snappy").parquet(str(folder))
    (written,) = folder.glob("*.parquet")
    written.rename(file)
    shutil.rmtree(folder)
    os.utime(file, (modified, modified))
