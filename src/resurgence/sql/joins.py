"""Joins: two relations become one, whose columns keep their names and tables.

Where both sides give the rows of closed windows, and the condition says that they are of the same
window, the join is a batch query over the rows of an epoch and keeps nothing. Any other join keeps
both sides by the columns that must be equal, and gives the changes of its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.model import EVENT_TIME, Expression, UpdatingInput
from resurgence.sql.dialect import to_spark
from resurgence.sql.expressions import Expressions
from resurgence.sql.operators import Operators
from resurgence.sql.projection import told_by
from resurgence.sql.relation import Attribute, Relation, RowKind, column_sql

_SIDES = {"": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "FULL": "FULL"}


@dataclass(frozen=True)
class Equality:
    """`left = right` in a join's condition, each over one side."""

    left: exp.Expr
    right: exp.Expr


@dataclass(frozen=True)
class Joins:
    """Compiles the joins of a FROM clause."""

    expressions: Expressions
    operators: Operators

    def compile(self, left: Relation, right: Relation, node: exp.Join) -> Relation:
        """The relation of all columns of both."""
        kind = self._kind(node)
        left, right = _apart(left, "l"), _apart(right, "r")
        both = Relation(
            operator=left.operator,
            attributes=(*left.attributes, *right.attributes),
            has_event_time=left.has_event_time and right.has_event_time,
        )
        condition = self._condition(node, left, right, both)
        equalities = [
            each for part in conjuncts(condition) for each in self._equality(part, left, right)
        ]
        shown = both.attributes
        if kind in ("LEFT SEMI", "LEFT ANTI"):
            shown = left.attributes
        shown = self._without_doubles(shown, node)
        closed = left.kind is RowKind.CLOSED and right.kind is RowKind.CLOSED
        if closed and any(_same_window(each, left, right) for each in equalities):
            return self._closed(left, right, kind, condition, node, shown)
        if not equalities:
            hint = "add ON a.key = b.key; for windows, a.window = b.window"
            raise self._error(node, "a join needs columns that must be equal", hint)
        return self._updating(left, right, kind, condition, equalities, node, shown)

    # ---------------------------------------------------------------- the two ways

    def _closed(
        self,
        left: Relation,
        right: Relation,
        kind: str,
        condition: exp.Expr,
        node: exp.Join,
        shown: tuple[Attribute, ...],
    ) -> Relation:
        columns = [f"`{each.column}`" for each in shown]
        one_sided = kind in ("LEFT SEMI", "LEFT ANTI")
        time = "`l_time`" if one_sided else "coalesce(`l_time`, `r_time`)"
        sql = (
            f"SELECT {', '.join(columns)}, {time} AS `{EVENT_TIME}` "
            f"FROM (SELECT {_renamed(left, 'l')} FROM {{input_0}}) "
            f"{kind} JOIN (SELECT {_renamed(right, 'r')} FROM {{input_1}}) ON {to_spark(condition)}"
        )
        operator = self.operators.closed_query(
            (left.operator, right.operator), sql, self.expressions.script.position(node)
        )
        return Relation(
            operator=operator,
            attributes=shown,
            has_event_time=True,
            kind=RowKind.CLOSED,
            fixed_width=left.fixed_width and right.fixed_width,
        )

    def _updating(
        self,
        left: Relation,
        right: Relation,
        kind: str,
        condition: exp.Expr,
        equalities: list[Equality],
        node: exp.Join,
        shown: tuple[Attribute, ...],
    ) -> Relation:
        sides = (
            self._kept(left, "l", [each.left for each in equalities]),
            self._kept(right, "r", [each.right for each in equalities]),
        )
        columns = ", ".join(f"`{each.column}`" for each in shown)
        sql = f"SELECT {columns} FROM {{input_0}} {kind} JOIN {{input_1}} ON {to_spark(condition)}"
        operator = self.operators.updating_query(sides, sql, self.expressions.script.position(node))
        attributes = tuple(replace(each, window=None) for each in shown)
        return Relation(operator, attributes, has_event_time=False, kind=RowKind.UPDATING)

    def _kept(self, side: Relation, letter: str, keys: list[exp.Expr]) -> UpdatingInput:
        """All columns of a side, and what must be equal as columns of its own."""
        columns = [Expression(name=each.column, sql=_original(each)) for each in side.attributes]
        names = []
        for number, key in enumerate(keys):
            names.append(f"{letter}_key_{number}")
            columns.append(Expression(name=names[-1], sql=_unrenamed(key, side)))
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
            raise self._error(node, f"{node.method.upper()} JOIN is not supported", "write ON")
        if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
            return f"LEFT {kind}"
        if kind == "CROSS":
            raise self._error(
                node, "a CROSS JOIN of streams never ends", "join on columns that must be equal"
            )
        if kind in ("", "INNER", "OUTER") and side in _SIDES:
            return _SIDES[side]
        raise self._error(node, f"{side} {kind} JOIN is not supported".strip(), "use LEFT JOIN")

    def _condition(
        self, node: exp.Join, left: Relation, right: Relation, both: Relation
    ) -> exp.Expr:
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
            hint = "add ON a.key = b.key; for windows, a.window = b.window"
            raise self._error(node, "a join needs a condition", hint)
        return self.expressions.bound(on, both)

    def _equality(self, part: exp.Expr, left: Relation, right: Relation) -> Iterator[Equality]:
        part = part.unnest()
        if not isinstance(part, exp.EQ):
            return
        one, other = part.this, part.expression
        if _is_over(one, left) and _is_over(other, right):
            yield Equality(one, other)
        elif _is_over(one, right) and _is_over(other, left):
            yield Equality(other, one)

    def _without_doubles(
        self, attributes: tuple[Attribute, ...], node: exp.Join
    ) -> tuple[Attribute, ...]:
        """With USING, the columns of the right side that equal those of the left are not shown."""
        using = {each.name.lower() for each in node.args.get("using") or []}
        return tuple(
            each
            for each in attributes
            if not (each.column.startswith("r_") and each.name.lower() in using)
        )

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


@dataclass(frozen=True)
class _Renamed(Attribute):
    """A column under a name that no column of the other side has."""

    original: str = ""


def _apart(relation: Relation, letter: str) -> Relation:
    """The same relation, with columns that cannot be taken for those of the other side."""
    attributes = tuple(
        _Renamed(
            name=each.name,
            column=f"{letter}_{number}",
            type=each.type,
            table=each.table,
            window=each.window,
            original=column_sql(each),
        )
        for number, each in enumerate(relation.attributes)
    )
    return replace(relation, attributes=attributes)


def _original(attribute: Attribute) -> str:
    assert isinstance(attribute, _Renamed)
    return attribute.original


def _renamed(side: Relation, letter: str) -> str:
    """A side's columns under their new names, and its event time."""
    columns = [f"{_original(each)} AS `{each.column}`" for each in side.attributes]
    return ", ".join([*columns, f"`{EVENT_TIME}` AS `{letter}_time`"])


def _unrenamed(node: exp.Expr, side: Relation) -> str:
    """An expression over the new names, as one over the columns of the operator itself."""
    originals = {each.column: _original(each) for each in side.attributes}

    def step(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.name in originals:
            return exp.Column(this=exp.to_identifier(originals[each.name].strip("`"), quoted=True))
        if isinstance(each, exp.Identifier) and each.this in originals:
            return exp.to_identifier(originals[each.this].strip("`"), quoted=True)
        return each

    return to_spark(node.transform(step, copy=True))


def _is_over(node: exp.Expr, side: Relation) -> bool:
    """Whether an expression reads columns of this side alone, and at least one."""
    columns = {each.column for each in side.attributes}
    names = {
        each.this for each in node.find_all(exp.Identifier) if isinstance(each.parent, exp.Column)
    } | {each.this.this for each in node.find_all(exp.Dot) if isinstance(each.this, exp.Identifier)}
    return bool(names) and names <= columns


def _same_window(equality: Equality, left: Relation, right: Relation) -> bool:
    """Whether two rows that fit this belong to the same window."""
    _, one = told_by(equality.left, left)
    _, other = told_by(equality.right, right)
    if one is None or one is not other:
        return False
    probe = Attribute("", "", window=one)
    return left.tells_window(probe) and right.tells_window(probe)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts that must all be true."""
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node
