"""CREATE TABLE: options, columns, event time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.graph.model import Column, Graph, SourceOperator, WatermarkSpec

Text = Callable[[str], Graph]
Source = Callable[[str], SourceOperator]


@pytest.fixture
def source(compiled_text: Text) -> Source:
    """The source operator of a declared table `t`."""
    return lambda declaration: compiled_text(f"{declaration}; SELECT * FROM t").sources()[0]


def file_table(columns: str) -> str:
    return (
        f"CREATE TABLE t ({columns}) WITH (connector = 'single_file', path = 'x', type = 'source')"
    )


@pytest.mark.parametrize(
    ("declared", "spark"),
    [
        ("TEXT", "STRING"),
        ("VARCHAR", "STRING"),
        ("VARCHAR(10)", "STRING"),
        ("BYTEA", "BINARY"),
        ("TIMESTAMP", "TIMESTAMP"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("DATE", "DATE"),
        ("BIGINT UNSIGNED", "DECIMAL(20,0)"),
        ("INT UNSIGNED", "BIGINT"),
        ("INT", "INT"),
        ("INTEGER", "INT"),
        ("BOOLEAN", "BOOLEAN"),
        ("FLOAT", "FLOAT"),
        ("REAL", "FLOAT"),
        ("DOUBLE", "DOUBLE"),
        ("DECIMAL", "DECIMAL(10,0)"),
        ("DECIMAL(12, 2)", "DECIMAL(12,2)"),
        ("ARRAY<TEXT>", "ARRAY<STRING>"),
        ("MAP<TEXT, INT>", "MAP<STRING, INT>"),
        ("STRUCT<id: INT, tags: ARRAY<TEXT>>", "STRUCT<`id`: INT, `tags`: ARRAY<STRING>>"),
    ],
)
def test_declared_types_become_spark_types(source: Source, declared: str, spark: str) -> None:
    assert source(file_table(f"a {declared}")).columns == (Column(name="a", type=spark),)


def test_not_null_is_kept(source: Source) -> None:
    columns = source(file_table("a INT NOT NULL, b INT NULL, c INT")).columns
    assert [each.nullable for each in columns] == [False, True, True]


def test_options_are_text_without_connector_and_type(source: Source) -> None:
    table = source(
        "CREATE TABLE t WITH (connector = 'impulse', 'some.key' = 3, interval = '5s', type = 'source')"
    )
    assert table.connector == "impulse"
    assert table.options == {"some.key": "3", "interval": "5s"}


def test_options_may_be_dotted_words_and_have_defaults(source: Source) -> None:
    table = source("CREATE TABLE t WITH (connector = 'impulse', some.key = -1)")
    assert table.options == {"some.key": "-1", "interval": "1s"}


def test_fixed_columns_are_all_taken_when_none_is_declared(source: Source) -> None:
    table = source("CREATE TABLE t WITH (connector = 'impulse')")
    assert [each.name for each in table.columns] == [
        "counter",
        "timestamp",
        "subtask",
        "subtask_index",
    ]
    assert table.watermark == WatermarkSpec(
        event_time="timestamp", sql="`timestamp` - INTERVAL '1' SECOND", delay_micros=1_000_000
    )


def test_fixed_columns_can_be_picked_and_without_the_event_time_there_is_no_watermark(
    source: Source,
) -> None:
    table = source("CREATE TABLE t (Counter BIGINT) WITH (connector = 'impulse')")
    assert [each.name for each in table.columns] == ["counter"]
    assert table.watermark is None


@pytest.mark.parametrize(
    ("clause", "sql", "delay"),
    [
        (
            "WATERMARK FOR at AS at - INTERVAL '5 seconds'",
            "`at` - INTERVAL '5' SECONDS",
            5_000_000,
        ),
        ("WATERMARK FOR at", "`at`", 0),
        ('WATERMARK FOR "AT" AS AT - INTERVAL 1 MINUTE', "`at` - INTERVAL '1' MINUTE", 60_000_000),
        ("WATERMARK FOR at AS at - INTERVAL '1 month'", "`at` - INTERVAL '1' MONTH", None),
        ("WATERMARK FOR at AS other - INTERVAL '1 hour'", "`other` - INTERVAL '1' HOUR", None),
        ("WATERMARK FOR at AS other", "`other`", None),
    ],
)
def test_watermark_is_an_expression_over_the_columns(
    source: Source, clause: str, sql: str, delay: int | None
) -> None:
    table = source(file_table(f"at TIMESTAMP, other TIMESTAMP, {clause}"))
    assert table.watermark == WatermarkSpec(event_time="at", sql=sql, delay_micros=delay)


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("CREATE TABLE t (a INT)", 1, "a table needs a connector", "connector ="),
        ("CREATE TABLE t WITH (connector = 'impuls')", 22, "no connector 'impuls'", "'impulse'"),
        (
            "CREATE TABLE t WITH (connector = 'impulse', intervall = 3)",
            45,
            "no option 'intervall'",
            "'interval'",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'filesystem')",
            1,
            "needs the option 'path'",
            "add path",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'filesystem', path = 'x', format = 'parket')",
            68,
            "'parket' is no value for option 'format'",
            "'parquet'",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'single_file', type = 'sink', bad_data = 1)",
            72,
            "as a sink has no option 'bad_data'",
            "",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'single_file', path = 'x')",
            1,
            "must say which",
            "type =",
        ),
        (
            "CREATE TABLE t WITH (connector = 'impulse', type = 'sink')",
            45,
            "cannot be a sink",
            "source",
        ),
        (
            "CREATE TABLE t WITH (connector = 'impulse', type = 'soruce')",
            45,
            "not 'soruce'",
            "'source'",
        ),
        ("CREATE TABLE t WITH (connector = 'impulse', connector = 'x')", 45, "given twice", ""),
        (
            "CREATE TABLE t WITH (connector = 'filesystem', path = 'x')",
            14,
            "needs columns",
            "declare them",
        ),
        (
            "CREATE TABLE t (a INTT) WITH (connector = 'filesystem', path = 'x')",
            19,
            "no type 'INTT'",
            "'INT'",
        ),
        (
            "CREATE TABLE t (a) WITH (connector = 'filesystem', path = 'x')",
            17,
            "needs a type",
            "a TEXT",
        ),
        (
            "CREATE TABLE t (a INT, A INT) WITH (connector = 'filesystem', path = 'x')",
            24,
            "declared twice",
            "",
        ),
        (
            "CREATE TABLE t (count BIGINT) WITH (connector = 'impulse')",
            17,
            "no column 'count'",
            "'counter'",
        ),
        (
            "CREATE TABLE t (counter INT) WITH (connector = 'impulse')",
            17,
            "has type BIGINT, not INT",
            "BIGINT",
        ),
        (f"{file_table('a INT, WATERMARK FOR b')}", 38, "no column 'b'", "known: a"),
        (f"{file_table('a INT, WATERMARK FOR a')}", 38, "must be a TIMESTAMP", "TIMESTAMP"),
        (f"{file_table('a TIMESTAMP, WATERMARK FOR a AS b')}", 49, "no column 'b'", "known: a"),
        (f"{file_table('a INT AS (1 + 1)')}", 26, "computed columns are not supported yet", "view"),
        (
            "CREATE TABLE t (a INT) USING parquet",
            1,
            "this clause of CREATE TABLE is not supported",
            "",
        ),
        (
            "CREATE TABLE IF NOT EXISTS t (a INT)",
            1,
            "IF NOT EXISTS is not supported",
            "leave it out",
        ),
        ("CREATE TABLE t AS SELECT 1", 1, "AS is not supported in CREATE", "leave it out"),
        ("CREATE TABLE a.t (a INT)", 14, "no schema or catalog", "write t"),
    ],
)
def test_wrong_declarations_are_refused_at_their_place(
    compiled_text: Text, text: str, column: int, message: str, hint: str
) -> None:
    with pytest.raises(SqlError) as caught:
        compiled_text(f"-- a comment\n{text}")
    error = caught.value
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (2, column)


def test_names_that_give_the_same_operator_id_are_refused(compiled_text: Text) -> None:
    text = "CREATE TABLE \"a-b\" WITH (connector = 'impulse');\nCREATE TABLE a_b WITH (connector = 'impulse')"
    with pytest.raises(SqlError, match="'a_b' is taken") as caught:
        compiled_text(text)
    assert (caught.value.line, caught.value.column) == (2, 14)
