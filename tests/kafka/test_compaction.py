"""Compaction leaves gaps in the offsets of a topic."""

from __future__ import annotations

import time

import pytest

from tests.kafka.topics import TopicJob, drained, event, rows_in
from tests.servers.kafka_records import Record

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "200",
}


@pytest.mark.long
def test_records_that_compaction_removed_are_neither_read_nor_counted(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(config=COMPACTED)
    for number in range(6):
        topics.broker.produce(topic, [Record(event(number).value, b"key")])
        time.sleep(0.2)
    give_up_at = time.monotonic() + 90
    while len(found := topics.broker.read(topic)) > 3:
        assert time.monotonic() < give_up_at, "the topic was not compacted"
        time.sleep(1)
    reports = drained(topics.job(topic, options={"source.stop_at": "latest"}).open())
    assert rows_in(reports) == len(found) < 6
    assert topics.ids() == [each.offset for each in found]
