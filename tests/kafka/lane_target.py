"""A Kafka sink without Spark: staged parts, the commit of their lanes, and what readers see."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from resurgence.connectors.contract import CoveredInput, SourceSpan
from resurgence.connectors.kafka.connection import KafkaConnection
from resurgence.connectors.kafka.writing.lanes import LaneCommit, commit_lane
from resurgence.connectors.kafka.writing.librdkafka import NativeProducer
from resurgence.connectors.kafka.writing.marker_topic import MarkerTopic
from resurgence.connectors.kafka.writing.parts import Part, encoded, lanes_of
from resurgence.ids import Epoch, JobIdentity, OperatorId
from resurgence.storage.access import store_access
from resurgence.storage.object_store import ObjectStore
from tests.servers.kafka import KafkaBroker

JOB = JobIdentity("a1b2c3d4e5f6")
SINK = "out"
STEPS = ("init_transactions", "begin", "produce", "commit")
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class Killed(BaseException):
    """The process is killed: nothing after this runs, not even an abort."""


def covering(epoch: int, rows: int = 1000) -> CoveredInput:
    """The input of an epoch, if each has so many rows."""
    span = SourceSpan(start={"line": (epoch - 1) * rows}, end={"line": epoch * rows})
    return CoveredInput(sources={OperatorId("source-in"): span})


class LaneTarget:
    """A topic, a marker topic and a store of their own."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        self.broker = broker
        self.topic = broker.create_topic(partitions=2)
        self.url = f"file://{folder}/state"
        self.store = ObjectStore(self.url)
        self.connection = KafkaConnection(broker.bootstrap)
        self.markers = MarkerTopic(self.connection, f"markers-{uuid.uuid4().hex[:8]}")
        self.markers.ensure(self.topic)
        self._unique = itertools.count()

    def stage(self, epoch: int, *lanes: Sequence[Sequence[str]]) -> tuple[Part, ...]:
        """Stage the values of each part of each lane; all have the key of their lane."""
        staged = []
        for lane, parts in enumerate(lanes):
            for number, values in enumerate(parts):
                path = f"staged/{epoch:010}-1-{lane:05}-{number:05}-{next(self._unique):012x}"
                rows = [{"key": b"%d" % lane, "value": each.encode()} for each in values]
                data = encoded([pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)])
                assert self.store.create(path, data)
                staged.append(Part(path, len(values)))
        return tuple(staged)

    def order(self, epoch: int, parts: Sequence[Part], **changes: Any) -> LaneCommit:
        settings: dict[str, Any] = {
            "job": JOB,
            "sink": SINK,
            "topic": self.topic,
            "epoch": Epoch(epoch),
            "covered": covering(epoch),
            "connection": self.connection,
            "message_bytes": 1_000_000,
            "lanes": lanes_of(parts),
            "markers": self.markers,
        }
        return LaneCommit(**(settings | changes))

    def commit(self, order: LaneCommit) -> None:
        """Commit all lanes, as a new process would do it."""
        for lane in range(len(order.lanes)):
            conflict = order.conflict(commit_lane(order, lane, store_access(self.url)))
            if conflict is not None:
                raise conflict

    def visible(self) -> list[str]:
        """The values that a reader with read_committed sees, by partition and offset."""
        return [(each.value or b"null").decode() for each in self.broker.read(self.topic)]


@contextmanager
def at_call(
    patch: pytest.MonkeyPatch, step: str, number: int, action: Callable[[], None], *, after: bool
) -> Iterator[list[int]]:
    """Do something once, before or after a call of a producer, counted from 1. The yielded list has
    an item as soon as that has happened.
    """
    real = getattr(NativeProducer, step)
    calls = itertools.count(1)
    happened: list[int] = []

    def called(self: NativeProducer, *arguments: Any) -> Any:
        is_it = next(calls) == number and not happened
        if is_it and not after:
            happened.append(number)
            action()
        result = real(self, *arguments)
        if is_it and after:
            happened.append(number)
            action()
        return result

    with patch.context() as patched:
        patched.setattr(NativeProducer, step, called)
        yield happened
