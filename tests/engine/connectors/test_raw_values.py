"""`raw_string` and `raw_bytes`: a record is a value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.raw_values import RAW_BYTES, RAW_STRING
from resurgence.connectors.registry import CONNECTORS
from resurgence.connectors.staging import as_lines
from resurgence.errors import SqlError, UserError
from resurgence.graph.values import Column
from resurgence.sql import compile_pipeline
from tests.engine.connectors.messages import (
    bad_offsets,
    read,
    reader_of,
    rows_of,
    writer_of,
    written,
)
from tests.engine.harness import Job, sink_table, source_table

KEY = Column(name="key", type="STRING", metadata="key")
VALUES = [b"a", b"", b"\xff\x00", None, "ž\n".encode()]


def test_text_is_read_unless_it_is_not_utf8(spark: SparkSession) -> None:
    reader = reader_of(RAW_STRING, (Column(name="value", type="STRING"), KEY))
    found = read(spark, RAW_STRING, reader, VALUES)
    assert rows_of(found) == [("a", "0"), ("", "1"), ("ž\n", "4")]
    assert bad_offsets(found) == [2, 3]
    assert reader.explain(VALUES[2]).reason == "not UTF-8: byte ff"
    assert reader.explain(None).reason == "no value (tombstone)"


def test_bytes_are_read_as_they_are(spark: SparkSession) -> None:
    reader = reader_of(RAW_BYTES, (KEY, Column(name="value", type="BINARY")))
    found = read(spark, RAW_BYTES, reader, VALUES)
    assert [bytes(each[1]) for each in rows_of(found)] == [
        each for each in VALUES if each is not None
    ]
    assert bad_offsets(found) == [3]
    assert reader.explain(None).reason == "no value (tombstone)"


def test_the_only_column_is_written(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'ž' AS anything, 'k' AS __key")
    found = writer_of(RAW_STRING, {}, "__key").render(rows)
    assert found.columns == [VALUE, "__key"]
    assert written(found) == ["ž".encode()]
    assert written(writer_of(RAW_BYTES).render(spark.sql("SELECT X'00ff' AS b"))) == [b"\x00\xff"]
    with pytest.raises(UserError, match=r"one column of type STRING, not \(a int\)"):
        writer_of(RAW_STRING).render(spark.sql("SELECT 1 AS a"))


def test_lines_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("a b\n\n{c\n")
    sql = source_table(path, "value TEXT", delay=None, more=", format = 'raw_string'")
    sql += sink_table(out, name="out", connector="single_file", more=", format = 'raw_string'")
    Job(spark, tmp_path, f"{sql} INSERT INTO out SELECT upper(value) AS u FROM events").run()
    assert out.read_text() == "A B\n{C\n"


@pytest.mark.parametrize("value", ["'a\\nb'", "CAST(NULL AS STRING)"])
def test_what_is_no_line_is_not_written_as_one(spark: SparkSession, value: str) -> None:
    rendered = writer_of(RAW_STRING).render(spark.sql(f"SELECT {value} AS text"))
    with pytest.raises(PySparkException, match="is null or contains a newline"):
        as_lines(rendered, RAW_STRING).collect()


@pytest.mark.parametrize("columns", ["value INT", "value TEXT, more TEXT"])
def test_other_columns_are_refused(columns: str) -> None:
    for role in ("source", "sink"):
        sql = (
            f"CREATE TABLE t ({columns}) WITH (connector = 'single_file', path = 'x',"
            f" type = '{role}', format = 'raw_string');"
        )
        with pytest.raises(SqlError, match="requires one column, of type STRING"):
            compile_pipeline(sql + "SELECT 1", CONNECTORS)
