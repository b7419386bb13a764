"""Binding of the user's expressions, as Spark SQL text.

Every column is resolved, every function must exist, and syntax that cannot be evaluated row by row
is refused. The text names no relation: it is evaluated over one DataFrame.
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
        "a subquery is not allowed here",
        "Use a scalar subquery in the select list or in WHERE. Use IN and EXISTS in WHERE, combined"
        " with other conditions by AND.",
    ),
    (
        (exp.Window,),
        "a function with OVER is allowed only in a select list and in QUALIFY",
        "Compute it in a subquery of FROM.",
    ),
    ((exp.Distinct,), "DISTINCT inside a function is not supported yet", "Remove DISTINCT."),
    (
        (exp.Order, exp.WithinGroup),
        "ORDER BY inside a function is not supported yet",
        "Remove ORDER BY.",
    ),
    (
        (exp.IgnoreNulls, exp.RespectNulls),
        "IGNORE NULLS and RESPECT NULLS are not supported yet",
        "Remove it.",
    ),
    ((exp.Limit,), "LIMIT inside a function is not supported", "Remove LIMIT."),
    ((exp.Parameter, exp.Placeholder), "parameters are not supported", "Write the value itself."),
    (
        (exp.Star,),
        "'*' is allowed only in a select list and in count(*)",
        "Name the columns.",
    ),
    ((exp.Filter,), "FILTER requires an aggregate function", "Use CASE WHEN or WHERE."),
)


_OVER = "over"
"""Marks the nodes of a function with OVER, or of an aggregate, where these are allowed."""


@dataclass(frozen=True)
class Expressions:
    """Binds the expressions of one script."""

    script: Script
    functions: FunctionCatalog

    def sql(self, node: exp.Expr, relation: Relation) -> str:
        """Return the Spark SQL text of the expression over the relation."""
        return to_spark(self.bound(node, relation))

    def bound(self, node: exp.Expr, relation: Relation) -> exp.Expr:
        """Return a copy of the expression in which all names are resolved."""

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
        """Raise SqlError for the planning time over a changelog: the retraction of a row would get
        another value.
        """
        if relation.kind is RowKind.UPDATING:
            message = f"{node.name}() requires an append-only input, but this input is a changelog"
            hint = "Call it before rows are aggregated or joined."
            raise self.script.error(node, message, hint)

    def binds(self, node: exp.Expr, relation: Relation) -> bool:
        """Return whether all names of the expression are names of the relation."""
        try:
            self.bound(node, relation)
        except SqlError:
            return False
        return True

    def name_fields(self, call: exp.Anonymous, relation: Relation) -> None:
        """Name the fields of struct(a, b) by the user's column names, if the operator's differ."""
        if call.name.lower() != "struct" or self.functions.is_user_defined(call.name):
            return
        for each in call.expressions:
            found = relation.find(each.name) if isinstance(each, exp.Column) else []
            if any(one.column.lower() != one.name.lower() for one in found):
                name = exp.to_identifier(each.name, quoted=True)
                each.replace(exp.Alias(this=each.copy(), alias=name))

    def name_all_fields(self, call: exp.Anonymous) -> None:
        """Name the fields of struct() as Spark would, before its arguments are rewritten."""
        if call.name.lower() != "struct" or self.functions.is_user_defined(call.name):
            return
        for number, each in enumerate(call.expressions, start=1):
            if not isinstance(each, exp.Alias | exp.Star):
                name = each.name if isinstance(each, exp.Column) else f"col{number}"
                alias = exp.to_identifier(name, quoted=True)
                each.replace(exp.Alias(this=each.copy(), alias=alias))

    def with_over(self, node: exp.Expr) -> exp.Expr:
        """Return a copy of an expression of a select list, with the nodes of functions with OVER
        marked as allowed.
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
        """Return a copy of an expression, with the nodes of aggregates marked as allowed."""
        copy = node.copy()
        for each in copy.find_all(exp.Anonymous):
            if self.call_kind(each) is Call.AGGREGATE:
                each.meta[_OVER] = True
                for part in (each.parent, *each.expressions):
                    if isinstance(part, exp.Filter | exp.Distinct | exp.Star):
                        part.meta[_OVER] = True
        return copy

    def _check_frame(self, window: exp.Window) -> None:
        """Raise SqlError for frames that Spark does not support."""
        frame = window.args.get("spec")
        if frame is None:
            return
        if frame.args.get("exclude"):
            raise self.script.error(window, "EXCLUDE in OVER is not supported", "Remove EXCLUDE.")
        if (frame.args.get("kind") or "").upper() == "GROUPS":
            raise self.script.error(window, "GROUPS in OVER is not supported", "Use ROWS or RANGE.")

    def check(self, node: exp.Expr) -> None:
        """Raise SqlError for a node that cannot be evaluated row by row."""
        for kinds, message, hint in _REFUSED_NODES:
            if isinstance(node, kinds):
                raise self.script.error(node, message, hint)
        if isinstance(node, exp.Column) and node.is_star:
            self.check(node.this)
        if isinstance(node, exp.In) and (query := node.args.get("query")):
            self.check(query)
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
            message = "a function name cannot be qualified"
            raise self.script.error(node, message, f"Write {node.expression.name}().")
        if (
            isinstance(node, exp.Anonymous)
            and (kind := self.functions.classify(node.name)) is not Call.SCALAR
        ):
            raise self._refused_call(node, kind)

    def alias(self, node: exp.Expr) -> str | None:
        """Return the alias of an entry of a select list, if it has one."""
        if node.alias.lower() == EVENT_TIME:
            message = f"the name '{EVENT_TIME}' is reserved"
            raise self.script.error(node, message, "Choose another name.")
        return node.alias or None

    def call_kind(self, node: exp.Expr) -> Call | None:
        """Return the kind of a function call, or None if the node is not one."""
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
                message = f"{name}() is allowed only in GROUP BY and the select list of that query"
                hint = "Add GROUP BY with the window, as in GROUP BY tumble(INTERVAL '1 hour')."
            case Call.WINDOW_FUNCTION:
                message = f"'{name}' requires OVER, in the select list or in QUALIFY"
                hint = "Write it as in row_number() OVER (PARTITION BY window ORDER BY n DESC)."
            case Call.EXPLODE:
                message = f"{name}() is allowed only alone in the select list, or in FROM"
                hint = (
                    "Unnest the array first, as in"
                    " SELECT x.name FROM (SELECT unnest(tags) AS x FROM t)."
                )
            case Call.TABLE_GENERATOR:
                message = f"'{name}' returns rows or columns and is not supported"
                hint = "Use UNNEST, or array functions such as transform() or element_at()."
            case _:
                message, hint = self.functions.aggregate(name).refusal or (
                    f"the aggregate function '{name}' is not allowed here",
                    "Use aggregates in the select list and in HAVING, and do not nest them.",
                )
        return self.script.error(node, message, hint)


def belongs_to_over(node: exp.Expr) -> bool:
    """Return whether the node is marked as part of a function with OVER."""
    return bool(node.meta.get(_OVER))
