"""An aggregate call taken apart: values, DISTINCT, ORDER BY, what it does with nulls.

In a graph the modifiers stand among the arguments, as the user would write them: the first argument
may begin with `DISTINCT `; after the last one there may be `ORDER BY x ASC NULLS FIRST`, one for
each expression, and `IGNORE NULLS` or `RESPECT NULLS`. No expression begins with these words,
because all names in it are quoted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from resurgence.graph.values import AggregateCall, Expression
from resurgence.udf import registered_name

_DISTINCT = "DISTINCT "
_ORDER = re.compile(r"ORDER BY (?P<sql>.*) (?P<way>ASC|DESC) NULLS (?P<nulls>FIRST|LAST)", re.S)
_NULLS = ("IGNORE NULLS", "RESPECT NULLS")

WITHIN_GROUP = frozenset({"listagg", "string_agg", "percentile_cont", "percentile_disc", "mode"})
"""The functions that take their order in WITHIN GROUP."""

ORDERED_LISTS = frozenset(
    {"collect_list", "array_agg", "first", "first_value", "last", "last_value", "any_value"}
)
"""The functions that take an order here, and none in Spark."""


@dataclass(frozen=True)
class Order:
    """One expression of ORDER BY."""

    sql: str
    descending: bool = False
    nulls_first: bool = True

    @property
    def text(self) -> str:
        return f"{self.sql} {self.suffix}"

    @property
    def suffix(self) -> str:
        way = "DESC" if self.descending else "ASC"
        return f"{way} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True)
class CallParts:
    """The parts of a call, all in Spark SQL."""

    function: str
    values: tuple[str, ...]
    is_distinct: bool = False
    orders: tuple[Order, ...] = ()
    nulls: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the call as a graph has them."""
        values = list(self.values)
        if self.is_distinct:
            values[0] = f"{_DISTINCT}{values[0]}"
        orders = [f"ORDER BY {each.text}" for each in self.orders]
        return (*values, *orders, *([self.nulls] if self.nulls else []))

    def sql(self, condition: str | None) -> str:
        """The call in Spark's batch SQL, over the rows that the condition chooses."""
        if self.orders and self.function in ORDERED_LISTS:
            return self._ordered_list(condition)
        distinct = _DISTINCT if self.is_distinct else ""
        empty = "*" if self.function == "count" else ""
        within = ", ".join(each.text for each in self.orders)
        return (
            f"{self.function}({distinct}{', '.join(self.values) or empty})"
            + (f" WITHIN GROUP (ORDER BY {within})" if within else "")
            + (f" FILTER (WHERE {condition})" if condition else "")
            + (f" {self.nulls}" if self.nulls else "")
        )

    def _ordered_list(self, condition: str | None) -> str:
        value = self.values[0]
        fields = ", ".join(f"'o{number}', {each.sql}" for number, each in enumerate(self.orders))
        collect = "collect_set" if self.is_distinct else "collect_list"
        chosen = [each for each in (condition, self.left_out_nulls) if each]
        filtered = f" FILTER (WHERE {' AND '.join(f'({each})' for each in chosen)})"
        rows = f"{collect}(named_struct('v0', {value}, {fields})){filtered if chosen else ''}"
        keys = [(f"o{number}", each) for number, each in enumerate(self.orders)]
        return picked(self.function, f"array_sort({rows}, {comparator(keys)})")

    @property
    def left_out_nulls(self) -> str | None:
        """Which values a list keeps, if not all: lists leave nulls out, first and last do not."""
        is_list = self.function in ("collect_list", "array_agg")
        ignored = self.nulls == "IGNORE NULLS" or (is_list and self.nulls != "RESPECT NULLS")
        if len(self.values) > 1 and not is_list:
            ignored = self.values[1].lower() == "true"
        return f"{self.values[0]} IS NOT NULL" if ignored else None


def parts_of(call: AggregateCall) -> CallParts:
    """The parts of a call in a graph."""
    values: list[str] = []
    orders: list[Order] = []
    nulls = None
    for each in call.arguments:
        if each in _NULLS:
            nulls = each
        elif found := _ORDER.fullmatch(each):
            orders.append(Order(found["sql"], found["way"] == "DESC", found["nulls"] == "FIRST"))
        else:
            values.append(each)
    is_distinct = bool(values) and values[0].startswith(_DISTINCT)
    if is_distinct:
        values[0] = values[0].removeprefix(_DISTINCT)
    return CallParts(call.function, tuple(values), is_distinct, tuple(orders), nulls)


def batch_sql(call: AggregateCall, event_time: str | None = None) -> str:
    """An aggregate call as Spark's batch SQL. With event time, functions that take values by their
    place take them in its order.
    """
    parts = parts_of(call)
    if parts.function.startswith(registered_name("")):
        # A user's function of lists; rows in which a value is null are left out.
        conditions = [f"({each}) IS NOT NULL" for each in parts.values]
        if call.condition is not None:
            conditions.append(f"({call.condition})")
        chosen = f"FILTER (WHERE {' AND '.join(conditions)})"
        lists = ", ".join(f"collect_list({each}) {chosen}" for each in parts.values)
        return f"{parts.function}({lists})"
    if event_time is not None:
        parts = parts_of(by_event_time(call, event_time))
    return parts.sql(call.condition)


def by_event_time(call: AggregateCall, event_time: str) -> AggregateCall:
    """A call whose answer depends on the order of rows, with that of event time if it has none of
    its own.
    """
    parts = parts_of(call)
    takes_order = parts.function in ORDERED_LISTS | {"listagg", "string_agg"}
    if not takes_order or parts.orders or parts.is_distinct:
        return call
    arguments = replace(parts, orders=(Order(event_time),)).arguments
    return call.model_copy(update={"arguments": arguments})


def over_columns(call: AggregateCall) -> tuple[tuple[Expression, ...], AggregateCall]:
    """The columns that a call reads, and the call over them. What names no column stays in the
    call: some arguments must be constants.
    """
    parts = parts_of(call)
    columns: dict[str, Expression] = {}

    def column(sql: str) -> str:
        if "`" not in sql:
            return sql
        # One column for what is written twice: with DISTINCT, Spark must see that it is the same.
        if sql not in columns:
            columns[sql] = Expression(
                name=f"{call.name}_{len(columns)}", sql=sql, position=call.position
            )
        return f"`{columns[sql].name}`"

    values = tuple(column(each) for each in parts.values)
    orders = tuple(replace(each, sql=column(each.sql)) for each in parts.orders)
    condition = column(call.condition) if call.condition is not None else None
    arguments = replace(parts, values=values, orders=orders).arguments
    return tuple(columns.values()), call.model_copy(
        update={"arguments": arguments, "condition": condition}
    )


def picked(function: str, ordered: str) -> str:
    """What a function gives of an ordered list of structs: the values, the first or the last."""
    if function in ("collect_list", "array_agg"):
        return f"transform({ordered}, each -> each.v0)"
    place = -1 if function.startswith("last") else 1
    return f"try_element_at({ordered}, {place}).v0"


def comparator(keys: list[tuple[str, Order]]) -> str:
    """A function that puts structs in order by their fields."""
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
