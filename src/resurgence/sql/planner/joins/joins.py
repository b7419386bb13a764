"""Joins of two relations into one, whose columns keep their names and tables.

If both sides are rows of closed windows, and the condition equates their windows, the join is a
batch query over the rows of an epoch and has no state. Any other join stores both sides keyed by
the equated columns, and produces a changelog. If the condition bounds the distance of the event
times of two rows (an interval join), rows expire after that time.

An inner join or a semi join of append-only inputs is append-only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.specs.updating_query import InnerJoin, UpdatingInput
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.sql.catalog.relation import (
    Attribute,
    Relation,
    RowKind,
    WindowExpression,
    WindowPart,
    column_sql,
)
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import hidden_columns
from resurgence.sql.syntax.dialect import PlanningTime, to_spark
from resurgence.sql.syntax.flink_syntax import WindowTable
from resurgence.sql.syntax.intervals import offset_micros

_SIDES = {"": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "FULL": "FULL"}
_NAMING = (exp.Column, exp.Alias, exp.TableAlias, exp.Table)
"""The parents of identifiers that are not column names by themselves."""
_EQUALITY = "Add ON a.key = b.key, or ON a.window = b.window for windows."
_AT_LEAST, _AT_MOST = (exp.GTE, exp.GT, exp.EQ), (exp.LTE, exp.LT, exp.EQ)


@dataclass(frozen=True)
class Equality:
    """`left = right` in a join's condition, each over one side."""

    left: exp.Expr
    right: exp.Expr
    null_safe: bool = False
    """Set for IS NOT DISTINCT FROM: null equals null."""


@dataclass(frozen=True)
class Joins:
    """Compiles the joins of a FROM clause."""

    expressions: Expressions
    operators: Operators
    read: frozenset[str] | None = None
    """The columns that the query names, as by `names_in`, or None for all."""

    def compile(self, left: Relation, right: Relation, node: exp.Join) -> Relation:
        """Return the columns of both sides that are read. Others would be stored for no reader."""
        kind = self._kind(node)
        read = None if self.read is None else self.read | names_in(node)
        left, right = disambiguated(left.only(read), "l"), disambiguated(right.only(read), "r")
        both = Relation(
            operator=left.operator,
            attributes=(*left.attributes, *right.attributes),
            has_event_time=left.has_event_time and right.has_event_time,
            unread=(*left.unread, *right.unread),
        )
        condition = self.condition(node, left, right, both)
        equalities = [
            each for part in conjuncts(condition) for each in self.equality(part, left, right)
        ]
        shown = _shown(left, right, kind, [each.name for each in node.args.get("using") or []])
        closed = left.kind is RowKind.CLOSED and right.kind is RowKind.CLOSED
        if closed and any(is_same_window(each, left, right) for each in equalities):
            joined = self._closed(left, right, kind, condition, node, shown)
            return replace(joined, unread=both.unread)
        keep_micros = self._keep_micros(condition, left, right)
        if not equalities and keep_micros is None:
            raise self._error(node, "a join requires an equality between its sides", _EQUALITY)
        joined = self._updating(left, right, kind, condition, equalities, node, shown, keep_micros)
        return replace(joined, unread=both.unread)

    # ---------------------------------------------------------------- closed and updating

    def _closed(
        self,
        left: Relation,
        right: Relation,
        kind: str,
        condition: exp.Expr,
        node: exp.Join,
        shown: tuple[_Shown, ...],
    ) -> Relation:
        columns = [f"{each.sql} AS `{each.attribute.column}`" for each in shown]
        one_sided = kind in ("LEFT SEMI", "LEFT ANTI")
        time = "`l_time`" if one_sided else "coalesce(`l_time`, `r_time`)"
        sql = (
            f"SELECT {', '.join(columns)}, {time} AS `{EVENT_TIME}` "
            f"FROM (SELECT {renamed(left, 'l')} FROM {{input_0}}) "
            f"{kind} JOIN (SELECT {renamed(right, 'r')} FROM {{input_1}}) ON {to_spark(condition)}"
        )
        operator = self.operators.closed_query(
            (left.operator, right.operator), sql, self.expressions.script.position(node)
        )
        return Relation(
            operator=operator,
            attributes=tuple(each.attribute for each in shown),
            has_event_time=True,
            kind=RowKind.CLOSED,
            width_micros=left.width_micros if left.width_micros == right.width_micros else None,
            either=_either(left, right, kind),
        )

    def _updating(
        self,
        left: Relation,
        right: Relation,
        kind: str,
        condition: exp.Expr,
        equalities: list[Equality],
        node: exp.Join,
        shown: tuple[_Shown, ...],
        keep_micros: int | None,
    ) -> Relation:
        sides = (
            self._stored(left, "l", [each.left for each in equalities]),
            self._stored(right, "r", [each.right for each in equalities]),
        )
        results = [Expression(name=each.attribute.column, sql=each.sql) for each in shown]
        is_monotonic = kind in ("INNER", "LEFT SEMI")
        is_append_only = is_monotonic and RowKind.UPDATING not in (left.kind, right.kind)
        # A semi join can emit a left row long after its event time.
        has_time = (
            kind == "INNER" and is_append_only and left.has_event_time and right.has_event_time
        )
        if has_time:
            results.append(Expression(name=EVENT_TIME, sql="greatest(`l_time`, `r_time`)"))
        columns = ", ".join(f"{each.sql} AS `{each.name}`" for each in results)
        on = to_spark(condition)
        inner = InnerJoin(condition=on, results=tuple(results))
        operator = self.operators.updating_query(
            sides,
            f"SELECT {columns} FROM {{input_0}} {kind} JOIN {{input_1}} ON {on}",
            self.expressions.script.position(node),
            keep_micros,
            inner_join=inner if kind == "INNER" and is_append_only else None,
        )
        attributes = tuple(
            replace(each.attribute, window=None, outer_window=None, is_event_time=False)
            for each in shown
        )
        if not is_append_only:
            return Relation(operator, attributes, has_event_time=False, kind=RowKind.UPDATING)
        joined = Relation(operator, attributes, has_event_time=has_time)
        select = [Expression(name=each.column, sql=f"`{each.column}`") for each in attributes]
        return replace(
            joined, operator=self.operators.query(operator, (*select, *hidden_columns(joined)))
        )

    def _stored(self, side: Relation, letter: str, keys: list[exp.Expr]) -> UpdatingInput:
        """Return the columns of a side, and the equated expressions as additional columns."""
        columns = [Expression(name=each.column, sql=original(each)) for each in side.attributes]
        if side.has_event_time:
            columns.append(Expression(name=f"{letter}_time", sql=f"`{EVENT_TIME}`"))
        names = []
        for number, key in enumerate(keys):
            names.append(f"{letter}_key_{number}")
            columns.append(Expression(name=names[-1], sql=unrenamed(key, side)))
        return UpdatingInput(
            operator=side.operator,
            columns=tuple(columns),
            keys=tuple(names),
            is_updating=side.kind is RowKind.UPDATING,
        )

    # ---------------------------------------------------------------- the condition

    def _kind(self, node: exp.Join) -> str:
        side, kind = (node.side or "").upper(), (node.kind or "").upper()
        if (node.method or "").upper():
            raise self._error(node, f"{node.method.upper()} JOIN is not supported", "Use ON.")
        if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
            return f"LEFT {kind}"
        if kind == "CROSS":
            message = "CROSS JOIN of streams is not supported"
            raise self._error(node, message, "Join on equal columns, as in ON a.key = b.key.")
        if kind in ("", "INNER", "OUTER") and side in _SIDES:
            return _SIDES[side]
        raise self._error(node, f"{side} {kind} JOIN is not supported".strip(), "Use LEFT JOIN.")

    def condition(
        self, node: exp.Join, left: Relation, right: Relation, both: Relation
    ) -> exp.Expr:
        """Return the bound condition of a join, over columns with unique names."""
        using = node.args.get("using")
        if using:
            pairs = []
            for each in using:
                column = exp.Column(this=exp.to_identifier(each.name))
                column.meta["start"] = self.expressions.script.offset(each)
                sides = [self.expressions.bound(column, side) for side in (left, right)]
                pairs.append(exp.EQ(this=sides[0], expression=sides[1]))
            return exp.and_(*pairs)
        on = node.args.get("on")
        if on is None:
            raise self._error(node, "a join requires a condition", _EQUALITY)
        for each in on.find_all(PlanningTime):
            message = f"{each.name}() is not supported in a join condition"
            raise self._error(each, message, "Compute it as a column in a subquery of FROM.")
        return self.expressions.bound(on, both)

    def equality(self, part: exp.Expr, left: Relation, right: Relation) -> Iterator[Equality]:
        """Yield the equalities of a conjunct of a bound condition, if it is made of equalities."""
        part = part.unnest()
        if not isinstance(part, exp.EQ | exp.NullSafeEQ):
            return
        null_safe = isinstance(part, exp.NullSafeEQ)
        one, other = part.this, part.expression
        if isinstance(one, exp.Tuple) and isinstance(other, exp.Tuple):
            # Equal tuples are equal element by element, whatever their names.
            for pair in zip(one.expressions, other.expressions, strict=False):
                yield from self.equality(type(part)(this=pair[0], expression=pair[1]), left, right)
        elif _is_over(one, left) and _is_over(other, right):
            yield Equality(one, other, null_safe)
        elif _is_over(one, right) and _is_over(other, left):
            yield Equality(other, one, null_safe)

    def _keep_micros(self, condition: exp.Expr, left: Relation, right: Relation) -> int | None:
        """Return how long a row must be stored so that all rows that it can match, and all that
        these can match, have arrived. None: the condition does not bound the distance of event
        times.
        """
        least: list[int] = []
        most: list[int] = []
        for part in conjuncts(condition):
            for kind, one, other in _comparisons(part):
                offset = self._offset(one, other, left, right)
                if offset is not None and kind in _AT_LEAST:
                    least.append(offset)
                if offset is not None and kind in _AT_MOST:
                    most.append(offset)
                offset = self._offset(other, one, left, right)
                if offset is not None and kind in _AT_LEAST:
                    most.append(offset)
                if offset is not None and kind in _AT_MOST:
                    least.append(offset)
        if not least or not most:
            return None
        first, last = max(least), min(most)
        return max(last - first, abs(first), abs(last))

    def _offset(
        self, one: exp.Expr, other: exp.Expr, left: Relation, right: Relation
    ) -> int | None:
        """Return c of `left time = right time + c`, if `one` is of the left and `other` of the
        right.
        """
        terms = time_term(one, left), time_term(other, right)
        if terms[0] is None or terms[1] is None:
            return None
        return terms[1] - terms[0]

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


@dataclass(frozen=True)
class _Renamed(Attribute):
    """A column renamed so that no column of the other side has its name."""

    original: str = ""


@dataclass(frozen=True)
class _Shown:
    """A column of a join, and its value over both sides."""

    attribute: Attribute
    sql: str


def _shown(left: Relation, right: Relation, kind: str, using: list[str]) -> tuple[_Shown, ...]:
    """Return the output columns of a join. Those of USING come first, and once: from the side that
    always has them, or from either.
    """
    together = []
    for name in using:
        one, other = left.find(name)[0], right.find(name)[0]
        sql = column_sql(one)
        if kind == "RIGHT":
            sql = column_sql(other)
        elif kind == "FULL":
            sql = f"coalesce({column_sql(one)}, {column_sql(other)})"
        if kind in ("RIGHT", "FULL"):
            # Where a side can be missing, the column belongs to neither table, and has the window
            # information of its value.
            has_window = kind == "RIGHT" or one.window is other.window
            one = replace(
                one,
                table=None,
                type=other.type if kind == "RIGHT" else one.type,
                window=other.window if has_window else None,
                outer_window=other.outer_window if kind == "RIGHT" else None,
                is_event_time=other.is_event_time and (kind == "RIGHT" or one.is_event_time),
            )
        together.append(_Shown(one, sql))
    names = {each.lower() for each in using}
    sides = (left,) if kind in ("LEFT SEMI", "LEFT ANTI") else (left, right)
    missing = {"LEFT": (right,), "RIGHT": (left,), "FULL": (left, right)}.get(kind, ())
    rest = [
        _Shown(_outer(each) if side in missing else each, column_sql(each))
        for side in sides
        for each in side.attributes
        if each.name.lower() not in names
    ]
    return (*together, *rest)


def _outer(attribute: Attribute) -> Attribute:
    """Return a column of a side that can be missing: where it is null, it identifies no window."""
    part = attribute.window or attribute.outer_window
    return replace(attribute, window=None, outer_window=part)


def _either(left: Relation, right: Relation, kind: str) -> tuple[WindowExpression, ...]:
    """Return the window information of coalesce() over the columns of a join's rows."""
    if kind in ("LEFT", "LEFT SEMI", "LEFT ANTI"):
        return left.either
    if kind == "RIGHT":
        return right.either
    if kind == "INNER":
        return (*left.either, *right.either)
    return tuple(
        (texts, part)
        for one, part in left.window_expressions()
        for other, same in right.window_expressions()
        if same is part
        for texts in ((*one, *other), (*other, *one))
    )


def disambiguated(relation: Relation, letter: str) -> Relation:
    """Return the relation with column names that differ from those of the other side."""
    attributes = tuple(
        _Renamed(
            name=each.name,
            column=f"{letter}_{number}",
            type=each.type,
            table=each.table,
            window=each.window,
            outer_window=each.outer_window,
            is_event_time=each.is_event_time,
            is_processing_time=each.is_processing_time,
            is_hidden=each.is_hidden,
            is_unnamed_window=each.is_unnamed_window,
            original=column_sql(each),
        )
        for number, each in enumerate(relation.attributes)
    )
    names = {each.original: column_sql(each) for each in attributes}
    either = []
    for texts, part in relation.either:
        parted = [text.partition(".") for text in texts]
        if all(column in names for column, _, _ in parted):
            renamed = (f"{names[column]}{dot}{field}" for column, dot, field in parted)
            either.append((tuple(renamed), part))
    return replace(relation, attributes=attributes, either=tuple(either))


def original(attribute: Attribute) -> str:
    assert isinstance(attribute, _Renamed)
    return attribute.original


def renamed(side: Relation, letter: str) -> str:
    """Return the select list of a side's columns under their new names, and its event time."""
    columns = [f"{original(each)} AS `{each.column}`" for each in side.attributes]
    return ", ".join([*columns, f"`{EVENT_TIME}` AS `{letter}_time`"])


def unrenamed(node: exp.Expr, side: Relation) -> str:
    """Return an expression over the new names as one over the operator's columns."""
    originals = {each.column: original(each) for each in side.attributes}

    def step(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.name in originals:
            return exp.Column(this=exp.to_identifier(originals[each.name].strip("`"), quoted=True))
        if isinstance(each, exp.Identifier) and each.this in originals:
            return exp.to_identifier(originals[each.this].strip("`"), quoted=True)
        return each

    return to_spark(node.transform(step, copy=True))


def _is_over(node: exp.Expr, side: Relation) -> bool:
    """Return whether an expression reads at least one column, and only columns of this side."""
    columns = {each.column for each in side.attributes}
    names = {
        each.this for each in node.find_all(exp.Identifier) if isinstance(each.parent, exp.Column)
    } | {each.this.this for each in node.find_all(exp.Dot) if isinstance(each.this, exp.Identifier)}
    return bool(names) and names <= columns


def is_same_window(equality: Equality, left: Relation, right: Relation) -> bool:
    """Return whether two rows that satisfy this equality belong to the same window."""
    one = left.window_part(to_spark(equality.left.unnest()), or_null=True)
    # With a null-safe equality, two nulls would be equal whatever the windows of the two rows.
    other = right.window_part(to_spark(equality.right.unnest()), or_null=not equality.null_safe)
    if one is None or one is not other:
        return False
    if one is WindowPart.START and left.width_micros != right.width_micros:
        return False
    probe = Attribute("", "", window=one)
    return left.identifies_window(probe) and right.identifies_window(probe)


def _comparisons(
    part: exp.Expr,
) -> Iterator[tuple[type[exp.Expr], exp.Expr, exp.Expr]]:
    """Yield the comparisons of two values in a condition."""
    part = part.unnest()
    if isinstance(part, exp.Between):
        yield exp.GTE, part.this, part.args["low"]
        yield exp.LTE, part.this, part.args["high"]
    elif isinstance(part, (*_AT_LEAST, *_AT_MOST)):
        yield type(part), part.this, part.expression


def time_term(node: exp.Expr, side: Relation) -> int | None:
    """Return the offset if an expression is a side's event time plus an interval, else None."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub):
        time, offset = time_term(node.this, side), offset_micros(node.expression)
        if time is None or offset is None:
            return None
        return time + offset if isinstance(node, exp.Add) else time - offset
    times = {column_sql(each) for each in side.attributes if each.is_event_time}
    return 0 if side.has_event_time and to_spark(node) in times else None


def names_in(node: exp.Expr) -> frozenset[str]:
    """Return all possible column names in a query or a part of one, in lower case: `a` or `t.a`."""
    names: set[str] = set()
    for each in node.walk(prune=_has_names_of_its_own):
        if isinstance(each, exp.Column):
            first, *rest = (part.name.lower() for part in each.parts)
            # The second part is a column of a table, or a field of a column.
            names |= {first, f"{first}.{rest[0]}"} if rest else {first}
        elif isinstance(each, exp.Identifier) and not isinstance(each.parent, _NAMING):
            names.add(each.name.lower())
    return frozenset(names)


def _has_names_of_its_own(node: exp.Expr) -> bool:
    """Return whether a node is a query in FROM or WITH, which refers only to its own input. A query
    in a condition can also refer to this one's.
    """
    inputs = exp.Subquery | WindowTable
    is_input = isinstance(node, inputs) and isinstance(node.parent, exp.From | exp.Join)
    return is_input or isinstance(node, exp.With)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operands of AND, which must all be true."""
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node
