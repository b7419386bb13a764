"""Messages, as a connector of a message system gives them to a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.connector import SinkDeclaration, SourceDeclaration
from resurgence.connectors.contract import BAD_POSITION, POSITION_TYPE, RECORD_POSITION
from resurgence.connectors.formats.contract import VALUE, Format, RecordReader, RecordWriter
from resurgence.connectors.formats.messages import records_of
from resurgence.connectors.formats.options import RecordSourceOptions
from resurgence.graph.values import Column

TOPIC = "rides-0"
SUBJECT = "rides-value"


def messages(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """Messages with these values; the key of each is its number."""
    rows = [((TOPIC, number), value, str(number).encode()) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, f"position {POSITION_TYPE}, {VALUE} BINARY, key BINARY")


def reader_of(
    chosen: Format, columns: Sequence[Column], options: Mapping[str, str] | None = None
) -> RecordReader:
    """The reader of a table; `options` are those of the format and of all sources."""
    model = chosen.spec.source_options
    given = dict(options or {})
    own = {name: value for name, value in given.items() if name in model.declared()}
    shared = {name: value for name, value in given.items() if name not in own}
    table = SourceDeclaration("t", tuple(columns), (), chosen, model.read(own))
    return table.reader(RecordSourceOptions.read(shared), SUBJECT)


def writer_of(
    chosen: Format, options: Mapping[str, str] | None = None, *passed: str, keys: Sequence[str] = ()
) -> RecordWriter:
    own = chosen.spec.sink_options.read(options or {})
    table = SinkDeclaration("t", tuple(keys), chosen, own)
    assert chosen.writer is not None
    return chosen.writer(table.write_settings(passed, SUBJECT))


def read(
    spark: SparkSession, chosen: Format, reader: RecordReader, values: Sequence[bytes | None]
) -> DataFrame:
    records = records_of(messages(spark, values), chosen)
    metadata = {"key": F.expr("CAST(key AS STRING)"), "offset": F.col("position.offset")}
    return reader.parse(records, metadata)


def rows_of(found: DataFrame) -> list[tuple[Any, ...]]:
    """The good rows, in the order of their messages."""
    good = found.where(f"{BAD_POSITION} IS NULL").orderBy(f"{RECORD_POSITION}.offset")
    return [tuple(each) for each in good.drop(BAD_POSITION, RECORD_POSITION).collect()]


def bad_offsets(found: DataFrame) -> list[int]:
    """The offsets of bad records."""
    bad = found.where(f"{BAD_POSITION} IS NOT NULL").selectExpr(f"{BAD_POSITION}.offset AS at")
    return sorted(each["at"] for each in bad.collect())


def written(records: DataFrame) -> list[bytes]:
    """The rendered values, as bytes."""
    return [bytes(each[0]) for each in records.selectExpr(f"CAST({VALUE} AS BINARY)").collect()]
