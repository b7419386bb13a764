"""SELECT and INSERT without aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from resurgence.errors import SqlError
from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.udf import FunctionKind

Compile = Callable[..., Graph]
Text = Callable[[str], Graph]

USER_FUNCTIONS: Mapping[str, FunctionKind] = {"plusOne": FunctionKind.SCALAR}
CARRIED = (EVENT_TIME, f"`{EVENT_TIME}`")


def queries(graph: Graph) -> list[QuerySpec]:
    return [each for each in graph.operators if isinstance(each, QuerySpec)]


def selected(query: QuerySpec) -> list[tuple[str, str]]:
    return [(each.name, each.sql) for each in query.select]


@pytest.mark.parametrize(
    ("item", "name", "sql"),
    [
        ("driver", "driver", "`driver`"),
        ("DRIVER", "driver", "`driver`"),
        ("rides.driver AS d", "d", "`driver`"),
        ("car.seats", "seats", "`car`.`seats`"),
        ("rides.car.SEATS", "seats", "`car`.`seats`"),
        ("upper(kind)", "upper", "upper(`kind`)"),
        ("UPPER(kind) AS u", "u", "upper(`kind`)"),
        ("PLUSONE(driver)", "plusOne", "resurgence_udf_plusOne(`driver`)"),
        ("driver + 1", "column_1", "`driver` + 1"),
        ("CAST(driver AS TEXT)", "column_1", "CAST(`driver` AS STRING)"),
        (
            "CASE WHEN kind = 'a' THEN 1 ELSE 0 END AS flag",
            "flag",
            "CASE WHEN `kind` = 'a' THEN 1 ELSE 0 END",
        ),
        ("tags[0] AS tag", "tag", "`tags`[0]"),
        ("date_trunc('hour', at) AS hour", "hour", "date_trunc('hour', `at`)"),
        ("at - INTERVAL '1 hour' AS before", "before", "`at` - INTERVAL '1' HOUR"),
        ('driver AS "two words"', "two words", "`driver`"),
    ],
)
def test_select_items_are_bound_and_named(
    compiled: Compile, item: str, name: str, sql: str
) -> None:
    query = queries(compiled(f"SELECT {item} FROM rides", USER_FUNCTIONS))[0]
    assert selected(query) == [(name, sql), CARRIED]


@pytest.mark.parametrize(
    ("reference", "sql"), [("car.seats", "`car`.`seats`"), ("car.kind", "`kind`")]
)
def test_a_table_called_like_a_column_hides_no_field(
    compiled: Compile, reference: str, sql: str
) -> None:
    query = queries(compiled(f"SELECT {reference} FROM rides AS car"))[0]
    assert query.select[0].sql == sql


def test_variables_of_a_lambda_are_no_columns(compiled: Compile) -> None:
    query = queries(compiled("SELECT transform(tags, x -> concat(x, kind)) AS t FROM rides"))[0]
    assert query.select[0].sql.replace("`", "") == "transform(tags, x -> concat(x, kind))"


def test_star_selects_all_columns_and_never_event_time(compiled: Compile) -> None:
    (query,) = queries(compiled("SELECT * FROM rides"))
    assert [each.name for each in query.select] == ["at", "driver", "kind", "place", "tags", "car"]


def test_qualified_star_stands_beside_other_items(compiled: Compile) -> None:
    (query,) = queries(compiled("SELECT p.*, a + 1 AS c FROM plain AS p"))
    assert selected(query) == [("a", "`a`"), ("b", "`b`"), ("c", "`a` + 1")]


def test_where_is_a_filter_over_the_input(compiled: Compile) -> None:
    query = queries(
        compiled("SELECT r.driver FROM rides r WHERE r.kind = 'x' AND r.car.seats > 2")
    )[0]
    assert query.where is not None
    assert query.where.sql == "`kind` = 'x' AND `car`.`seats` > 2"
    assert query.where.position is not None
    assert query.where.position.column == 36


def test_where_is_kept_when_all_columns_are_selected(compiled: Compile) -> None:
    query = queries(compiled("SELECT * FROM plain WHERE a > 1"))[0]
    assert query.where is not None
    assert query.where.sql == "`a` > 1"


def test_the_final_projection_drops_event_time(compiled: Compile) -> None:
    first, last = queries(compiled("SELECT driver FROM rides WHERE driver > 1"))
    assert selected(first) == [("driver", "`driver`"), CARRIED]
    assert selected(last) == [("driver", "`driver`")]


def test_a_bare_select_is_written_to_the_terminal(compiled: Compile) -> None:
    graph = compiled("SELECT a FROM plain; SELECT b FROM plain")
    assert [
        (each.id, each.table, each.connector, each.options, each.columns) for each in graph.sinks()
    ] == [
        ("sink-terminal", "terminal", "stdout", {}, None),
        ("sink-terminal-2", "terminal", "stdout", {}, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM (SELECT a + 1 AS n FROM plain)",
        "SELECT s.n FROM (SELECT a + 1 AS n FROM plain) AS s",
        "WITH s AS (SELECT a + 1 AS n FROM plain) SELECT s.n FROM s",
        "WITH p AS (SELECT a FROM plain), s AS (SELECT a + 1 AS n FROM p) SELECT n FROM s",
        "CREATE VIEW s AS SELECT a + 1 AS n FROM plain; SELECT n FROM s",
        "CREATE VIEW s AS SELECT a + 1 AS n FROM plain; SELECT * FROM (SELECT * FROM s)",
    ],
)
def test_subqueries_ctes_and_views_can_be_read(compiled: Compile, text: str) -> None:
    graph = compiled(text)
    assert [name for name, _ in selected(queries(graph)[-1])] == ["n"]
    assert [each.id for each in graph.sources()] == ["source-plain"]
    assert any(each.select[0].sql == "`a` + 1" for each in queries(graph))


def test_a_cte_hides_a_table_of_the_same_name(compiled: Compile) -> None:
    graph = compiled("WITH rides AS (SELECT a AS driver FROM plain) SELECT driver FROM rides")
    assert [each.id for each in graph.sources()] == ["source-plain"]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO out SELECT a, b FROM plain",
        "INSERT INTO OUT (x, y) SELECT a, b FROM plain",
        "INSERT INTO out (y, x) SELECT b, a FROM plain",
        "WITH p AS (SELECT * FROM plain) INSERT INTO out SELECT a, b FROM p",
        "INSERT INTO out WITH p AS (SELECT * FROM plain) SELECT a, b FROM p",
        "INSERT INTO out (SELECT a, b FROM plain)",
    ],
)
def test_insert_casts_to_the_columns_of_the_sink(compiled: Compile, text: str) -> None:
    graph = compiled(text)
    sink = graph.sinks()[0]
    last = graph.operator(sink.input)
    assert isinstance(last, QuerySpec)
    assert selected(last) == [("x", "CAST(`a` AS INT)"), ("y", "CAST(`b` AS STRING)")]
    assert [each.name for each in sink.columns or ()] == ["x", "y"]


def test_insert_with_a_column_list_leaves_the_others_null(compiled: Compile) -> None:
    query = queries(compiled("INSERT INTO out (y) SELECT b FROM plain"))[-1]
    assert selected(query) == [("x", "CAST(NULL AS INT)"), ("y", "CAST(`b` AS STRING)")]


def test_a_column_that_is_not_null_must_get_a_value(compiled_text: Text) -> None:
    text = """CREATE TABLE ticks WITH (connector = 'impulse');
CREATE TABLE strict (a INT NOT NULL, b INT) WITH (connector = 'filesystem', path = 'x');
INSERT INTO strict (b) SELECT counter FROM ticks"""
    with pytest.raises(SqlError, match="column 'a' of 'strict' is NOT NULL") as caught:
        compiled_text(text)
    assert (caught.value.line, caught.value.column) == (3, 21)


def test_one_column_may_be_selected_twice(compiled: Compile) -> None:
    query = queries(compiled("INSERT INTO out SELECT a, a FROM plain"))[-1]
    assert selected(query) == [("x", "CAST(`a` AS INT)"), ("y", "CAST(`a_2` AS STRING)")]


def test_a_sink_without_columns_takes_those_of_its_input(compiled: Compile) -> None:
    graph = compiled("INSERT INTO anything SELECT a AS n FROM plain")
    (sink,) = graph.sinks()
    query = graph.operator(sink.input)
    assert isinstance(query, QuerySpec)
    assert (sink.columns, selected(query)) == (None, [("n", "`a`")])


def test_several_inserts_into_one_sink_are_several_operators(compiled: Compile) -> None:
    graph = compiled(
        "INSERT INTO out SELECT a, b FROM plain; INSERT INTO out SELECT driver, kind FROM rides"
    )
    assert [each.id for each in graph.sinks()] == ["sink-out", "sink-out-2"]
    assert [each.table for each in graph.sinks()] == ["out", "out"]


def test_equal_queries_are_one_operator_with_two_sinks(compiled: Compile) -> None:
    graph = compiled(
        "INSERT INTO out SELECT a, b FROM plain;\nINSERT INTO out SELECT a,  b FROM plain"
    )
    first, second = graph.sinks()
    assert first.input == second.input
    assert len({each.id for each in graph.operators}) == len(graph.operators)


def test_only_what_feeds_a_sink_is_in_the_graph(compiled: Compile) -> None:
    graph = compiled(
        "CREATE VIEW unused AS SELECT driver FROM rides; INSERT INTO out SELECT a, b FROM plain"
    )
    assert [each.kind for each in graph.operators] == ["source", "query", "sink"]
    assert graph.operators[0].id == "source-plain"


def test_operators_follow_their_inputs(compiled: Compile) -> None:
    graph = compiled(
        "CREATE VIEW v AS SELECT a, b FROM plain WHERE a > 1;"
        "INSERT INTO out SELECT driver, kind FROM rides; INSERT INTO out SELECT a, b FROM v"
    )
    seen: set[str] = set()
    for each in graph.operators:
        assert set(each.input_ids) <= seen
        seen.add(each.id)
    assert isinstance(graph.operators[-1], SinkSpec)


def test_a_text_without_output_is_refused(compiled: Compile) -> None:
    with pytest.raises(SqlError, match="no output") as caught:
        compiled("CREATE VIEW v AS SELECT a FROM plain")
    assert (caught.value.line, caught.value.column) == (1, 1)
