"""Rows as Kafka messages: a value by the table's format, a key, and a partition if columns name it.

| input | format | message |
|---|---|---|
| append-only | any | every row |
| changelog with PRIMARY KEY | any but changelogs | an upsert: the key's new row, or a tombstone |
| changelog | `debezium_json` | every change; with a PRIMARY KEY, one per key |

The key is that of `'sink.key_field'`: the text of one column, or a JSON object of several. Without
it, it is the PRIMARY KEY as a JSON object. A table with neither has messages without keys.

Messages of one key, or of one partition, are in one Spark partition, in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from resurgence.connectors.formats.contract import VALUE, RecordWriter
from resurgence.connectors.formats.json.writer import object_sql
from resurgence.connectors.net_rows import IS_DELETED, net_rows
from resurgence.errors import ConfigError, did_you_mean
from resurgence.graph.values import CHANGE

_KEY, _PARTITION, _ORDER = "__key", "__partition", "__order"


@dataclass(frozen=True)
class MessageLayout:
    """How the rows of a table become messages."""

    writer: Callable[[tuple[str, ...]], RecordWriter]
    """Makes the writer of values, which passes through the columns named."""
    is_changelog: bool = False
    """Its format writes changes."""
    primary_key: tuple[str, ...] = ()
    key_field: tuple[str, ...] = ()
    partition_field: tuple[str, ...] = ()
    partitions: int = 1
    """How many partitions the topic has, for `partition_field`."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.key_field or self.primary_key


def as_messages(rows: DataFrame, layout: MessageLayout) -> DataFrame:
    """Return the columns `value`, `key` if there is one, and `partition` if columns name it."""
    if CHANGE in rows.columns:
        _require_primary_key(layout)
    addressed = _addressed(rows, layout)
    passed = {_KEY: "key", _PARTITION: "partition"}
    columns = {each: name for each, name in passed.items() if each in addressed.columns}
    # Without a PRIMARY KEY, a delete and an insert of one key are messages of their own, from any
    # task.
    has_changes = bool(columns) and CHANGE in rows.columns and not layout.primary_key
    if CHANGE in rows.columns and not layout.is_changelog:
        net = net_rows(addressed, layout.primary_key)
        rendered = layout.writer((*columns, IS_DELETED)).render(net)
        value = f"IF({IS_DELETED}, NULL, {VALUE})"
    else:
        beside = (*columns, CHANGE) if has_changes else (*columns,)
        rendered, value = layout.writer(beside).render(addressed), VALUE
    selected = [f"{each} AS {name}" for each, name in columns.items()]
    order = [f"`{CHANGE}`"] if has_changes else []
    messages = rendered.selectExpr(f"CAST({value} AS BINARY) AS value", *selected, *order)
    if not columns:
        return messages
    lane = [*columns.values()][-1]
    # A shuffle alone keeps the order of rows only if they come from one task.
    numbered = messages.selectExpr("*", f"monotonically_increasing_id() AS {_ORDER}")
    ordered = numbered.repartition(lane).sortWithinPartitions(*order, _ORDER)
    return ordered.select("value", *columns.values())


def _addressed(rows: DataFrame, layout: MessageLayout) -> DataFrame:
    """Return the rows with the key of their message, if they have one, and its partition, if
    columns name it.
    """
    fields = {each.name.lower(): each for each in rows.schema if each.name != CHANGE}
    for each in (*layout.key_columns, *layout.partition_field):
        if each.lower() not in fields:
            raise ConfigError(
                f"there is no column '{each}' for the key or the partition of messages",
                hint=did_you_mean(each, fields),
            )
    keys = [fields[each.lower()] for each in layout.key_columns]
    added = []
    if keys:
        is_plain = len(layout.key_field) == 1
        key = f"CAST(`{keys[0].name}` AS STRING)" if is_plain else object_sql(keys)
        added.append(f"CAST({key} AS BINARY) AS {_KEY}")
    if layout.partition_field:
        values = ", ".join(f"`{fields[each.lower()].name}`" for each in layout.partition_field)
        partition = f"CAST(pmod(hash({values}), {layout.partitions}) AS INT)"
        added.append(f"{partition} AS {_PARTITION}")
    return rows.selectExpr("*", *added)


def _require_primary_key(layout: MessageLayout) -> None:
    """Raise ConfigError if the changes of a key could have different keys or partitions."""
    keys = {each.lower() for each in layout.primary_key}
    named = {each.lower() for each in layout.key_columns}
    if not layout.is_changelog and (not keys or named != keys):
        raise ConfigError(
            "the key of a changelog's messages must be its PRIMARY KEY, because readers apply"
            " upserts and tombstones by key",
            hint="Remove 'sink.key_field', or name the columns of the PRIMARY KEY.",
        )
    named.update(each.lower() for each in layout.partition_field)
    if keys and not named <= keys:
        raise ConfigError(
            "the key and the partition of a changelog's messages must be columns of its PRIMARY"
            f" KEY, but {', '.join(sorted(named - keys))} is not",
            hint="Change 'sink.key_field' and 'sink.partition_field', or the PRIMARY KEY.",
        )
