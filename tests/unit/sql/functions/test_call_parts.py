"""An aggregate call in a graph comes apart into the parts that it was made of."""

from __future__ import annotations

import pytest

from resurgence.graph.values import AggregateCall
from resurgence.sql.functions.call_parts import CallParts, Order, batch_sql, over_columns, parts_of
from resurgence.udf import registered_name


def call(parts: CallParts, condition: str | None = None) -> AggregateCall:
    return AggregateCall(
        name="c", function=parts.function, arguments=parts.arguments, condition=condition
    )


PARTS = [
    (CallParts("count", ()), "count(*)"),
    (CallParts("count", ("`a`", "`b`"), is_distinct=True), "count(DISTINCT `a`, `b`)"),
    (CallParts("first", ("`a`",), nulls="IGNORE NULLS"), "first(`a`) IGNORE NULLS"),
    (
        CallParts("mode", (), orders=(Order("`a`", descending=True, nulls_first=False),)),
        "mode() WITHIN GROUP (ORDER BY `a` DESC NULLS LAST)",
    ),
    (
        CallParts("listagg", ("`a`", "', ORDER BY x'"), orders=(Order("`b`"), Order("`c` + 1"))),
        "listagg(`a`, ', ORDER BY x') WITHIN GROUP (ORDER BY `b` ASC NULLS FIRST,"
        " `c` + 1 ASC NULLS FIRST)",
    ),
]


@pytest.mark.parametrize(("parts", "sql"), PARTS)
def test_a_call_is_written_and_read_again(parts: CallParts, sql: str) -> None:
    assert parts_of(call(parts)) == parts
    assert batch_sql(call(parts)) == sql


def test_a_condition_stands_before_what_is_done_with_nulls() -> None:
    first = CallParts("first", ("`a`",), nulls="IGNORE NULLS")
    assert batch_sql(call(first, "`b`")) == "first(`a`) FILTER (WHERE `b`) IGNORE NULLS"


def test_the_conditions_of_a_function_of_lists_all_hold() -> None:
    spread = CallParts(registered_name("spread"), ("`a`", "`b` OR `c`"))
    chosen = "FILTER (WHERE (`a`) IS NOT NULL AND (`b` OR `c`) IS NOT NULL AND (`d` OR `e`))"
    lists = f"collect_list(`a`) {chosen}, collect_list(`b` OR `c`) {chosen}"
    assert batch_sql(call(spread, "`d` OR `e`")) == f"{registered_name('spread')}({lists})"


def test_values_taken_by_their_place_are_taken_in_the_order_of_event_time() -> None:
    last = call(CallParts("last", ("`a`",)))
    assert "named_struct('v0', `a`, 'o0', `at`)" in batch_sql(last, "`at`")
    assert batch_sql(last) == "last(`a`)"


def test_a_call_over_columns_keeps_its_constants() -> None:
    parts = CallParts("percentile_cont", ("0.5",), orders=(Order("abs(`a`)", descending=True),))
    columns, over = over_columns(call(parts, "`b` > 1"))
    assert [(each.name, each.sql) for each in columns] == [("c_0", "abs(`a`)"), ("c_1", "`b` > 1")]
    assert over.condition == "`c_1`"
    assert parts_of(over).orders == (Order("`c_0`", descending=True),)
    assert parts_of(over).values == ("0.5",)
