"""Rows as Kafka messages."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.debezium.events import DebeziumWriter
from resurgence.connectors.kafka.writing.messages import MessageLayout, as_messages
from resurgence.graph.table_options import TableOptions
from resurgence.graph.values import CHANGE


def test_without_a_primary_key_the_delete_of_a_key_precedes_its_insert(spark: SparkSession) -> None:
    columns = f"name STRING, n INT, {CHANGE} INT"
    inserted = spark.createDataFrame([("a", 2, 1), ("b", 3, 1)], columns).coalesce(1)
    deleted = spark.createDataFrame([("b", 2, -1), ("a", 1, -1)], columns).coalesce(1)
    layout = MessageLayout(
        writer=lambda passed: DebeziumWriter(WriteSettings(TableOptions(), passed=passed)),
        is_changelog=True,
        key_field=("name",),
    )
    # The net changes of a key may be in any tasks.
    messages = as_messages(inserted.union(deleted), layout)
    assert messages.columns == ["value", "key"]
    found: dict[str, list[str]] = {}
    for each in messages.collect():
        found.setdefault(each.key.decode(), []).append(json.loads(each.value)["op"])
    assert found == {"a": ["d", "c"], "b": ["d", "c"]}
