"""A call of an aggregate function, with DISTINCT, ORDER BY, FILTER and null treatment.

`resurgence.sql.functions.aggregates` describes the functions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from resurgence.graph.values import Position, Value
from resurgence.udf import registered_name


class NullTreatment(StrEnum):
    """The treatment of nulls that a call specifies."""

    IGNORE = "IGNORE NULLS"
    RESPECT = "RESPECT NULLS"


class SortOrder(Value):
    """One expression of ORDER BY."""

    sql: str
    descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        way, nulls = "DESC" if self.descending else "ASC", "FIRST" if self.nulls_first else "LAST"
        return f"{self.sql} {way} NULLS {nulls}"


class AggregateCall(Value):
    """One aggregate over the columns of an operator's input; all expressions are Spark SQL."""

    name: str
    """The column that holds its result."""
    function: str
    arguments: tuple[str, ...] = ()
    """Empty for count(*)."""
    is_distinct: bool = False
    order_by: tuple[SortOrder, ...] = ()
    """ORDER BY among the arguments, or in WITHIN GROUP."""
    null_treatment: NullTreatment | None = None
    condition: str | None = None
    """The condition of FILTER."""
    position: Position | None = None

    @property
    def is_user_defined(self) -> bool:
        return self.function.startswith(registered_name(""))

    @property
    def expressions(self) -> tuple[str, ...]:
        """All expressions that are computed row by row."""
        condition = () if self.condition is None else (self.condition,)
        return (*self.arguments, *(each.sql for each in self.order_by), *condition)

    def over(self, rewrite: Callable[[str], str]) -> AggregateCall:
        """Return the call with every expression rewritten."""
        return self.model_copy(
            update={
                "arguments": tuple(map(rewrite, self.arguments)),
                "order_by": tuple(
                    each.model_copy(update={"sql": rewrite(each.sql)}) for each in self.order_by
                ),
                "condition": None if self.condition is None else rewrite(self.condition),
            }
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """The arguments and their modifiers, as hashed into operator ids. A change of this text
        changes the ids, and state is lost.
        """
        arguments = [*self.arguments]
        if self.is_distinct:
            arguments[0] = f"DISTINCT {arguments[0]}"
        orders = (f"ORDER BY {each}" for each in self.order_by)
        nulls = () if self.null_treatment is None else (self.null_treatment.value,)
        return (*arguments, *orders, *nulls)

    @property
    def sql(self) -> str:
        """The call in Spark SQL; `spark_sql` rewrites calls that Spark spells differently."""
        arguments = ", ".join(self.arguments) or ("*" if self.function == "count" else "")
        within = ", ".join(map(str, self.order_by))
        return (
            f"{self.function}({'DISTINCT ' if self.is_distinct else ''}{arguments})"
            + (f" WITHIN GROUP (ORDER BY {within})" if within else "")
            + (f" FILTER (WHERE {self.condition})" if self.condition else "")
            + (f" {self.null_treatment.value}" if self.null_treatment else "")
        )
