"""A log that ends before what a job has read, as after a power loss or an unclean election."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.registry import CONNECTORS, make_source
from resurgence.errors import SourceRangeGone
from resurgence.sql import compile_pipeline
from tests.kafka.topics import TopicJob, drained, event
from tests.servers.builds import NoServer
from tests.servers.kafka import KafkaBroker, running_broker

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    """A broker of its own, because it is stopped."""
    try:
        with running_broker() as running:
            yield running
    except NoServer as error:
        pytest.skip(f"no Kafka server: {error}")


@pytest.mark.usefixtures("kafka_jars")
def test_a_log_that_ends_before_the_position_fails_the_job_or_is_skipped(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    topics = TopicJob(spark, broker, tmp_path)
    topic = broker.create_topic()
    broker.produce(topic, [event(each) for each in range(3)])
    size = broker.log_file(topic).stat().st_size
    broker.produce(topic, [event(each) for each in range(3, 5)])
    jobs = {
        each: topics.job(topic, options={"on_data_loss": each}, name=each)
        for each in ("fail", "skip")
    }
    for job in jobs.values():
        drained(job.open())
    spec = compile_pipeline(jobs["skip"].sql, CONNECTORS, {}).sources()[0]
    source = make_source(spec)
    planned = source.plan(source.first_offset(NOW, 1), 100, NOW)
    assert planned is not None

    broker.kill()
    os.truncate(broker.log_file(topic), size)
    broker.restart()
    assert len(broker.read(topic)) == 3

    shorter = f"{topic}/0 ends at offset 3, but the job has read up to 5"
    with pytest.raises(SourceRangeGone, match=shorter) as error:
        drained(jobs["fail"].open())
    assert "on_data_loss = 'skip'" in error.value.hint
    again = make_source(spec)
    assert not again.holds(planned)
    missing = f"{topic}/0 holds offsets from 0 up to 3, but those from 0 up to 5 are to be read"
    with pytest.raises(SourceRangeGone, match=missing) as error:
        again.read(spark, planned, 1)
    assert "on_data_loss does not apply" in error.value.hint
    engine = jobs["skip"].open()
    drained(engine)
    broker.produce(topic, [event(9)])
    drained(engine)
    assert topics.ids("skip") == [0, 1, 2, 3, 4, 9]
