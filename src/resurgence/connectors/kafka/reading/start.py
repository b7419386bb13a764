"""Where a new job begins to read: the option 'source.offset'."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from resurgence.connectors.kafka.reading.offsets import Partition, flat
from resurgence.errors import UserError

START_HINT = (
    "Use earliest, latest, group, an instant such as 2024-01-01T00:00:00Z or milliseconds since"
    """ 1970, or offsets by partition as in '{"0": 12, "1": 7}' or '{"topic": {"0": 12}}'."""
)
_OLDEST_MILLIS = 10**11
"""Smaller numbers are no instants in milliseconds, but offsets or seconds by mistake."""


class StartKind(StrEnum):
    """The kinds of starts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class Start:
    """A start."""

    kind: StartKind
    millis: int = 0
    """For TIMESTAMP: since 1970."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    """For OFFSETS: partitions without a topic are those of the only topic, and have the topic ''."""

    def __str__(self) -> str:
        return self.kind.value


def parse_start(value: object) -> Start:
    """Parse the option. Raise ValueError if it is none of the kinds."""
    if isinstance(value, Start):
        return value
    text = str(value).strip()
    if text in (StartKind.EARLIEST, StartKind.LATEST, StartKind.GROUP):
        return Start(StartKind(text))
    if text.startswith("{"):
        return Start(StartKind.OFFSETS, offsets=_offsets(json.loads(text)))
    if text.isdigit():
        if int(text) < _OLDEST_MILLIS:
            raise ValueError(f"{text} is not an instant in milliseconds")
        return Start(StartKind.TIMESTAMP, millis=int(text))
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Start(StartKind.TIMESTAMP, millis=round(at.timestamp() * 1000))


def explicit_offsets(
    start: Start,
    topics: Collection[str],
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    skips: bool,
) -> dict[Partition, int]:
    """Return the offsets that the option names, of `topics`, whose logs have these starts and ends.
    Raise UserError if a log does not hold one of them. With `skips` it may be below the start of
    the log: these records are lost, as they could be later, and are skipped by the first plan.
    """
    found = {}
    for place, offset in start.offsets.items():
        partition = place
        if not place.topic:
            if len(topics) != 1:
                raise UserError(
                    f"'source.offset' has offsets without a topic, but the table reads"
                    f" {len(topics)} topics",
                    hint="""Name the topics, as in '{"topic": {"0": 12}}'.""",
                )
            partition = Partition(next(iter(topics)), place.number)
        if partition not in starts:
            known = ", ".join(each.name for each in sorted(starts)[:8])
            raise UserError(
                f"'source.offset' names partition {partition.number} of topic"
                f" '{partition.topic}', which does not exist",
                hint=f"Name one of {known}." if known else "Create the topic.",
            )
        first, end = starts[partition], ends[partition]
        if not (first <= offset or skips) or offset > end:
            skipping = (
                ", or set on_data_loss = 'skip' on the table to begin at the start of the log"
            )
            raise UserError(
                f"'source.offset' is {offset} for {partition.name}, which holds offsets from"
                f" {first} up to {end}",
                hint=f"Use an offset that the log holds{skipping if offset < first else ''}.",
            )
        found[partition] = offset
    return found


def _offsets(tree: dict[str, object]) -> dict[Partition, int]:
    """Return the offsets in a JSON object, by partition, or by topic and partition."""
    if all(isinstance(each, dict) for each in tree.values()):
        by_topic = {topic: _numbers(each) for topic, each in tree.items()}
    else:
        by_topic = {"": _numbers(tree)}
    return flat(by_topic)


def _numbers(tree: object) -> dict[int, int]:
    if not isinstance(tree, dict):
        raise ValueError(f"{tree} has no partitions")
    for offset in tree.values():
        if type(offset) is not int or offset < 0:
            raise ValueError(f"{offset} is not an offset")
    return {int(number): offset for number, offset in tree.items()}
