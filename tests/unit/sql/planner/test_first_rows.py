"""Which filters bound the rows that a query with row_number() stores."""

from __future__ import annotations

import pytest

from resurgence.connectors.registry import CONNECTORS
from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.sql import compile_pipeline

TABLES = """
CREATE TABLE events (id BIGINT, user TEXT, price DOUBLE) WITH (
    connector = 'single_file', path = 'in.json', type = 'source');
CREATE TABLE out WITH (connector = 'blackhole', format = 'debezium_json');
"""
OVER = "OVER (PARTITION BY user ORDER BY price DESC, id)"
NUMBERED = f"(SELECT id, user, row_number() {OVER} AS n FROM events)"


def compiled(query: str) -> Graph:
    return compile_pipeline(f"{TABLES} INSERT INTO out {query};", CONNECTORS)


def limits(query: str) -> list[int | None]:
    """Return the limit of each updating query."""
    found = compiled(query).all_of(UpdatingQuerySpec)
    return [None if each.first_rows is None else each.first_rows.limit for each in found]


@pytest.mark.parametrize(
    ("condition", "limit"),
    [
        ("n = 1", 1),
        ("1 = n", 1),
        ("n <= 3", 3),
        ("(n < 3)", 2),
        ("3 >= n", 3),
        ("n BETWEEN 2 AND 5", 5),
        ("n <= 9 AND id > 5 AND n <= 4", 4),
        ("n > 1", None),
        ("n <= 3 OR id = 1", None),
        ("NOT n <= 3", None),
        ("n <= id", None),
        ("n + 1 <= 3", None),
        ("n < 1", None),
        ("id <= 3", None),
    ],
)
def test_a_filter_bounds_the_rows_if_it_says_how_large_their_number_is(
    condition: str, limit: int | None
) -> None:
    assert limits(f"SELECT id, user, n FROM {NUMBERED} WHERE {condition}") == [limit]


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        (f"SELECT id FROM events QUALIFY row_number() {OVER} <= 2", 2),
        (f"SELECT id, row_number() {OVER} AS n FROM events QUALIFY n = 1 AND id > 1", 1),
        (f"SELECT user FROM {NUMBERED} AS t WHERE t.n = 1", 1),
        (f"SELECT max(id) FROM {NUMBERED} WHERE n = 1 GROUP BY user", 1),
        (f"SELECT DISTINCT user FROM {NUMBERED} WHERE n = 1", 1),
        (f"SELECT place FROM {NUMBERED} AS t (a, b, place) WHERE place = 1", 1),
        (f"WITH t AS (SELECT * FROM {NUMBERED}) SELECT * FROM t WHERE n = 1", 1),
        (f"SELECT n FROM (SELECT id, row_number() {OVER} * 2 AS n FROM events) WHERE n = 2", None),
        (f"SELECT n FROM (SELECT id, rank() {OVER} AS n FROM events) WHERE n = 1", None),
        (
            f"SELECT n FROM (SELECT row_number() {OVER} AS n, lag(id) {OVER} AS before FROM events)"
            " WHERE n = 1",
            None,
        ),
    ],
)
def test_the_number_is_recognised_wherever_a_filter_reads_it(query: str, limit: int | None) -> None:
    assert limit in limits(query)
    assert sum(each is not None for each in limits(query)) == (limit is not None)


def test_only_columns_that_are_read_are_stored() -> None:
    (query,) = compiled(f"SELECT user FROM {NUMBERED} WHERE n = 1").all_of(UpdatingQuerySpec)
    assert [each.sql for each in query.inputs[0].columns] == [
        "`id`",
        "`user`",
        "`price`",
        "`user`",
    ]


def test_a_number_that_is_read_without_a_bound_keeps_its_own_query() -> None:
    """One view, read with a bound and without one."""
    view = f"CREATE VIEW numbered AS SELECT * FROM {NUMBERED};"
    graph = compile_pipeline(
        f"{TABLES} {view} INSERT INTO out SELECT * FROM numbered;"
        " INSERT INTO out SELECT * FROM numbered WHERE n = 1;"
        " INSERT INTO out SELECT * FROM numbered WHERE n = 1 AND id = 7;",
        CONNECTORS,
    )
    found = graph.all_of(UpdatingQuerySpec)
    assert [each.first_rows and each.first_rows.limit for each in found] == [None, 1]
    assert len([each for each in graph.all_of(QuerySpec) if each.where]) == 2
