"""GROUP BY a window: the aggregate, and the query that computes the select list from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.udf import FunctionKind

Compile = Callable[..., Graph]
Text = Callable[[str], Graph]

HOUR = 3_600_000_000
USER_FUNCTIONS: Mapping[str, FunctionKind] = {"Spread": FunctionKind.AGGREGATE}

SAMPLE = """
CREATE TABLE rides (
  at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT, place TEXT,
  WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');
CREATE TABLE hourly (hour TIMESTAMP, kind TEXT, rides BIGINT, avg_driver DOUBLE)
WITH (connector = 'filesystem', path = 'out/hourly', format = 'parquet', type = 'sink');
INSERT INTO hourly
SELECT window.start, kind, rides, avg_driver FROM (
  SELECT tumble(INTERVAL '1 hour') AS window, kind, count(*) AS rides, avg(driver) AS avg_driver
  FROM rides GROUP BY window, kind);
"""


def window(graph: Graph) -> WindowAggregateSpec:
    (found,) = graph.window_aggregates()
    return found


def shown(query: QuerySpec) -> list[tuple[str, str]]:
    """What a query gives, less what it only carries along."""
    return [(each.name, each.sql) for each in query.select if each.name != EVENT_TIME]


def above(graph: Graph) -> QuerySpec:
    """The query that reads the window aggregate."""
    (found,) = [
        each
        for each in graph.operators
        if isinstance(each, QuerySpec) and each.input == window(graph).id
    ]
    return found


def selected(graph: Graph) -> list[tuple[str, str]]:
    return shown(above(graph))


def test_the_sample_compiles(compiled_text: Text) -> None:
    graph = compiled_text(SAMPLE)
    assert [each.kind for each in graph.operators] == [
        "source",
        "window_aggregate",
        "query",
        "query",
        "query",
        "sink",
    ]
    assert graph.sources()[0].watermark is not None
    aggregate = window(graph)
    assert aggregate.width_micros == HOUR
    assert [(each.name, each.sql) for each in aggregate.keys] == [("kind", "`kind`")]
    assert [(each.name, each.function, each.arguments) for each in aggregate.aggregates] == [
        ("count_1", "count", ()),
        ("avg_2", "avg", ("`driver`",)),
    ]
    assert selected(graph) == [
        ("window", "`window`"),
        ("kind", "`kind`"),
        ("rides", "`count_1`"),
        ("avg_driver", "`avg_2`"),
    ]
    last = graph.operator(graph.sinks()[0].input)
    assert isinstance(last, QuerySpec)
    assert shown(last) == [
        ("hour", "CAST(`start` AS TIMESTAMP)"),
        ("kind", "CAST(`kind` AS STRING)"),
        ("rides", "CAST(`rides` AS BIGINT)"),
        ("avg_driver", "CAST(`avg_driver` AS DOUBLE)"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT tumble(INTERVAL '1 hour') AS w, kind, count(*) AS n FROM rides GROUP BY w, kind",
        "SELECT tumble(INTERVAL '1 hour') AS w, kind, count(*) AS n FROM rides GROUP BY 1, 2",
        "SELECT tumble(INTERVAL '60 minutes') AS w, kind, count(*) AS n FROM rides GROUP BY w, rides.KIND",
        "SELECT tumble(INTERVAL 1 HOUR) w, kind, count(*) n FROM rides GROUP BY 2, TUMBLE(INTERVAL 1 HOUR)",
        "SELECT window AS w, kind, count(*) AS n FROM rides GROUP BY tumble(INTERVAL '1 hour'), kind",
    ],
)
def test_the_window_is_named_by_alias_position_or_expression(compiled: Compile, text: str) -> None:
    graph = compiled(text)
    assert window(graph).width_micros == HOUR
    assert [each.sql for each in window(graph).keys] == ["`kind`"]
    assert selected(graph) == [("w", "`window`"), ("kind", "`kind`"), ("n", "`count_1`")]


@pytest.mark.parametrize(
    ("interval", "micros"),
    [
        ("INTERVAL '10 seconds'", 10_000_000),
        ("INTERVAL '1' DAY", 24 * HOUR),
        ("INTERVAL 250 MILLISECONDS", 250_000),
        ("INTERVAL '1 hour 30 minutes'", 5_400_000_000),
        ("INTERVAL '1.5 hours'", 5_400_000_000),
        ("INTERVAL '1' HOUR '30' MINUTE", 5_400_000_000),
        ("INTERVAL '1 week'", 7 * 24 * HOUR),
    ],
)
def test_the_width_of_a_window_is_counted_in_microseconds(
    compiled: Compile, interval: str, micros: int
) -> None:
    graph = compiled(f"SELECT count(*) FROM rides GROUP BY tumble({interval})")
    assert window(graph).width_micros == micros


@pytest.mark.parametrize(
    ("item", "name", "sql"),
    [
        ("window.start", "start", "`window`.`start`"),
        ("window.END AS e", "e", "`window`.`end`"),
        ("tumble(INTERVAL '1 hour').start AS s", "s", "`window`.`start`"),
        ("tumble(INTERVAL '1 hour')", "window", "`window`"),
        ("upper(kind) AS k", "k", "`key_1`"),
        ("concat(upper(kind), '!') AS k", "k", "concat(`key_1`, '!')"),
        ("count(*)", "count", "`count_1`"),
        ("sum(driver) / count(*) AS mean", "mean", "`sum_1` / `count_2`"),
        ("max(driver) - max(driver) AS zero", "zero", "`max_1` - `max_1`"),
        ("coalesce(min(driver), 0) AS least", "least", "coalesce(`min_1`, 0)"),
        ("spread(driver)", "Spread", "`Spread_1`"),
        ("car.seats", "seats", "`car`.`seats`"),
        ("1 AS one", "one", "1"),
    ],
)
def test_select_items_are_computed_from_the_aggregate(
    compiled: Compile, item: str, name: str, sql: str
) -> None:
    text = f"SELECT {item} FROM rides GROUP BY tumble(INTERVAL '1 hour'), upper(kind), car"
    assert selected(compiled(text, USER_FUNCTIONS)) == [(name, sql)]


@pytest.mark.parametrize(
    ("call", "function", "arguments", "condition"),
    [
        ("count(*)", "count", (), None),
        ("COUNT(driver)", "count", ("`driver`",), None),
        ("sum(driver * 2)", "sum", ("`driver` * 2",), None),
        ("min(rides.at)", "min", ("`at`",), None),
        ("count(*) FILTER (WHERE kind = 'x')", "count", (), "`kind` = 'x'"),
        (
            "SPREAD(driver) FILTER (WHERE driver > 0)",
            "resurgence_udf_Spread",
            ("`driver`",),
            "`driver` > 0",
        ),
    ],
)
def test_aggregate_calls_keep_arguments_and_filter(
    compiled: Compile, call: str, function: str, arguments: tuple[str, ...], condition: str | None
) -> None:
    graph = compiled(
        f"SELECT {call} AS x FROM rides GROUP BY tumble(INTERVAL '1 hour')", USER_FUNCTIONS
    )
    (found,) = window(graph).aggregates
    assert (found.function, found.arguments, found.condition) == (function, arguments, condition)
    assert found.position is not None
    assert found.position.column == 8


@pytest.mark.parametrize(
    ("condition", "sql"),
    [
        ("count(*) > 3", "`count_1` > 3"),
        ("n > 3", "(`count_1`) > 3"),
        ("kind = 'x'", "`kind` = 'x'"),
        ("max(driver) > 3 AND window.start IS NULL", "`max_2` > 3 AND `window`.`start` IS NULL"),
    ],
)
def test_having_filters_the_rows_of_the_aggregate(
    compiled: Compile, condition: str, sql: str
) -> None:
    graph = compiled(
        f"SELECT kind, count(*) AS n FROM rides GROUP BY tumble(INTERVAL '1 hour'), kind HAVING {condition}"
    )
    where = above(graph).where
    assert where is not None
    assert where.sql == sql


def test_an_alias_in_having_hides_a_column_that_is_not_grouped(compiled: Compile) -> None:
    graph = compiled(
        "SELECT max(driver) AS driver FROM rides GROUP BY tumble(INTERVAL '1 hour') HAVING driver > 1"
    )
    where = above(graph).where
    assert where is not None
    assert where.sql == "(`max_1`) > 1"


def test_where_is_applied_before_the_aggregate_and_carries_event_time(compiled: Compile) -> None:
    graph = compiled(
        "SELECT count(*) FROM rides WHERE kind = 'x' GROUP BY tumble(INTERVAL '1 hour')"
    )
    query = graph.operator(window(graph).input)
    assert isinstance(query, QuerySpec)
    assert query.where is not None
    assert query.where.sql == "`kind` = 'x'"
    assert query.select[-1].name == "__event_time"


def test_event_time_reaches_the_aggregate_through_views_and_subqueries(compiled: Compile) -> None:
    graph = compiled(
        "CREATE VIEW v AS SELECT driver AS d FROM rides;"
        "SELECT sum(n) FROM (SELECT d + 1 AS n FROM v) GROUP BY tumble(INTERVAL '1 hour')"
    )
    for each in graph.upstream(window(graph).id):
        if isinstance(each, QuerySpec):
            assert each.select[-1].name == "__event_time"


def test_generated_names_never_collide_with_those_of_keys(compiled: Compile) -> None:
    graph = compiled(
        "SELECT tumble(INTERVAL 1 DAY) AS w, count(*) "
        "FROM (SELECT kind AS count_1, place AS window FROM rides) GROUP BY w, count_1, window"
    )
    keys = [each.name for each in window(graph).keys]
    names = ["window", *keys, *(each.name for each in window(graph).aggregates)]
    assert len({each.lower() for each in names}) == len(names)


def test_the_alias_of_the_window_takes_precedence_over_a_column(compiled: Compile) -> None:
    graph = compiled(
        "SELECT tumble(INTERVAL '1 hour') AS kind, count(*) AS n FROM rides GROUP BY kind"
    )
    assert window(graph).keys == ()
    assert selected(graph) == [("kind", "`window`"), ("n", "`count_1`")]


def test_a_column_takes_precedence_over_any_other_alias(compiled: Compile) -> None:
    graph = compiled(
        "SELECT count(*) AS place, upper(kind) AS kind FROM rides GROUP BY tumble(INTERVAL 1 DAY), kind"
    )
    assert [each.sql for each in window(graph).keys] == ["`kind`"]
    assert selected(graph) == [("place", "`count_1`"), ("kind", "upper(`kind`)")]


def test_a_window_without_aggregates_returns_the_distinct_keys(compiled: Compile) -> None:
    """It keeps a count of them all the same."""
    graph = compiled("SELECT kind FROM rides GROUP BY tumble(INTERVAL '1 hour'), kind")
    assert [each.function for each in window(graph).aggregates] == ["count"]
    (output,) = [graph.operator(each.input) for each in graph.sinks()]
    assert isinstance(output, QuerySpec)
    assert [each.name for each in output.select] == ["kind"]


def test_the_result_of_an_aggregate_can_be_filtered_and_projected(compiled: Compile) -> None:
    graph = compiled(
        "SELECT n * 2 AS m FROM (SELECT count(*) AS n FROM rides GROUP BY tumble(INTERVAL 1 DAY)) WHERE n > 1"
    )
    without_event_time = graph.operator(graph.sinks()[0].input)
    assert isinstance(without_event_time, QuerySpec)
    last = graph.operator(without_event_time.input)
    assert isinstance(last, QuerySpec)
    assert shown(last) == [("m", "`n` * 2")]
