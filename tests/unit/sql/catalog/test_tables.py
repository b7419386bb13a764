"""CREATE TABLE: options, columns, event time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlglot import exp

from resurgence.connectors.formats.json.values import declared_units
from resurgence.connectors.registry import CONNECTORS as REAL_CONNECTORS
from resurgence.connectors.registry import make_source
from resurgence.connectors.single_file import SingleFileSourceOptions
from resurgence.errors import SqlError, UserError
from resurgence.graph.model import Graph
from resurgence.graph.specs.source import SourceSpec, WatermarkSpec
from resurgence.graph.values import Column
from resurgence.sql import compile_pipeline
from resurgence.sql.catalog.tables import Declarations
from resurgence.sql.functions.registry import FunctionCatalog
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.syntax.parse import parse

Text = Callable[[str], Graph]
Source = Callable[[str], SourceSpec]


@pytest.fixture
def source(compiled_text: Text) -> Source:
    """The source operator of a declared table `t`."""
    return lambda declaration: compiled_text(f"{declaration}; SELECT * FROM t").sources()[0]


def file_table(columns: str) -> str:
    return (
        f"CREATE TABLE t ({columns}) WITH (connector = 'single_file', path = 'x', type = 'source')"
    )


def changes_table(columns: str) -> str:
    return f"{file_table(columns)[:-1]}, format = 'debezium_json')"


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
        ("SMALLINT UNSIGNED", "INT"),
        ("TINYINT UNSIGNED", "SMALLINT"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("FLOAT8", "DOUBLE"),
        ("INT8", "BIGINT"),
        ("INT4", "INT"),
        ("BOOL", "BOOLEAN"),
        ("NUMERIC(5, 1)", "DECIMAL(5,1)"),
        ("CHARACTER VARYING(3)", "STRING"),
        ("JSON", "STRING"),
        ("JSONB", "STRING"),
        ("BLOB", "BINARY"),
        ("TIMESTAMP(3)", "TIMESTAMP"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMPTZ", "TIMESTAMP"),
        ("DATETIME", "TIMESTAMP"),
        ("INT[]", "ARRAY<INT>"),
        ("TEXT[][]", "ARRAY<ARRAY<STRING>>"),
        ("LIST<BIGINT UNSIGNED>", "ARRAY<DECIMAL(20,0)>"),
        (
            "STRUCT<start TIMESTAMP, end TIMESTAMP(6), in STRUCT<rows INT[]>>",
            "STRUCT<`start`: TIMESTAMP, `end`: TIMESTAMP, `in`: STRUCT<`rows`: ARRAY<INT>>>",
        ),
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


def test_an_option_may_be_a_list_of_names(source: Source) -> None:
    table = source("CREATE TABLE t WITH (connector = 'impulse', some.key = [a, 'b c'])")
    assert table.options["some.key"] == "a, b c"


def test_options_may_be_names_and_intervals(source: Source) -> None:
    table = source(
        "CREATE TABLE t WITH (connector = impulse, interval = INTERVAL '5' SECOND, some.key = yes)"
    )
    assert table.options == {"some.key": "yes", "interval": "5 second"}


@pytest.mark.parametrize(
    "value", ["INTERVAL '1' DAY TO SECOND", '"yes"', "`yes`", "a.b", "[a, b.c]", "[]"]
)
def test_other_values_of_options_are_refused(source: Source, value: str) -> None:
    with pytest.raises(SqlError, match=r"'some\.key' needs a text or a number"):
        source(f"CREATE TABLE t WITH (connector = 'impulse', some.key = {value})")


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


def test_a_text_is_an_interval_where_one_is_meant(source: Source) -> None:
    clause = "WATERMARK FOR at AS (at - '5 seconds')"
    table = source(file_table(f"at TIMESTAMP, {clause}"))
    assert table.watermark == WatermarkSpec(
        event_time="at", sql="(`at` - INTERVAL '5 seconds')", delay_micros=5_000_000
    )


def timed_table(columns: str, options: str) -> str:
    return (
        f"CREATE TABLE t ({columns})"
        f" WITH (connector = 'single_file', path = 'x', type = 'source', {options})"
    )


@pytest.mark.parametrize(
    ("options", "watermark"),
    [
        (
            "event_time_field = 'At'",
            WatermarkSpec(
                event_time="at", sql="`at` - INTERVAL '1' SECOND", delay_micros=1_000_000
            ),
        ),
        (
            "event_time_field = 'at', watermark_field = 'mark'",
            WatermarkSpec(event_time="at", sql="`mark`"),
        ),
        (
            "event_time_field = 'at', watermark_field = 'at'",
            WatermarkSpec(event_time="at", sql="`at`", delay_micros=0),
        ),
    ],
)
def test_event_time_and_watermark_may_be_named_by_options(
    source: Source, options: str, watermark: WatermarkSpec
) -> None:
    table = source(timed_table("at TIMESTAMP NOT NULL, mark TIMESTAMP", options))
    assert table.watermark == watermark
    assert table.options == {"path": "x", "format": "json"}


def test_the_option_may_repeat_what_the_clause_says(source: Source) -> None:
    table = source(timed_table("at TIMESTAMP, WATERMARK FOR at", "event_time_field = 'at'"))
    assert table.watermark == WatermarkSpec(event_time="at", sql="`at`", delay_micros=0)


def test_an_undeclared_timestamp_is_no_event_time(source: Source) -> None:
    assert source(file_table("at TIMESTAMP NOT NULL")).watermark is None


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("a INT", "event_time_field = 'b'", "there is no column 'b'"),
        ("a INT", "event_time_field = 'a'", "event time must be a TIMESTAMP"),
        ("a TIMESTAMP", "watermark_field = 'a'", "a watermark requires event time"),
        (
            "a TIMESTAMP, WATERMARK FOR a",
            "watermark_field = 'a'",
            "both the WATERMARK clause and watermark_field define the watermark",
        ),
        (
            "a TIMESTAMP, b TIMESTAMP, WATERMARK FOR a",
            "event_time_field = 'b'",
            "the WATERMARK clause names 'a' as event time, but event_time_field names 'b'",
        ),
        ("a INT", "json.timestamp_format = 'unix_millis'", "timestamps in JSON are ISO 8601"),
        ("a INT", "'json.include_schema' = 'true'", "records contain no schema"),
        ("a INT", "'framing.method' = 'length'", "each record is a line"),
        ("a INT", "event_time_feild = 'a'", "no option 'event_time_feild'"),
        ("a INT", "max_future = '1 hour'", "requires event time"),
    ],
)
def test_wrong_options_are_refused_at_their_place(
    compiled_text: Text, columns: str, options: str, message: str
) -> None:
    text = timed_table(columns, options)
    with pytest.raises(SqlError) as caught:
        compiled_text(text)
    assert message in caught.value.message
    assert caught.value.hint
    assert (caught.value.line, caught.value.column) == (1, text.index(options) + 1)


def test_options_with_the_only_supported_value_are_accepted(source: Source) -> None:
    table = source(
        timed_table(
            "a INT",
            "'json.timestamp_format' = 'RFC3339', 'framing.method' = 'newline',"
            " 'json.include_schema' = false, 'json.confluent_schema_registry' = 'false'",
        )
    )
    assert table.options == {"path": "x", "format": "json"}


def test_unstructured_json_is_one_column_of_text() -> None:
    def unstructured(columns: str) -> str:
        return timed_table(columns, "'json.unstructured' = 'true'") + "; SELECT * FROM t"

    graph = compile_pipeline(
        unstructured("value JSON, b INT AS ((value ->> 'b')::int)"), REAL_CONNECTORS
    )
    assert [each.name for each in graph.sources()[0].read_columns] == ["value"]
    for columns in ("text TEXT", "value INT", "value TEXT, b INT"):
        with pytest.raises(SqlError, match="requires one column, value TEXT"):
            compile_pipeline(unstructured(columns), REAL_CONNECTORS)


def test_a_computed_column_is_kept_with_its_expression_and_may_be_event_time(
    source: Source,
) -> None:
    table = source(
        file_table(
            "millis BIGINT, at TIMESTAMP NOT NULL GENERATED ALWAYS AS (timestamp_millis(millis))"
            " STORED, twice BIGINT AS (millis * 2), WATERMARK FOR at"
        )
    )
    assert [(each.name, each.nullable) for each in table.columns] == [
        ("millis", True),
        ("at", False),
        ("twice", True),
    ]
    computed = [each.generated.sql for each in table.columns if each.generated]
    assert computed == ["timestamp_millis(`millis`)", "`millis` * 2"]
    assert [each.name for each in table.read_columns] == ["millis"]
    assert table.watermark == WatermarkSpec(event_time="at", sql="`at`", delay_micros=0)


def test_state_belongs_to_the_computation_of_what_it_was_made_of(compiled_text: Text) -> None:
    def window(computed: str, other: str = "1") -> str:
        columns = (
            f"n BIGINT, at TIMESTAMP AS ({computed}), other INT AS ({other}), WATERMARK FOR at"
        )
        query = "SELECT sum(n) AS n FROM t GROUP BY tumble('1 hour')"
        return compiled_text(f"{file_table(columns)}; {query}").window_aggregates()[0].id

    assert window("timestamp_millis(n)") != window("timestamp_micros(n)")
    assert window("timestamp_millis(n)") == window("timestamp_millis(n)", other="2")


def test_a_generator_may_have_computed_columns(source: Source) -> None:
    table = source(
        "CREATE TABLE t (counter BIGINT, even BOOLEAN AS (counter % 2 = 0))"
        " WITH (connector = 'impulse')"
    )
    assert [each.name for each in table.read_columns] == ["counter"]


def test_a_primary_key_is_of_a_column_or_of_the_table() -> None:
    for columns, key in (
        ("a INT PRIMARY KEY, b INT", ("a",)),
        ("a INT NOT NULL PRIMARY KEY, b INT", ("a",)),
        ("A INT, b INT, PRIMARY KEY (b, a)", ("b", "A")),
        ("a INT, CONSTRAINT k PRIMARY KEY (a)", ("a",)),
        ("a INT", ()),
    ):
        script = parse(file_table(columns))
        expressions = Expressions(script, FunctionCatalog({}))
        statement = script.statements[0]
        assert isinstance(statement, exp.Create)
        assert Declarations(expressions, REAL_CONNECTORS).table(statement).primary_key == key


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("CREATE TABLE t", 1, "a table needs a connector", "connector ="),
        ("CREATE TABLE t (a INT PRIMARY KEY)", 17, "only a name and a type", "connector ="),
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
            "Add path",
        ),
        (
            "CREATE TABLE t (a INT) WITH (connector = 'filesystem', path = 'x', format = 'parket')",
            68,
            "'parket' is not a valid value for option 'format'",
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
            "the table has no type",
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
        ("CREATE TABLE t WITH (connector = 'impulse', connector = 'x')", 45, "specified twice", ""),
        (
            "CREATE TABLE t WITH (connector = 'filesystem', path = 'x')",
            14,
            "needs columns",
            "Declare them",
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
        (f"{file_table('a INT, WATERMARK FOR b')}", 38, "no column 'b'", "Use one of: a."),
        (f"{file_table('a INT, WATERMARK FOR a')}", 38, "must be a TIMESTAMP", "TIMESTAMP"),
        (
            f"{file_table('a TIMESTAMP, WATERMARK FOR a AS b')}",
            49,
            "no column 'b'",
            "Use one of: a.",
        ),
        (f"{file_table('a TIME')}", 19, "there is no type", "TIMESTAMP"),
        (
            file_table("a INT, b TEXT METADATA FROM 'offset'"),
            31,
            "connector 'single_file' as a source has no metadata 'offset'",
            "Use one of: line, path.",
        ),
        (
            file_table("a INT, b INT METADATA FROM 'line'"),
            24,
            "metadata 'line' has type BIGINT, not INT",
            "Declare it as BIGINT",
        ),
        (
            file_table("a INT, b BIGINT METADATA FROM 'line' GENERATED ALWAYS AS (a)"),
            24,
            "column 'b' cannot be both metadata and computed",
            "Remove one of them",
        ),
        (
            "CREATE TABLE t (a INT METADATA FROM 'path') WITH (connector = 'filesystem', path = 'x')",
            23,
            "connector 'filesystem' as a sink has no metadata 'path'",
            "Remove the column",
        ),
        (
            "CREATE TABLE t (a INT METADATA FROM 'path') WITH (connector = 'impulse')",
            23,
            "connector 'impulse' as a source has no metadata 'path'",
            "Remove the column",
        ),
        (file_table("a INT PRIMARY KEY, b INT PRIMARY KEY"), 36, "only one PRIMARY KEY", "(a, b)"),
        (file_table("a INT, PRIMARY KEY (a, c)"), 40, "there is no column 'c'", "Use one of: a."),
        (
            changes_table("a INT, b INT AS (a + 1), PRIMARY KEY (b)"),
            121,
            "column 'b' is computed and cannot be in the PRIMARY KEY",
            "Name columns that the records have",
        ),
        (
            changes_table("a MAP<STRING, STRING> PRIMARY KEY"),
            114,
            "column 'a' of type MAP<STRING, STRING> cannot be in the PRIMARY KEY",
            "Name a column of a scalar type",
        ),
        (
            file_table("a INT GENERATED ALWAYS AS (c + 1) STORED"),
            44,
            "there is no column 'c'",
            "",
        ),
        (
            file_table("a INT, b INT AS (a + 1), c INT AS (b + 1)"),
            52,
            "computed column 'c' refers to computed column 'b'",
            "Write its expression here",
        ),
        (
            file_table("a INT, b INT GENERATED ALWAYS AS (sum(a)) STORED"),
            51,
            "the aggregate function 'sum' is not allowed here",
            "",
        ),
        (
            "CREATE TABLE t (a INT AS (1)) WITH (connector = 'filesystem', path = 'x')",
            26,
            "a sink cannot compute columns",
            "in the SELECT",
        ),
        (
            "CREATE TABLE t (a INT) USING parquet",
            1,
            "USING PARQUET is not supported in CREATE TABLE",
            "",
        ),
        (
            "CREATE TABLE IF NOT EXISTS t (a INT)",
            1,
            "IF NOT EXISTS is not supported",
            "Remove it",
        ),
        ("CREATE TABLE a.t (a INT)", 14, "a qualified table name is not supported", "name alone"),
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
    with pytest.raises(SqlError, match="'a_b' is already in use") as caught:
        compiled_text(text)
    assert (caught.value.line, caught.value.column) == (2, 14)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            "a TIMESTAMP",
            "timestamp_unit = 'ms'",
            "'ms' is not a valid value for option 'timestamp_unit'",
        ),
        ("a TIMESTAMP", "'timestamp_unit.a' = 'ms'", "'ms' is not a valid value for option"),
        ("a TIMESTAMP", "'timestamp_unit.b' = 'millis'", "there is no column 'b'"),
        ("a INT", "'timestamp_unit.a' = 'millis'", "there is no column 'a' that is read"),
        ("a TIMESTAMP, WATERMARK FOR a", "max_future = 'soon'", "interval"),
    ],
)
def test_invalid_units_and_bounds_are_refused(columns: str, options: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        compile_pipeline(f"{timed_table(columns, options)}; SELECT * FROM t", REAL_CONNECTORS)


def test_max_future_is_for_append_only_sources_with_bad_records() -> None:
    for options in (
        "connector = 'impulse'",
        "connector = 'single_file', path = 'x', format = 'debezium_json'",
    ):
        text = f"CREATE TABLE t (timestamp TIMESTAMP NOT NULL, WATERMARK FOR timestamp) WITH ({options}, type = 'source', max_future = '1 hour'); SELECT * FROM t"
        with pytest.raises(SqlError, match="max_future"):
            compile_pipeline(text, REAL_CONNECTORS)


def test_timestamps_as_milliseconds_are_for_json() -> None:
    sink = "CREATE TABLE t (a TIMESTAMP) WITH (connector = 'filesystem', path = 'x', type = 'sink', 'json.timestamp_format' = 'UnixMillis'{})"
    (source,) = compile_pipeline(
        timed_table("a TIMESTAMP", "'json.timestamp_format' = 'unix_millis'") + "; SELECT * FROM t",
        REAL_CONNECTORS,
    ).sources()
    assert source.options["timestamp_unit"] == "millis"
    query = "CREATE TABLE s (a TIMESTAMP) WITH (connector = 'single_file', path = 'y', type = 'source'); INSERT INTO t SELECT a FROM s"
    with pytest.raises(SqlError, match="requires format = 'json'"):
        compile_pipeline(f"{sink.format('')}; {query}", REAL_CONNECTORS)
    graph = compile_pipeline(f"{sink.format(', format = json')}; {query}", REAL_CONNECTORS)
    assert graph.sinks()[0].options["json.timestamp_format"] == "unix_millis"


def test_a_unit_is_that_of_the_table_or_of_a_column() -> None:
    options = "timestamp_unit = 'millis', 'timestamp_unit.B' = 'nanos', max_future = '1 hour'"
    text = timed_table("a TIMESTAMP, B TIMESTAMP, WATERMARK FOR a", options) + "; SELECT * FROM t"
    (table,) = compile_pipeline(text, REAL_CONNECTORS).sources()
    read = {key: value for key, value in table.options.items() if key != "format"}
    units = declared_units(SingleFileSourceOptions.read(read), table.columns)
    assert units == {"a": "millis", "B": "nanos"}
    assert table.max_future_micros == 3_600_000_000


def test_a_value_that_cannot_be_parsed_is_refused_at_its_place() -> None:
    text = (
        "CREATE TABLE t WITH (connector = 'impulse',\n  event_rate = '{}'); SELECT counter FROM t"
    )
    with pytest.raises(SqlError) as caught:
        compile_pipeline(text.format("fast"), REAL_CONNECTORS)
    assert caught.value.message == "'fast' is not a valid value for option 'event_rate'"
    assert caught.value.hint == "Use a positive number."
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_the_value_of_a_reference_is_validated_when_the_connector_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RESURGENCE_RATE", "fast")
    text = "CREATE TABLE t WITH (connector = 'impulse', event_rate = '${env:RESURGENCE_RATE}'); SELECT counter FROM t"
    (table,) = compile_pipeline(text, REAL_CONNECTORS).sources()
    with pytest.raises(UserError) as caught:
        make_source(table)
    assert (
        caught.value.message
        == "table 't': '${env:RESURGENCE_RATE}' is not a valid value for option 'event_rate'"
    )


def test_an_option_of_another_format_is_refused() -> None:
    text = timed_table("value TEXT", "format = 'debezium_json', 'json.unstructured' = 'true'")
    with pytest.raises(SqlError, match=r"'json\.unstructured' requires format = 'json'") as caught:
        compile_pipeline(text + "; SELECT * FROM t", REAL_CONNECTORS)
    assert caught.value.hint == "Remove it, or set the format."
    text = timed_table("value TEXT", "'json.unstructered' = 'true'") + "; SELECT * FROM t"
    with pytest.raises(SqlError, match=r"no option 'json\.unstructered'") as caught:
        compile_pipeline(text, REAL_CONNECTORS)
    assert "json.unstructured" in caught.value.hint
