"""Aggregate calls as Spark SQL, and as the text from which operator ids are derived."""

from __future__ import annotations

import pytest

from resurgence.graph.aggregate_call import AggregateCall, NullTreatment, SortOrder
from resurgence.sql.functions.aggregate_sql import in_event_time_order, spark_sql
from resurgence.sql.functions.aggregates import AGGREGATES
from resurgence.udf import registered_name

A = SortOrder(sql="`a`", descending=True, nulls_first=False)
IGNORE = NullTreatment.IGNORE


@pytest.mark.parametrize(
    ("call", "identity", "sql"),
    [
        (AggregateCall(name="c", function="count"), (), "count(*)"),
        (
            AggregateCall(name="c", function="count", arguments=("`a`", "`b`"), is_distinct=True),
            ("DISTINCT `a`", "`b`"),
            "count(DISTINCT `a`, `b`)",
        ),
        (
            AggregateCall(
                name="c",
                function="first",
                arguments=("`a`",),
                null_treatment=IGNORE,
                condition="`b`",
            ),
            ("`a`", "IGNORE NULLS"),
            "first(`a`) FILTER (WHERE `b`) IGNORE NULLS",
        ),
        (
            AggregateCall(name="c", function="mode", order_by=(A,)),
            ("ORDER BY `a` DESC NULLS LAST",),
            "mode() WITHIN GROUP (ORDER BY `a` DESC NULLS LAST)",
        ),
        (
            AggregateCall(
                name="c",
                function="listagg",
                arguments=("`a`", "', ORDER BY x'"),
                order_by=(SortOrder(sql="`b`"), SortOrder(sql="`c` + 1")),
            ),
            (
                "`a`",
                "', ORDER BY x'",
                "ORDER BY `b` ASC NULLS FIRST",
                "ORDER BY `c` + 1 ASC NULLS FIRST",
            ),
            "listagg(`a`, ', ORDER BY x') WITHIN GROUP (ORDER BY `b` ASC NULLS FIRST,"
            " `c` + 1 ASC NULLS FIRST)",
        ),
    ],
)
def test_a_call_is_written_with_its_modifiers(
    call: AggregateCall, identity: tuple[str, ...], sql: str
) -> None:
    assert call.identity == identity
    assert spark_sql(call) == sql
    assert AggregateCall.model_validate_json(call.model_dump_json()) == call


def test_the_conditions_of_a_function_of_lists_all_hold() -> None:
    function = registered_name("spread")
    call = AggregateCall(
        name="c", function=function, arguments=("`a`", "`b` OR `c`"), condition="`d` OR `e`"
    )
    chosen = "FILTER (WHERE (`a`) IS NOT NULL AND (`b` OR `c`) IS NOT NULL AND (`d` OR `e`))"
    lists = f"collect_list(`a`) {chosen}, collect_list(`b` OR `c`) {chosen}"
    assert spark_sql(call) == f"{function}({lists})"


def test_order_dependent_aggregates_use_the_order_of_event_time() -> None:
    last = AggregateCall(name="c", function="last", arguments=("`a`",))
    ordered = spark_sql(in_event_time_order(last))
    assert "named_struct('v0', `a`, 'o0', `__event_time`)" in ordered
    assert spark_sql(last) == "last(`a`)"


@pytest.mark.parametrize("function", ["max", "median", registered_name("spread")])
def test_other_functions_take_no_order(function: str) -> None:
    call = AggregateCall(name="c", function=function, arguments=("`a`",))
    assert in_event_time_order(call) == call


def test_replacing_the_arguments_of_a_call_keeps_its_modifiers() -> None:
    call = AggregateCall(
        name="c",
        function="percentile_cont",
        arguments=("0.5",),
        order_by=(A,),
        condition="`b` > 1",
    )
    assert call.expressions == ("0.5", "`a`", "`b` > 1")
    over = call.over({"0.5": "0.5", "`a`": "`x`", "`b` > 1": "`y`"}.__getitem__)
    assert over.sql == (
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY `x` DESC NULLS LAST) FILTER (WHERE `y`)"
    )


def test_all_names_of_a_function_mean_the_same() -> None:
    assert AGGREGATES["mean"] is AGGREGATES["avg"]
    assert all(AGGREGATES[each.name].name == each.name for each in AGGREGATES.values())
