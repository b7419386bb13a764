"""GROUPING SETS, ROLLUP and CUBE: which sets a GROUP BY expands to, and how rows are copied into
them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec

Compile = Callable[..., Graph]

HOUR = "tumble(INTERVAL '1 hour')"


def window_of(graph: Graph) -> WindowAggregateSpec:
    (window,) = graph.window_aggregates()
    return window


def copies(graph: Graph) -> str:
    """The expression that makes one row of each set."""
    expand = graph.operator(window_of(graph).input)
    assert isinstance(expand, QuerySpec)
    (made,) = [each.sql for each in expand.select if each.name == "__grouping_set"]
    return made.removeprefix("explode(array(").removesuffix("))").replace("L", "")


@pytest.mark.parametrize(
    ("items", "sets"),
    [
        (f"{HOUR}, ROLLUP (kind, place)", "0, 1, 3"),
        (f"{HOUR}, CUBE (kind, place)", "0, 1, 2, 3"),
        (f"{HOUR}, GROUPING SETS ((kind), (kind, place), ())", "1, 0, 3"),
        (f"{HOUR}, GROUPING SETS (kind, place)", "1, 2"),
        # Those that are written twice are two sets; the number above the bits tells them apart.
        (f"{HOUR}, GROUPING SETS ((kind), (kind), (place))", "1, 9, 2"),
        # Each of one with each of the other.
        (f"{HOUR}, ROLLUP (kind), ROLLUP (place)", "0, 1, 2, 3"),
        (f"{HOUR}, kind, ROLLUP (kind, place)", "0, 1, 9"),
        (f"{HOUR}, ROLLUP ((kind, place), driver)", "0, 1, 7"),
        (f"{HOUR}, GROUPING SETS (ROLLUP (kind), CUBE (place))", "1, 3, 2, 11"),
        (f"{HOUR}, kind, place GROUPING SETS (({HOUR}, kind), ({HOUR}, place))", "1, 2"),
        # The window has its bit, too, as in Spark.
        (f"ROLLUP (kind, place), {HOUR}", "0, 2, 6"),
    ],
)
def test_a_row_is_copied_once_per_grouping_set(compiled: Compile, items: str, sets: str) -> None:
    """A bit for each column that a set leaves out, the first column being the highest."""
    assert copies(compiled(f"SELECT count(*) FROM rides GROUP BY {items}")) == sets


def test_keys_are_null_where_a_set_leaves_them_out(compiled: Compile) -> None:
    graph = compiled(f"SELECT count(*) FROM rides GROUP BY {HOUR}, driver, ROLLUP (upper(kind))")
    assert [(each.name, each.sql) for each in window_of(graph).keys] == [
        ("driver", "`driver`"),
        ("key_2", "IF((`__grouping_set` & 1L) = 0, upper(`kind`), NULL)"),
        ("__grouping_set", "`__grouping_set`"),
    ]


def test_aggregates_see_the_columns_as_they_are(compiled: Compile) -> None:
    graph = compiled(f"SELECT max(kind), kind FROM rides GROUP BY {HOUR}, ROLLUP (kind)")
    (call,) = window_of(graph).aggregates
    assert call.arguments == ("`kind`",)


def test_another_set_is_another_operator_and_another_name_is_not(compiled: Compile) -> None:
    def id_of(sets: str, name: str = "n") -> str:
        return window_of(
            compiled(f"SELECT count(*) AS {name} FROM rides GROUP BY {HOUR}, {sets}")
        ).id

    assert id_of("ROLLUP (kind)") == id_of("GROUPING SETS (kind, ())", "other")
    assert id_of("ROLLUP (kind)") != id_of("GROUPING SETS (kind)")
    assert id_of("ROLLUP (kind)") != id_of("kind")
