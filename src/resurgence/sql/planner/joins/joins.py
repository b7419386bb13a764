"""Joins: two relations become one, whose columns keep their names and tables.

Where both sides give the rows of closed windows, and the condition says that they are of the same
window, the join is a batch query over the rows of an epoch and keeps nothing. Any other join keeps
both sides by the columns that must be equal, and gives the changes of its result. If the condition
says how far apart the event times of two rows may be, rows are kept no longer than that.

What is joined for good stays joined: an inner join of rows that stay gives rows that stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.specs.updating_query import UpdatingInput
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.sql.catalog.relation import (
    Attribute,
    Relation,
    RowKind,
    Told,
    WindowPart,
    column_sql,
)
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import carried
from resurgence.sql.syntax.dialect import PlanningTime, to_spark
from resurgence.sql.syntax.flink_syntax import WindowTable
from resurgence.sql.syntax.intervals import offset_micros

_SIDES = {"": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "FULL": "FULL"}
_NAMING = (exp.Column, exp.Alias, exp.TableAlias, exp.Table)
"""What an identifier is a part of that names no column by itself."""
_AT_LEAST, _AT_MOST = (exp.GTE, exp.GT, exp.EQ), (exp.LTE, exp.LT, exp.EQ)


@dataclass(frozen=True)
class Equality:
    """`left = right` in a join's condition, each over one side."""

    left: exp.Expr
    right: exp.Expr
    null_safe: bool = False
    """It is IS NOT DISTINCT FROM: null equals null."""


@dataclass(frozen=True)
class Joins:
    """Compiles the joins of a FROM clause."""

    expressions: Expressions
    operators: Operators
    read: frozenset[str] | None = None
    """The columns that the query names, as by `names_in`. None: whatever there is."""

    def compile(self, left: Relation, right: Relation, node: exp.Join) -> Relation:
        """The relation of all columns of both that are read: others would be kept for nobody."""
        kind = self._kind(node)
        read = None if self.read is None else self.read | names_in(node)
        left, right = apart(left.only(read), "l"), apart(right.only(read), "r")
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
            hint = "add ON a.key = b.key; for windows, a.window = b.window"
            raise self._error(node, "a join needs columns that must be equal", hint)
        joined = self._updating(left, right, kind, condition, equalities, node, shown, keep_micros)
        return replace(joined, unread=both.unread)

    # ---------------------------------------------------------------- the two ways

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
            self._kept(left, "l", [each.left for each in equalities]),
            self._kept(right, "r", [each.right for each in equalities]),
        )
        columns = [f"{each.sql} AS `{each.attribute.column}`" for each in shown]
        stays = kind in ("INNER", "LEFT SEMI") and RowKind.UPDATING not in (left.kind, right.kind)
        # A row of the left alone may come out long after its time.
        has_time = kind == "INNER" and stays and left.has_event_time and right.has_event_time
        if has_time:
            columns.append(f"greatest(`l_time`, `r_time`) AS `{EVENT_TIME}`")
        sql = (
            f"SELECT {', '.join(columns)} FROM {{input_0}} {kind} JOIN {{input_1}} "
            f"ON {to_spark(condition)}"
        )
        position = self.expressions.script.position(node)
        operator = self.operators.updating_query(sides, sql, position, keep_micros)
        attributes = tuple(
            replace(each.attribute, window=None, outer_window=None, is_event_time=False)
            for each in shown
        )
        if not stays:
            return Relation(operator, attributes, has_event_time=False, kind=RowKind.UPDATING)
        joined = Relation(operator, attributes, has_event_time=has_time)
        select = [Expression(name=each.column, sql=f"`{each.column}`") for each in attributes]
        return replace(joined, operator=self.operators.query(operator, (*select, *carried(joined))))

    def _kept(self, side: Relation, letter: str, keys: list[exp.Expr]) -> UpdatingInput:
        """The columns of a side, and what must be equal as columns of its own."""
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

    def condition(
        self, node: exp.Join, left: Relation, right: Relation, both: Relation
    ) -> exp.Expr:
        """The bound condition of a join, over columns whose names differ."""
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
        for each in on.find_all(PlanningTime):
            message = f"{each.name}() is not supported in the condition of a join"
            raise self._error(each, message, "compute it as a column in a subquery of FROM")
        return self.expressions.bound(on, both)

    def equality(self, part: exp.Expr, left: Relation, right: Relation) -> Iterator[Equality]:
        """What a part of a bound condition says to be equal, if that is all it says."""
        part = part.unnest()
        if not isinstance(part, exp.EQ | exp.NullSafeEQ):
            return
        null_safe = isinstance(part, exp.NullSafeEQ)
        one, other = part.this, part.expression
        if isinstance(one, exp.Tuple) and isinstance(other, exp.Tuple):
            # Rows that are equal as a whole are so part by part, whatever the parts are called.
            for pair in zip(one.expressions, other.expressions, strict=False):
                yield from self.equality(type(part)(this=pair[0], expression=pair[1]), left, right)
        elif _is_over(one, left) and _is_over(other, right):
            yield Equality(one, other, null_safe)
        elif _is_over(one, right) and _is_over(other, left):
            yield Equality(other, one, null_safe)

    def _keep_micros(self, condition: exp.Expr, left: Relation, right: Relation) -> int | None:
        """How long a row must be kept so that all that it can meet, and all that these can meet,
        have come. None: the condition does not bound how far apart event times are.
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
        """The c of `left time = right time + c`, if `one` is of the left and `other` of the
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
    """A column under a name that no column of the other side has."""

    original: str = ""


@dataclass(frozen=True)
class _Shown:
    """A column of a join, and its value over both sides."""

    attribute: Attribute
    sql: str


def _shown(left: Relation, right: Relation, kind: str, using: list[str]) -> tuple[_Shown, ...]:
    """The columns that a join gives. Those of USING come first, and once: by the side that always
    has them, or by either.
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
            # It is neither table's own any more where a side may be missing, and tells what its
            # value does.
            tells = kind == "RIGHT" or one.window is other.window
            one = replace(
                one,
                table=None,
                type=other.type if kind == "RIGHT" else one.type,
                window=other.window if tells else None,
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
    """A column of a side that may be missing: rows without it are of any window."""
    part = attribute.window or attribute.outer_window
    return replace(attribute, window=None, outer_window=part)


def _either(left: Relation, right: Relation, kind: str) -> tuple[Told, ...]:
    """What coalesce() tells of the windows of a join's rows."""
    if kind in ("LEFT", "LEFT SEMI", "LEFT ANTI"):
        return left.either
    if kind == "RIGHT":
        return right.either
    if kind == "INNER":
        return (*left.either, *right.either)
    return tuple(
        (texts, part)
        for one, part in left.telling()
        for other, same in right.telling()
        if same is part
        for texts in ((*one, *other), (*other, *one))
    )


def apart(relation: Relation, letter: str) -> Relation:
    """The same relation, with columns that cannot be taken for those of the other side."""
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
    """A side's columns under their new names, and its event time."""
    columns = [f"{original(each)} AS `{each.column}`" for each in side.attributes]
    return ", ".join([*columns, f"`{EVENT_TIME}` AS `{letter}_time`"])


def unrenamed(node: exp.Expr, side: Relation) -> str:
    """An expression over the new names, as one over the columns of the operator itself."""
    originals = {each.column: original(each) for each in side.attributes}

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


def is_same_window(equality: Equality, left: Relation, right: Relation) -> bool:
    """Whether two rows that fit this belong to the same window."""
    one = left.told(to_spark(equality.left.unnest()), or_null=True)
    # Were both missing, null would be null whatever windows the two rows are of.
    other = right.told(to_spark(equality.right.unnest()), or_null=not equality.null_safe)
    if one is None or one is not other:
        return False
    if one is WindowPart.START and left.width_micros != right.width_micros:
        return False
    probe = Attribute("", "", window=one)
    return left.tells_window(probe) and right.tells_window(probe)


def _comparisons(
    part: exp.Expr,
) -> Iterator[tuple[type[exp.Expr], exp.Expr, exp.Expr]]:
    """The comparisons of two values that a condition is made of."""
    part = part.unnest()
    if isinstance(part, exp.Between):
        yield exp.GTE, part.this, part.args["low"]
        yield exp.LTE, part.this, part.args["high"]
    elif isinstance(part, (*_AT_LEAST, *_AT_MOST)):
        yield type(part), part.this, part.expression


def time_term(node: exp.Expr, side: Relation) -> int | None:
    """What is added to event time in an expression that is a side's event time and an interval."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub):
        time, offset = time_term(node.this, side), offset_micros(node.expression)
        if time is None or offset is None:
            return None
        return time + offset if isinstance(node, exp.Add) else time - offset
    times = {column_sql(each) for each in side.attributes if each.is_event_time}
    return 0 if side.has_event_time and to_spark(node) in times else None


def names_in(node: exp.Expr) -> frozenset[str]:
    """All that may name a column in a query or a part of one, in lower case: `a` or `t.a`."""
    names: set[str] = set()
    for each in node.walk(prune=_has_names_of_its_own):
        if isinstance(each, exp.Column):
            first, *rest = (part.name.lower() for part in each.parts)
            # The second is a column of a table, or a field of a column.
            names |= {first, f"{first}.{rest[0]}"} if rest else {first}
        elif isinstance(each, exp.Identifier) and not isinstance(each.parent, _NAMING):
            names.add(each.name.lower())
    return frozenset(names)


def _has_names_of_its_own(node: exp.Expr) -> bool:
    """A query in FROM or WITH speaks of its own input; one in a condition, also of this."""
    inputs = exp.Subquery | WindowTable
    is_input = isinstance(node, inputs) and isinstance(node.parent, exp.From | exp.Join)
    return is_input or isinstance(node, exp.With)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts that must all be true."""
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node
