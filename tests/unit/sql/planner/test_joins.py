"""Joins of streams: how long rows must be stored, and whether the result is append-only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.graph.explain import explain_graph
from resurgence.graph.model import Graph
from resurgence.graph.specs.updating_query import UpdatingQuerySpec

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]

SECOND = 1_000_000
TABLES = """
CREATE TABLE orders (id BIGINT, at TIMESTAMP, delivered TIMESTAMP, WATERMARK FOR at)
WITH (connector = 'single_file', path = '/orders', type = 'source');
CREATE TABLE payments (id BIGINT, at TIMESTAMP, WATERMARK FOR at)
WITH (connector = 'single_file', path = '/payments', type = 'source');
"""


def join(graph: Graph) -> UpdatingQuerySpec:
    return next(each for each in graph.operators if isinstance(each, UpdatingQuerySpec))


@pytest.mark.parametrize(
    ("condition", "seconds"),
    [
        ("p.at BETWEEN o.at AND o.at + INTERVAL '30 seconds'", 30),
        ("o.at BETWEEN p.at - INTERVAL '5 seconds' AND p.at + INTERVAL '10 seconds'", 15),
        ("p.at BETWEEN o.at - INTERVAL '5 seconds' AND o.at + INTERVAL '10 seconds'", 15),
        (
            "p.at >= o.at + INTERVAL '-5 seconds' AND p.at <= o.at + INTERVAL '1' MINUTE '30' SECOND",
            95,
        ),
        ("p.at >= o.at AND p.at < o.at + INTERVAL '1 minute'", 60),
        ("o.at <= p.at AND p.at - INTERVAL '1 minute' <= o.at", 60),
        ("p.at > o.at + INTERVAL '50 seconds' AND p.at < o.at + INTERVAL '60 seconds'", 60),
        ("p.at = o.at", 0),
        ("p.at = o.at + INTERVAL '1 minute' - INTERVAL '10 seconds'", 50),
        ("p.at >= o.at", None),
        ("p.at >= o.at AND p.at >= o.at - INTERVAL '1 minute'", None),
        ("p.at BETWEEN o.delivered AND o.delivered + INTERVAL '1 minute'", None),
        ("p.at BETWEEN o.at AND o.at + INTERVAL '1 month'", None),
        ("(p.at >= o.at OR p.at < o.at + INTERVAL '1 minute')", None),
    ],
)
def test_a_condition_on_event_times_bounds_how_long_rows_are_stored(
    compiled: Compile, condition: str, seconds: int | None
) -> None:
    graph = compiled(
        f"{TABLES} SELECT o.id FROM orders o JOIN payments p ON o.id = p.id AND {condition}"
    )
    expected = None if seconds is None else seconds * SECOND
    assert join(graph).keep_micros == expected


def test_an_interval_condition_replaces_the_state_ttl(compiled: Compile) -> None:
    sql = f"{TABLES} SET updating_ttl = INTERVAL '1 hour'; SELECT o.id FROM orders o JOIN payments p ON o.id = p.id"
    assert join(compiled(sql)).ttl_micros == 3600 * SECOND
    assert join(compiled(f"{sql} AND o.at = p.at")).ttl_micros is None


def test_an_interval_join_requires_no_equality(compiled: Compile) -> None:
    graph = compiled(
        f"{TABLES} SELECT o.id FROM orders o JOIN payments p ON p.at BETWEEN o.at AND o.at + INTERVAL '1 second'"
    )
    assert [each.keys for each in join(graph).inputs] == [(), ()]


def test_inner_and_semi_joins_are_append_only_and_other_joins_are_not(
    compiled: Compile, refusal: Refusal
) -> None:
    for kind in ("JOIN", "LEFT SEMI JOIN"):
        graph = compiled(f"{TABLES} SELECT o.id FROM orders o {kind} payments p ON o.id = p.id")
        assert [each.connector for each in graph.sinks()] == ["stdout"]
    for kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT ANTI JOIN"):
        error = refusal(
            f"{TABLES} INSERT INTO anything SELECT o.id FROM orders o {kind} payments p ON o.id = p.id"
        )
        assert "requires an append-only input" in error.message


def test_joined_rows_have_the_later_event_time(compiled: Compile) -> None:
    graph = compiled(
        f"{TABLES} SELECT tumble(INTERVAL '1 hour') AS window, count(*) FROM orders o JOIN payments p"
        " ON o.id = p.id GROUP BY window"
    )
    assert "greatest(`l_time`, `r_time`) AS `__event_time`" in join(graph).sql
    assert [each.kind for each in graph.operators if each.kind != "query"] == [
        "source",
        "source",
        "updating_query",
        "window_aggregate",
        "sink",
    ]


def test_windows_of_different_width_are_not_joined_by_their_start(compiled: Compile) -> None:
    sides = " JOIN ".join(
        f"(SELECT tumble(INTERVAL '{width}') AS w, count(*) AS n FROM rides GROUP BY w) {name}"
        for width, name in (("1 minute", "a"), ("{} minute", "b"))
    )
    query = f"SELECT a.n, b.n FROM {sides} ON a.w.{{}} = b.w.{{}}"
    for width, part, kind in (
        (1, "start", "closed_query"),
        (2, "start", "updating_query"),
        (2, "end", "closed_query"),
    ):
        found = [each.kind for each in compiled(query.format(width, part, part)).operators]
        assert kind in found


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT o.id FROM orders o JOIN payments p ON o.id = p.id", [["id"], ["id"]]),
        (
            "SELECT 1 FROM orders o JOIN payments p USING (id) WHERE delivered > p.at",
            [["id", "delivered"], ["id", "at"]],
        ),
        (
            "SELECT tumble(INTERVAL '1 hour') AS w, count(*) FROM orders o JOIN payments p"
            " ON o.id = p.id GROUP BY w",
            [["id"], ["id"]],
        ),
        (
            "SELECT o.* FROM orders o JOIN payments p ON o.id = p.id",
            [["id", "at", "delivered"], ["id", "at"]],
        ),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT * FROM payments p WHERE p.id = o.id)",
            [["id"], ["id"]],
        ),
        (
            "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p JOIN orders q"
            " ON p.id = q.id WHERE q.delivered = o.delivered)",
            [["id"], ["id", "delivered"]],
        ),
        (
            "SELECT id FROM orders WHERE id IN (SELECT floor(id / 2) FROM payments)",
            [["id"], ["floor"]],
        ),
    ],
)
def test_unread_columns_are_not_stored(
    compiled: Compile, query: str, kept: list[list[str]]
) -> None:
    graph = compiled(f"{TABLES} {query}")
    found = [
        [
            each.sql.strip("`")
            for each in fed.columns
            if each.name not in (*fed.keys, "l_time", "r_time")
        ]
        for fed in join(graph).inputs
    ]
    assert found == kept


def test_an_unread_column_is_still_suggested(refusal: Refusal) -> None:
    query = f"{TABLES} SELECT {{}} FROM orders o JOIN payments p ON o.id = p.id"
    assert "Perhaps you meant 'delivered'" in refusal(query.format("o.deliverd")).hint
    assert "delivered" not in refusal(query.format("p.deliverd")).hint


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.id AS delivered FROM orders o JOIN payments p ON o.id = p.id",
        "SELECT o.id FROM orders o JOIN (SELECT id FROM orders WHERE delivered > at) p ON o.id = p.id",
        "WITH d AS (SELECT delivered FROM orders) SELECT o.id FROM orders o JOIN payments p ON o.id = p.id",
    ],
)
def test_names_that_mean_something_else_are_no_columns(compiled: Compile, query: str) -> None:
    first = join(compiled(f"{TABLES} {query}")).inputs[0]
    assert [each.sql for each in first.columns if each.name.startswith("l_0")] == ["`id`"]
    assert "l_1" not in [each.name for each in first.columns]


def test_a_value_in_a_subquery_may_have_the_name_of_its_column(compiled: Compile) -> None:
    graph = compiled(f"{TABLES} SELECT delivered FROM orders WHERE id IN (SELECT id FROM payments)")
    assert "LEFT SEMI JOIN" in join(graph).sql


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT * FROM orders WHERE id IN (SELECT id FROM payments))"
        " QUALIFY row_number() OVER (PARTITION BY id ORDER BY at) = 1",
        "SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT * FROM orders WHERE id IN"
        " (SELECT id FROM payments)) q WHERE q.id = o.id AND q.at > o.at)",
    ],
)
def test_a_subquery_is_not_lost_where_its_query_is_compiled_twice(
    compiled: Compile, query: str
) -> None:
    graph = compiled(f"{TABLES} {query}")
    assert {"source-orders", "source-payments"} <= {each.id for each in graph.operators}


def test_a_condition_on_a_later_table_is_not_read_as_a_field_of_an_earlier_one(
    compiled: Compile,
) -> None:
    graph = compiled(
        f"{TABLES} CREATE VIEW car AS SELECT id, at AS seats FROM payments;"
        " SELECT o.id FROM orders o, rides r, car"
        " WHERE o.id = car.seats AND o.id = r.driver AND o.id = car.id"
    )
    joins = [each for each in graph.operators if isinstance(each, UpdatingQuerySpec)]
    assert "seats" not in joins[0].sql


@pytest.mark.parametrize(("kind", "stays"), [("JOIN", True), ("RIGHT JOIN", False)])
def test_a_using_column_identifies_the_window_if_its_value_does(
    compiled: Compile, kind: str, stays: bool
) -> None:
    """To the right of a RIGHT join it is the right side's, which may be of any window."""
    graph = compiled(
        f"{TABLES} CREATE VIEW e AS SELECT w, w.end AS ts FROM"
        " (SELECT tumble('1 minute') AS w, count(*) AS n FROM orders GROUP BY 1);"
        " CREATE VIEW f AS SELECT tumble('1 minute') AS w, max(at) AS ts, count(*) AS n"
        " FROM payments GROUP BY 1;"
        f" SELECT ts, sum(n) AS n FROM e {kind} f USING (w, ts) GROUP BY ts"
    )
    updating = [each for each in graph.operators if isinstance(each, UpdatingQuerySpec)]
    assert not updating if stays else updating


def test_a_null_safe_key_is_a_key(compiled: Compile) -> None:
    for operator in ("IS NOT DISTINCT FROM", "<=>"):
        sql = f"{TABLES} SELECT o.id FROM orders o JOIN payments p ON o.id {operator} p.id"
        assert [each.keys for each in join(compiled(sql)).inputs] == [("l_key_0",), ("r_key_0",)]


def test_a_null_safe_comparison_of_event_times_bounds_nothing(compiled: Compile) -> None:
    """Rows without event time would meet, however late they come."""
    sql = f"{TABLES} SELECT o.id FROM orders o JOIN payments p ON o.at <=> p.at"
    assert join(compiled(sql)).keep_micros is None


def test_a_window_that_may_be_missing_can_be_compared_null_safely(compiled: Compile) -> None:
    views = TABLES + "".join(
        f"CREATE VIEW {name} AS SELECT tumble('1 minute') AS window, id FROM {table} GROUP BY 1, 2;"
        for name, table in (("a", "orders"), ("b", "payments"))
    )
    joined = "a LEFT JOIN b ON a.window = b.window AND a.id = b.id"
    graph = compiled(f"{views} SELECT a.id FROM {joined} JOIN a AS c ON b.window <=> c.window")
    assert not graph.all_of(UpdatingQuerySpec)


ASOF = "SELECT o.id FROM orders o ASOF"


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ("JOIN plain p ON o.id = p.a", "requires append-only inputs with event time"),
        ("JOIN (SELECT id, count(*) FROM payments GROUP BY id) p ON o.id = p.id", "append-only"),
        (
            "JOIN payments p ON o.id = p.id",
            "requires exactly one comparison of the event times of both sides",
        ),
        (
            "JOIN payments p ON o.at >= p.at AND o.at > p.at",
            "exactly one comparison of the event times",
        ),
        ("JOIN payments p ON o.at <= p.at", "one comparison of event times"),
        ("JOIN payments p ON o.delivered >= p.at", "one comparison of event times"),
        ("JOIN payments p ON o.at >= p.at + INTERVAL '1 second'", "one comparison of event times"),
        ("JOIN payments p ON o.at >= p.at AND p.id > 3", "one comparison of event times"),
        ("JOIN payments p ON o.at >= p.at AND (o.id, 1) = (p.id, p.id)", "one comparison"),
        ("JOIN payments p USING (id, at)", "requires ON instead of USING"),
        ("RIGHT JOIN payments p ON o.at >= p.at", "ASOF RIGHT JOIN is not supported"),
    ],
)
def test_an_asof_join_takes_equalities_and_one_comparison_of_event_times(
    refusal: Refusal, join: str, message: str
) -> None:
    error = refusal(f"{TABLES} {ASOF} {join}")
    assert message in error.message
    assert error.hint


def test_an_asof_join_is_append_only_and_keeps_event_time(compiled: Compile) -> None:
    join = "payments p MATCH_CONDITION (p.at < o.at) ON o.id = p.id"
    graph = compiled(
        f"{TABLES} INSERT INTO anything SELECT count(*) FROM"
        f" (SELECT o.id FROM orders o ASOF JOIN {join}) GROUP BY tumble('1 minute')"
    )
    asof = graph.window_aggregates()[0].asof
    assert asof is not None
    assert (asof.is_outer, asof.is_strict) == (True, True)
    assert not graph.all_of(UpdatingQuerySpec)


def test_an_asof_join_explains_itself(compiled: Compile) -> None:
    graph = compiled(f"{TABLES} {ASOF} JOIN payments p ON o.id = p.id AND o.at >= p.at")
    text = explain_graph(graph, parallelism=2)
    assert "asof join: a row is emitted when the watermark passes it" in text
    assert "the newest right row of each key" in text
