"""CSV, in and out."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.csv_text import CSV
from resurgence.connectors.staging import as_lines
from resurgence.errors import UserError
from resurgence.graph.values import Column
from tests.engine.connectors.messages import (
    bad_offsets,
    read,
    reader_of,
    rows_of,
    writer_of,
    written,
)
from tests.engine.harness import Job, sink_table, source_table

COLUMNS = (
    Column(name="id", type="BIGINT", nullable=False),
    Column(name="name", type="STRING"),
    Column(name="at", type="TIMESTAMP"),
)

TYPED = """SELECT * FROM VALUES
  (1L, 'a,b"c', TIMESTAMP '2024-01-01 00:00:00.123456', DATE '2024-02-29', 1.50BD, X'00ff',
   true, 0.1D, TIMESTAMP_NTZ '2024-01-01 00:00:00'),
  (2L, '', NULL, NULL, NULL, NULL, NULL, double('NaN'), NULL),
  (-3L, NULL, TIMESTAMP '0002-01-01 00:00:00', DATE '9999-12-31', -1.00BD, X'', false,
   double('-Infinity'), NULL),
  (4L, ' spaces ', NULL, NULL, NULL, NULL, NULL, double('Infinity'), NULL),
  (5L, 'line\\nbreak', NULL, NULL, NULL, NULL, NULL, 1e300D, NULL),
  (6L, 'back\\\\slash\\\\"', NULL, NULL, NULL, NULL, NULL, NULL, NULL)
AS t(id, name, at, day, price, data, flag, ratio, local)"""


def test_rows_are_read_as_they_were_written(spark: SparkSession) -> None:
    rows = spark.sql(TYPED)
    columns = [
        Column(name=each.name, type=each.dataType.simpleString().upper()) for each in rows.schema
    ]
    for options in ({}, {"csv.delimiter": ";"}):
        texts = written(writer_of(CSV, options).render(rows))
        found = read(spark, CSV, reader_of(CSV, columns, options), texts)
        assert bad_offsets(found) == []
        assert list(map(str, rows_of(found))) == [str(tuple(each)) for each in rows.collect()]


def test_a_record_is_written_as_in_rfc_4180(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 1 AS id, 'a,\"b\"' AS name, TIMESTAMP '2024-01-01 00:00:00.5' AS at,"
        " CAST(NULL AS STRING) AS none, '' AS empty, X'00ff' AS data, 'k' AS __key"
    )
    found = writer_of(CSV, {}, "__key").render(rows)
    assert found.columns == [VALUE, "__key"]
    assert written(found) == [b'1,"a,""b""",2024-01-01T00:00:00.500,,"",AP8=']


BAD = {
    b"1,a": "2 values, but the table has 3 columns",
    b"1,a,,": "4 values, but the table has 3 columns",
    b"x,a,": "'id' is not a BIGINT: x",
    b"1.5,a,": "'id' is not a BIGINT: 1.5",
    b",a,": "'id' is NOT NULL and has no value",
    b"1,a,noon": "'at' is not a TIMESTAMP: noon",
    b"1,a,12:00": "'at' is not a TIMESTAMP: 12:00",
    b'1,a,"2024-01-01': "a quote is not closed",
    b"": "0 values, but the table has 3 columns",
    b"\xff": "not UTF-8: byte ff",
    None: "no value (tombstone)",
}


def test_bad_records_are_marked_and_explained(spark: SparkSession) -> None:
    good = b"1,a,2024-01-01"
    reader = reader_of(CSV, COLUMNS)
    found = read(spark, CSV, reader, [good, *BAD, good])
    assert bad_offsets(found) == [*range(1, len(BAD) + 1)]
    assert rows_of(found) == [(1, "a", datetime(2024, 1, 1))] * 2
    # Spark parses only the values that are needed, and must find the bad records all the same.
    marked = found.where(f"{BAD_POSITION} IS NOT NULL").select("name")
    assert marked.count() == len(BAD)
    for value, reason in BAD.items():
        assert reader.explain(value).reason == reason


def test_whole_numbers_are_timestamps_in_the_unit_of_the_table(spark: SparkSession) -> None:
    reader = reader_of(CSV, COLUMNS, {"timestamp_unit": "millis"})
    found = read(spark, CSV, reader, [b"1,,1704067200123"])
    assert rows_of(found) == [(1, None, datetime(2024, 1, 1, 0, 0, 0, 123000))]


def test_a_table_with_one_column_may_have_empty_records(spark: SparkSession) -> None:
    reader = reader_of(CSV, (Column(name="name", type="STRING"),))
    assert rows_of(read(spark, CSV, reader, [b"", b'""', b"a"])) == [(None,), ("",), ("a",)]


def test_lines_of_a_file_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    path.write_text('1,"a;b",1.5,2024-01-01\n\n2,,,\n')
    sql = source_table(
        path,
        "id INT, name TEXT, price DECIMAL(4, 2), day DATE",
        delay=None,
        more=", format = 'csv'",
    )
    more = ", format = 'csv', 'csv.delimiter' = ';'"
    sql += sink_table(out, name="out", connector="single_file", more=more)
    Job(spark, tmp_path, f"{sql} INSERT INTO out SELECT id, name, price, day FROM events").run()
    assert out.read_text() == '1;"a;b";1.50;2024-01-01\n2;;;\n'


def test_a_record_with_a_newline_cannot_be_a_line(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, 'a\\nb' AS name")
    lines = as_lines(writer_of(CSV).render(rows), CSV)
    with pytest.raises(PySparkException, match="contains a newline"):
        lines.collect()


def test_nested_columns_are_refused(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="column 'xs' of type array<int> cannot be in CSV"):
        writer_of(CSV).render(spark.sql("SELECT array(1) AS xs"))
    reader = reader_of(CSV, (Column(name="xs", type="ARRAY<INT>"),))
    with pytest.raises(UserError, match="cannot be in CSV"):
        read(spark, CSV, reader, [b"1"])


def test_values_of_other_types_are_exact(spark: SparkSession) -> None:
    columns = (
        Column(name="price", type="DECIMAL(20, 4)"),
        Column(name="day", type="DATE"),
    )
    found = read(spark, CSV, reader_of(CSV, columns), [b"1234567890123456.7891,2024-02-29"])
    assert rows_of(found) == [(Decimal("1234567890123456.7891"), date(2024, 2, 29))]
