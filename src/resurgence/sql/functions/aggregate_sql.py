"""Aggregate calls in Spark's batch SQL, including those that need a rewrite: user-defined functions,
which take lists, and ordered lists.
"""

from __future__ import annotations

from resurgence.graph.aggregate_call import AggregateCall, NullTreatment, SortOrder
from resurgence.graph.values import EVENT_TIME
from resurgence.sql.functions.aggregates import Trait, aggregate_function


def spark_sql(call: AggregateCall) -> str:
    """Return the call as Spark SQL over all rows of a group at once."""
    if call.is_user_defined:
        return _user_defined(call)
    known = aggregate_function(call.function)
    is_list = known.has(Trait.ORDER_BY) and not known.has(Trait.WITHIN_GROUP)
    return _ordered_list(call) if is_list and call.order_by else call.sql


def in_event_time_order(call: AggregateCall) -> AggregateCall:
    """Return the call with event-time order, if its result depends on the order of rows and it has
    no order of its own.
    """
    takes_order = aggregate_function(call.function).has(Trait.ORDER_BY)
    if not takes_order or call.order_by or call.is_distinct:
        return call
    return call.model_copy(update={"order_by": (SortOrder(sql=f"`{EVENT_TIME}`"),)})


def null_filter(call: AggregateCall) -> str | None:
    """Return the condition that excludes nulls, if the call ignores them."""
    value, *rest = call.arguments or ("",)
    skips = aggregate_function(call.function).has(Trait.SKIPS_NULLS)
    ignored = call.null_treatment is NullTreatment.IGNORE or (
        skips and call.null_treatment is not NullTreatment.RESPECT
    )
    if rest and not skips:
        ignored = rest[0].lower() == "true"
    return f"{value} IS NOT NULL" if ignored else None


def filter_clause(*conditions: str | None) -> str:
    """Return a FILTER clause; an empty text without conditions."""
    chosen = [each for each in conditions if each]
    return f" FILTER (WHERE {' AND '.join(f'({each})' for each in chosen)})" if chosen else ""


def picked(function: str, ordered: str) -> str:
    """Return a function's result over an ordered list of structs: all values, the first or the last."""
    name = aggregate_function(function).name
    if name == "collect_list":
        return f"transform({ordered}, each -> each.v0)"
    return f"try_element_at({ordered}, {-1 if name == 'last' else 1}).v0"


def comparator(keys: list[tuple[str, SortOrder]]) -> str:
    """Return a lambda that compares structs by their fields."""
    cases: list[str] = []
    for field, order in keys:
        left, right = f"l.{field}", f"r.{field}"
        null_first, less = (-1 if order.nulls_first else 1), (1 if order.descending else -1)
        cases += [
            f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {null_first}",
            f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {-null_first}",
            f"WHEN {left} < {right} THEN {less}",
            f"WHEN {left} > {right} THEN {-less}",
        ]
    return f"(l, r) -> CASE {' '.join(cases)} ELSE 0 END"


def _user_defined(call: AggregateCall) -> str:
    """Return a call with lists as arguments; rows with a null argument are excluded."""
    conditions = [f"({each}) IS NOT NULL" for each in call.arguments]
    if call.condition is not None:
        conditions.append(f"({call.condition})")
    chosen = f"FILTER (WHERE {' AND '.join(conditions)})"
    lists = ", ".join(f"collect_list({each}) {chosen}" for each in call.arguments)
    return f"{call.function}({lists})"


def _ordered_list(call: AggregateCall) -> str:
    fields = ", ".join(f"'o{number}', {each.sql}" for number, each in enumerate(call.order_by))
    collect = "collect_set" if call.is_distinct else "collect_list"
    chosen = filter_clause(call.condition, null_filter(call))
    rows = f"{collect}(named_struct('v0', {call.arguments[0]}, {fields})){chosen}"
    keys = [(f"o{number}", each) for number, each in enumerate(call.order_by)]
    return picked(call.function, f"array_sort({rows}, {comparator(keys)})")
