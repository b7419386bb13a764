"""When the offsets of a consumer group are committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from resurgence.connectors.kafka.reading.cluster import Cluster
from resurgence.connectors.kafka.reading.group_offsets import GroupOffsets
from resurgence.connectors.kafka.reading.offsets import Partition, Positions, TopicPosition
from resurgence.connectors.kafka.reading.source import KafkaSource
from resurgence.connectors.registry import CONNECTORS, make_source
from resurgence.sql import compile_pipeline
from resurgence.state.records import InputRange

SQL = """
CREATE TABLE rides (id BIGINT) WITH (
  connector = 'kafka', type = 'source', bootstrap_servers = 'localhost:1', topic = 'rides');
CREATE TABLE out WITH (connector = 'blackhole');
INSERT INTO out SELECT id FROM rides
"""


class SlowCluster:
    """Answers a moment later, from another thread."""

    def __init__(self) -> None:
        self.committed: list[dict[Partition, int]] = []

    def commit_group(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        done: Callable[[Exception | None], None],
    ) -> None:
        def answer() -> None:
            self.committed.append(dict(offsets))
            done(None)

        threading.Timer(0.1, answer).start()


def test_a_source_that_is_closed_has_committed_its_last_offsets() -> None:
    cluster = SlowCluster()
    source = make_source(compile_pipeline(SQL, CONNECTORS, {}).sources()[0])
    assert isinstance(source, KafkaSource)
    source._group_offsets = GroupOffsets(cast(Cluster, cast(Any, cluster)), "group")
    for end in (1, 2, 3):
        topics = {"rides": TopicPosition(id="id", partitions={0: end})}
        offset = Positions(topics=topics).as_offset()
        source.committed(InputRange(start=offset, end=offset, rows=1))
    source.close()
    # Newer offsets replace those that wait.
    assert cluster.committed == [{Partition("rides", 0): 1}, {Partition("rides", 0): 3}]
