"""What a Kafka source reads next, as pure functions of its position and of what the cluster holds.

`reconciled` brings a position in line with the topics: new partitions, deleted topics, and records
that the log no longer holds. `shares` divides the rows of an epoch among the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resurgence.connectors.kafka.reading.offsets import Partition, Positions, TopicPosition

MOST_PARTITIONS = 64
"""How many partitions an epoch reads. The watermark of each costs a measure per row."""
FIRST_ROWS = 1000
"""How many rows an epoch reads at most while the size of records is unknown."""
_ASSUMED_BYTES = 1024
"""The size of a record that is assumed before any was read, for small epochs."""


@dataclass(frozen=True)
class Topic:
    """A topic of the cluster."""

    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class RecordSize:
    """The size of records, estimated from those that were read."""

    bytes: float | None = None
    """None: none were read since the job has started."""

    def measured(self, rows: int, size: int) -> RecordSize:
        """Return the estimate after so many rows of this size in all. The first ones replace what
        was assumed. Of later ones half is taken: sizes may change, but one epoch may be unusual.
        """
        if not rows:
            return self
        found = size / rows
        return RecordSize(max(1.0, found if self.bytes is None else (self.bytes + found) / 2))

    def most_rows(self, most_bytes: int) -> int:
        """Return how many rows an epoch may read. The first epoch after a start is small, because
        its records may have any size.
        """
        if self.bytes is None:
            return max(1, min(FIRST_ROWS, most_bytes // _ASSUMED_BYTES))
        return max(1, int(most_bytes / self.bytes))


@dataclass(frozen=True)
class Loss:
    """Records that were due, and that the cluster does not hold."""

    message: str
    rows: int | None
    """None if it is not known how many."""


@dataclass(frozen=True)
class Reconciled:
    """A position in line with the cluster, and what was lost on the way."""

    positions: Positions
    losses: tuple[Loss, ...] = ()


def all_partitions(topics: Mapping[str, Topic]) -> list[Partition]:
    """Return the partitions of topics, in order."""
    return [
        Partition(name, number)
        for name, topic in sorted(topics.items())
        for number in sorted(topic.partitions)
    ]


def reconciled(
    positions: Positions,
    topics: Mapping[str, Topic],
    starts: Mapping[Partition, int],
    *,
    deleted: Iterable[str] = (),
    ends: Mapping[Partition, int] | None = None,
) -> Reconciled:
    """Return the position in `topics`, those that the source is to read and that exist; `starts`
    has the first offset that the log of each partition holds, `deleted` the topics that should
    exist and do not, and `ends` the offset after the last record, at least of partitions that may
    have been truncated.

    New topics and partitions begin at their first record, because all of their records are new. A
    bounded source does not read them, nor a topic that was created again. What it has read up to its
    stop, and what follows that, cannot be lost. A topic that the source no longer reads is dropped.
    """
    due = {each.topic for each in _due(positions)}
    losses = [
        Loss(f"topic '{name}' was deleted", None)
        for name in sorted(set(deleted) & positions.topics.keys() & due)
    ]
    stops = positions.stops
    found: dict[str, TopicPosition] = {}
    for name, topic in sorted(topics.items()):
        before = positions.topics.get(name)
        if before is not None and before.id != topic.id:
            if name in due:
                losses.append(Loss(f"topic '{name}' was deleted and created again", None))
            before = None
        elif before is None and positions.stop is not None:
            continue
        offsets: dict[int, int] = {}
        for number in topic.partitions:
            partition = Partition(name, number)
            offset = None if before is None else before.partitions.get(number)
            if offset is None and before is not None and positions.stop is not None:
                continue
            end = None if ends is None else ends.get(partition)
            stop = None if stops is None or offset is None else stops.get(partition, offset)
            offsets[number], loss = _held(partition, offset, starts[partition], end, stop)
            losses += [loss] if loss else []
        found[name] = TopicPosition(id=topic.id, partitions=offsets)
    return Reconciled(Positions(topics=found, stop=_stop(positions, found)), tuple(losses))


def _stop(
    positions: Positions, found: Mapping[str, TopicPosition]
) -> dict[str, dict[int, int]] | None:
    """Return where a bounded source ends, in the topics that are the same as before. Offsets of a
    topic that was created again are others, and all of its records are new.
    """
    if positions.stop is None:
        return None
    return {
        name: numbers
        for name, numbers in positions.stop.items()
        if name in found
        and name in positions.topics
        and found[name].id == positions.topics[name].id
    }


def _held(
    partition: Partition, offset: int | None, start: int, end: int | None, stop: int | None
) -> tuple[int, Loss | None]:
    """Return the next offset that the log holds, and the loss if it is not the one that is due. At
    its stop, a partition has nothing due any more.
    """
    if offset is None:
        return start, None
    if stop is not None and offset >= stop:
        return offset, None
    if offset < start:
        message = f"{partition.name} begins at offset {start}, but offset {offset} is due"
        found = start if stop is None else min(start, stop)
        return found, Loss(message, found - offset)
    if end is not None and offset > end:
        message = f"{partition.name} ends at offset {end}, but the job has read up to {offset}"
        return end, Loss(message, None)
    return offset, None


def available(positions: Positions, ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return how many offsets of each partition can be read; partitions without any are missing.
    `ends` are the offsets after the last record that may be read.
    """
    stops = positions.stops
    found = {}
    for partition, offset in positions.next.items():
        end = ends.get(partition, offset)
        if stops is not None:
            end = min(end, stops.get(partition, offset))
        if end > offset:
            found[partition] = end - offset
    return found


def _due(positions: Positions) -> list[Partition]:
    """Return the partitions that have not been read to their stop."""
    stops = positions.stops
    return [
        partition
        for partition, offset in positions.next.items()
        if stops is None or offset < stops.get(partition, offset)
    ]


def is_at_stop(positions: Positions) -> bool:
    """Return whether a bounded source has been read to its end."""
    return positions.stop is not None and not _due(positions)


def rotated(candidates: Iterable[Partition], after: Partition | None) -> list[Partition]:
    """Return partitions in order, beginning with the one that follows `after`."""
    ordered = sorted(candidates)
    if after is None:
        return ordered
    return [each for each in ordered if each > after] + [each for each in ordered if each <= after]


def shares(candidates: Mapping[Partition, int], most_rows: int) -> dict[Partition, int]:
    """Divide the rows of an epoch: each partition gets an equal share, and what some do not need is
    for the others. Every partition gets at least one row unless there are more partitions than
    rows; then the first ones do.
    """
    chosen = dict([*candidates.items()][:most_rows])
    left, found = most_rows, {}
    for place, partition in enumerate(sorted(chosen, key=lambda each: chosen[each])):
        found[partition] = min(chosen[partition], left // (len(chosen) - place))
        left -= found[partition]
    return {partition: found[partition] for partition in chosen}
