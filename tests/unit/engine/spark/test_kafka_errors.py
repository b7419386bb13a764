"""What Spark's Kafka connector raises, as our errors."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from resurgence.engine.spark.errors import translate
from resurgence.errors import ConnectionLost, ResurgenceError, SourceError, UserError

_TASK = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost"
    " task 0.0 in stage 3.0 (TID 5) (host executor driver): "
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "org.apache.spark.SparkException: [KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data"
            " may have been lost because they are not available in Kafka any more",
            SourceError,
        ),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not"
            " host this topic-partition.",
            SourceError,
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
            UserError,
        ),
        ("org.apache.kafka.common.errors.SslAuthenticationException: SSL failed", UserError),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access"
            " topics: [rides]",
            UserError,
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the"
            " position for partition rides-0 could be determined",
            ConnectionLost,
        ),
        (
            "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer",
            ConnectionLost,
        ),
    ],
)
def test_failures_of_the_connector_are_told_apart(text: str, kind: type[ResurgenceError]) -> None:
    found = translate(PySparkException(f"{_TASK}{text}\n\tat java.base/java.lang.Thread.run"))
    assert type(found) is kind
    assert found.hint
