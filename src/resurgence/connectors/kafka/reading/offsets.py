"""The position of a Kafka source: the next offset of each partition, and the id of each topic.

As an Offset, it is plain JSON:

    {"topics": {"rides": {"id": "JhMF3HU0TS-82FGCBjK2Ng", "partitions": {"0": 12, "1": 7}}}}

The id distinguishes a topic from another one that was created under the same name. `stop`, by topic
and partition, has the offsets at which a bounded source ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import ValidationError

from resurgence.errors import UserError
from resurgence.state.records import Offset, Part


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    @property
    def name(self) -> str:
        """The name in positions, metrics and messages, as in `rides/3`."""
        return f"{self.topic}/{self.number}"

    @classmethod
    def named(cls, name: str) -> Partition:
        topic, _, number = name.rpartition("/")
        return cls(topic, int(number))


class TopicPosition(Part):
    """The position in one topic."""

    id: str
    partitions: dict[int, int]
    """The next offset of each partition."""


class Positions(Part):
    """The position in all topics of a source."""

    topics: dict[str, TopicPosition]
    stop: dict[str, dict[int, int]] | None = None
    """None: the source is unbounded."""

    @classmethod
    def of(cls, offset: Offset) -> Positions:
        """Return the position that an offset contains. Raise UserError if it is not one."""
        try:
            return cls.model_validate(offset)
        except ValidationError as error:
            raise UserError(
                f"{offset} is not an offset of a Kafka source",
                hint="Restore the checkpoint from a backup. It was edited by hand.",
            ) from error

    def as_offset(self) -> Offset:
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def next(self) -> dict[Partition, int]:
        """The next offset of each partition, ordered by topic and number."""
        return {
            Partition(topic, number): offset
            for topic, position in sorted(self.topics.items())
            for number, offset in sorted(position.partitions.items())
        }

    @property
    def stops(self) -> dict[Partition, int] | None:
        """The offset at which each partition ends; None for an unbounded source."""
        return None if self.stop is None else flat(self.stop)

    def moved(self, to: Mapping[Partition, int]) -> Positions:
        """Return the position with other offsets for some of its partitions."""
        topics = {
            topic: TopicPosition(
                id=position.id,
                partitions={
                    number: to.get(Partition(topic, number), offset)
                    for number, offset in position.partitions.items()
                },
            )
            for topic, position in self.topics.items()
        }
        return Positions(topics=topics, stop=self.stop)

    def spans(self, end: Positions) -> dict[Partition, tuple[int, int]]:
        """Return (first offset, offset after the last) of each partition that has moved from here
        to `end` in the same topic. A partition that is new at `end` has nothing to read yet.
        """
        ends = end.next
        return {
            partition: (offset, ends[partition])
            for partition, offset in self.next.items()
            if ends.get(partition, offset) > offset
            and self.topics[partition.topic].id == end.topics[partition.topic].id
        }


def nested(offsets: Mapping[Partition, int]) -> dict[str, dict[int, int]]:
    """Return offsets by topic and number."""
    found: dict[str, dict[int, int]] = {}
    for partition, offset in offsets.items():
        found.setdefault(partition.topic, {})[partition.number] = offset
    return found


def flat(offsets: Mapping[str, Mapping[int, int]]) -> dict[Partition, int]:
    """Return offsets by partition."""
    return {
        Partition(topic, number): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


def numbered(partitions: Iterable[Partition]) -> dict[str, int]:
    """Return a number for each topic: that of a partition of it is this plus the partition's own.
    No two partitions have the same.
    """
    sizes: dict[str, int] = {}
    for each in partitions:
        sizes[each.topic] = max(sizes.get(each.topic, 0), each.number + 1)
    bases, base = {}, 0
    for topic, size in sorted(sizes.items()):
        bases[topic], base = base, base + size
    return bases
