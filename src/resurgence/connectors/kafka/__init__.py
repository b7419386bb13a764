"""`kafka`: topics of a Kafka cluster, as sources and as exactly-once sinks."""

from __future__ import annotations

from resurgence.connectors.connector import Connector, FormatChoice, SinkRole, SourceRole
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.kafka.options import KafkaSourceOptions
from resurgence.connectors.kafka.reading.source import METADATA, KafkaSource
from resurgence.connectors.kafka.writing.sink import CommitMode, KafkaSink, KafkaSinkOptions
from resurgence.graph.connector_spec import Guarantee

__all__ = ["KAFKA", "KafkaSink", "KafkaSinkOptions", "KafkaSource", "KafkaSourceOptions"]

KAFKA = Connector(
    "kafka",
    source=SourceRole(
        make=KafkaSource,
        options=KafkaSourceOptions,
        formats=FormatChoice(JSON, lambda each: each.reads_messages),
        metadata=METADATA,
        jars=("kafka",),
    ),
    sink=SinkRole(
        make=KafkaSink,
        options=KafkaSinkOptions,
        formats=FormatChoice(JSON, lambda each: each.writes_messages),
        guarantee=Guarantee.EXACTLY_ONCE,
        other_guarantees={
            ("sink.commit_mode", CommitMode.AT_LEAST_ONCE.value): Guarantee.AT_LEAST_ONCE
        },
        upserts=True,
    ),
)
