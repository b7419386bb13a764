"""How far each partition of a source is behind its end: in rows, and in seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from resurgence.connectors.contract import Source
from resurgence.state.records import InputRange

MOST_PARTITIONS = 32
"""How many partitions a summary lists: it is part of the event of every epoch."""


class PartitionLag(BaseModel):
    """The lag of one partition after an epoch."""

    model_config = ConfigDict(frozen=True)

    table: str
    partition: str
    rows: int
    """At most so many rows were unread when the epoch was planned."""
    seconds: float | None
    """The age of the newest record that was read, if others were unread; else 0. None if others were
    unread, and none has been read since the start of the worker.
    """


class LagSummary(BaseModel):
    """The lag of all sources of a job that have partitions."""

    model_config = ConfigDict(frozen=True)

    rows: int
    """Of all partitions together."""
    seconds: float | None
    """Of the partition that is furthest behind. None if it is not known of any."""
    partitions: tuple[PartitionLag, ...]
    """Those that are furthest behind, with the most unread rows first."""


def lag_summary(lags: Sequence[PartitionLag]) -> LagSummary | None:
    """Return the lag of a job; None if its sources have no partitions."""
    if not lags:
        return None
    known = [each.seconds for each in lags if each.seconds is not None]
    ordered = sorted(lags, key=lambda each: (-each.rows, each.table, each.partition))
    return LagSummary(
        rows=sum(each.rows for each in lags),
        seconds=max(known, default=None),
        partitions=tuple(ordered[:MOST_PARTITIONS]),
    )


def partition_lag(
    table: str,
    source: Source,
    input_range: InputRange,
    record_times: Mapping[str, int],
    now: int,
) -> Iterator[PartitionLag]:
    """Yield the lag of every partition of a source. `record_times` has, by partition, when the
    newest record that was read was written; `now` is in microseconds, as they are.
    """
    unread = source.unread()
    for each in source.partitions(input_range):
        rows = unread.get(each.name, 0)
        age = None
        if rows == 0:
            age = 0.0
        elif each.name in record_times:
            age = max(0, now - record_times[each.name]) / 1_000_000
        yield PartitionLag(table=table, partition=each.name, rows=rows, seconds=age)
