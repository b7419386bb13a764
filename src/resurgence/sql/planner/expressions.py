"""An expression of the user's, checked against what it may refer to, as Spark SQL text.

Every column is looked up, every function must exist, and what has no meaning row by row is refused.
The text names no relation: it is evaluated over one DataFrame.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.values import EVENT_TIME, PLANNED_AT
from resurgence.sql.catalog.relation import Relation, RowKind, reference
from resurgence.sql.functions.registry import Call, FunctionCatalog
from resurgence.sql.syntax.dialect import PlanningTime, to_spark
from resurgence.sql.syntax.intervals import spark_interval
from resurgence.sql.syntax.parse import Script
from resurgence.sql.syntax.types import spark_type

_REFUSED_NODES: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    (
        (exp.Query, exp.Exists, exp.SubqueryPredicate),
        "a subquery cannot stand here",
        "scalar subqueries stand in the select list and in WHERE; IN, EXISTS and their negations in"
        " WHERE, joined to the rest by AND",
    ),
    (
        (exp.Window,),
        "a function with OVER may stand in a select list and in QUALIFY",
        "compute it in a subquery of FROM",
    ),
    ((exp.Distinct,), "DISTINCT inside a function is not supported yet", "leave DISTINCT out"),
    (
        (exp.Order, exp.WithinGroup),
        "ORDER BY inside a function is not supported yet",
        "leave it out",
    ),
    (
        (exp.IgnoreNulls, exp.RespectNulls),
        "IGNORE NULLS and RESPECT NULLS are not supported yet",
        "leave it out",
    ),
    ((exp.Limit,), "LIMIT inside a function is not supported", "leave it out"),
    ((exp.Parameter, exp.Placeholder), "parameters are not supported", "write the value itself"),
    (
        (exp.Star,),
        "'*' stands for all columns only in a select list and in count(*)",
        "name the columns",
    ),
    ((exp.Filter,), "FILTER belongs to an aggregate function", "use CASE WHEN, or WHERE"),
)


_OVER = "over"
"""Marks the nodes that belong to a function with OVER, or to an aggregate, where it may stand."""


@dataclass(frozen=True)
class Expressions:
    """Binds expressions of one script, knowing the functions that exist."""

    script: Script
    functions: FunctionCatalog

    def sql(self, node: exp.Expr, relation: Relation) -> str:
        """The Spark SQL text of the expression over the relation."""
        return to_spark(self.bound(node, relation))

    def bound(self, node: exp.Expr, relation: Relation) -> exp.Expr:
        """A copy of the expression in which all names are resolved."""

        def step(each: exp.Expr) -> exp.Expr:
            if not belongs_to_over(each):
                self.check(each)
            if isinstance(each, PlanningTime):
                self.require_append_only(each, relation)
                return exp.column(PLANNED_AT, quoted=True)
            if isinstance(each, exp.Column):
                attribute, path = relation.resolve(each, self.script)
                return reference(attribute, path)
            if isinstance(each, exp.Anonymous):
                self.name_fields(each, relation)
                each.set("this", self.functions.called(each.name))
            if isinstance(each, exp.Interval):
                return spark_interval(each, self.script)
            if isinstance(each, exp.DataType) and not isinstance(each, exp.IntervalSpan):
                return exp.DataType.build(spark_type(each, self.script), dialect="spark")
            return each

        return node.transform(step, copy=True)

    def require_append_only(self, node: PlanningTime, relation: Relation) -> None:
        """Refuse the planning time over a changelog."""
        if relation.kind is RowKind.UPDATING:
            message = f"{node.name}() is not supported over a changelog: a retraction would get another value"
            hint = "call it over an append-only stream, before rows are aggregated or joined"
            raise self.script.error(node, message, hint)

    def binds(self, node: exp.Expr, relation: Relation) -> bool:
        """Whether all names of the expression are those of the relation."""
        try:
            self.bound(node, relation)
        except SqlError:
            return False
        return True

    def name_fields(self, call: exp.Anonymous, relation: Relation) -> None:
        """Calls the fields of struct(a, b) as the user calls the columns, where the operator calls
        them otherwise.
        """
        if call.name.lower() != "struct" or self.functions.is_user_defined(call.name):
            return
        for each in call.expressions:
            found = relation.find(each.name) if isinstance(each, exp.Column) else []
            if any(one.column.lower() != one.name.lower() for one in found):
                name = exp.to_identifier(each.name, quoted=True)
                each.replace(exp.Alias(this=each.copy(), alias=name))

    def name_all_fields(self, call: exp.Anonymous) -> None:
        """Calls the fields of struct() as Spark does before anything in it is rewritten."""
        if call.name.lower() != "struct" or self.functions.is_user_defined(call.name):
            return
        for number, each in enumerate(call.expressions, start=1):
            if not isinstance(each, exp.Alias | exp.Star):
                name = each.name if isinstance(each, exp.Column) else f"col{number}"
                alias = exp.to_identifier(name, quoted=True)
                each.replace(exp.Alias(this=each.copy(), alias=alias))

    def with_over(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression of a select list, where functions with OVER may stand: what
        belongs to them is marked.
        """
        copy = node.copy()
        for window in copy.find_all(exp.Window):
            self._check_frame(window)
            for each in (window, window.this, *window.find_all(exp.Order, exp.Ordered)):
                each.meta[_OVER] = True
            function = window.this
            while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                function.meta[_OVER] = True
                function = function.this
            function.meta[_OVER] = True
            if isinstance(function, exp.Anonymous) and self.call_kind(function) is Call.UNKNOWN:
                self.check(function)
            for star in function.expressions if isinstance(function, exp.Anonymous) else []:
                if isinstance(star, exp.Star):
                    star.meta[_OVER] = True
        return copy

    def with_aggregates(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression in which aggregates may stand: what belongs to them is marked."""
        copy = node.copy()
        for each in copy.find_all(exp.Anonymous):
            if self.call_kind(each) is Call.AGGREGATE:
                each.meta[_OVER] = True
                for part in (each.parent, *each.expressions):
                    if isinstance(part, exp.Filter | exp.Distinct | exp.Star):
                        part.meta[_OVER] = True
        return copy

    def _check_frame(self, window: exp.Window) -> None:
        """Refuses frames that Spark does not have."""
        frame = window.args.get("spec")
        if frame is None:
            return
        if frame.args.get("exclude"):
            raise self.script.error(window, "EXCLUDE in OVER is not supported", "leave it out")
        if (frame.args.get("kind") or "").upper() == "GROUPS":
            raise self.script.error(window, "GROUPS in OVER is not supported", "use ROWS or RANGE")

    def check(self, node: exp.Expr) -> None:
        """Refuses a node that has no meaning row by row, whatever its columns are."""
        for kinds, message, hint in _REFUSED_NODES:
            if isinstance(node, kinds):
                raise self.script.error(node, message, hint)
        if isinstance(node, exp.Column) and node.is_star:
            self.check(node.this)
        if isinstance(node, exp.In) and (query := node.args.get("query")):
            self.check(query)
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
            raise self.script.error(
                node, "a function's name has no qualifier", f"write {node.expression.name}()"
            )
        if (
            isinstance(node, exp.Anonymous)
            and (kind := self.functions.classify(node.name)) is not Call.SCALAR
        ):
            raise self._refused_call(node, kind)

    def alias(self, node: exp.Expr) -> str | None:
        """The name that the user gives to an entry of a select list."""
        if node.alias.lower() == EVENT_TIME:
            raise self.script.error(
                node, f"the name '{EVENT_TIME}' is reserved", "choose another name"
            )
        return node.alias or None

    def call_kind(self, node: exp.Expr) -> Call | None:
        """What the call means; None if the node is no call by name."""
        return self.functions.classify(node.name) if isinstance(node, exp.Anonymous) else None

    def _refused_call(self, node: exp.Anonymous, kind: Call) -> SqlError:
        name = node.meta.get("window_name", node.name.lower())
        match kind:
            case Call.UNKNOWN:
                message, hint = (
                    f"there is no function '{node.name}'",
                    self.functions.suggestion(node.name),
                )
            case Call.WINDOW:
                message = f"{name}() may stand in GROUP BY, or in the select list of a query grouped by it"
                hint = "add GROUP BY with the window, as in GROUP BY tumble(INTERVAL '1 hour')"
            case Call.WINDOW_FUNCTION:
                message = f"'{name}' needs OVER, and may stand in the select list and in QUALIFY"
                hint = "as in row_number() OVER (PARTITION BY window ORDER BY n DESC)"
            case Call.EXPLODE:
                message = f"{name}() may stand alone in the select list, or in FROM"
                hint = "take the array apart first: SELECT x.name FROM (SELECT unnest(tags) AS x FROM t)"
            case Call.TABLE_GENERATOR:
                message = f"'{name}' makes rows or columns, and is not supported"
                hint = "use UNNEST, or array functions such as transform() or element_at()"
            case _:
                message, hint = self.functions.aggregate(name).refusal or (
                    f"the aggregate function '{name}' cannot stand here",
                    "aggregates may stand in the select list and in HAVING, and not inside each other",
                )
        return self.script.error(node, message, hint)


def belongs_to_over(node: exp.Expr) -> bool:
    """Whether the node was marked as a part of a function with OVER."""
    return bool(node.meta.get(_OVER))
