"""GROUPING SETS, ROLLUP and CUBE: one aggregate, over one copy of every row per grouping set.

Rows are multiplied before the aggregate, and a hidden column of each copy identifies its set. That
column is an additional key; a key that a set omits is null in the copies for that set. So the nulls
of the sets never mix with nulls of the rows, and aggregates read the columns unchanged.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.graph.values import Expression
from resurgence.sql.catalog.relation import Relation, column_sql
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import hidden_columns
from resurgence.sql.syntax.parse import Script

SET = "__grouping_set"
"""The hidden column: one bit per grouped column, set if the set omits it, the first column in the
highest bit; and above these bits, a number that distinguishes equal sets.
"""

MAX_COLUMNS = 50
"""The number of bits that fit, with room for the number above them."""
_MAX_SETS = 256
_GROUPERS = (exp.GroupingSets, exp.Rollup, exp.Cube)
_TRAILING = ("grouping_sets", "rollup", "cube")
"""Where the parser puts sets that follow the list, as in GROUP BY a, b WITH ROLLUP."""

Items = tuple[exp.Expr, ...]


@dataclass(frozen=True)
class GroupingSets:
    """The grouped expressions as SQL, in the order of the text, and the sets of them."""

    columns: tuple[str, ...]
    sets: tuple[frozenset[str], ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The value of the hidden column for each set."""
        seen: Counter[int] = Counter()
        numbers = []
        for each in self.sets:
            number = sum(self.bit(column) for column in self.columns if column not in each)
            numbers.append(number | seen[number] << len(self.columns))
            seen[number] += 1
        return tuple(numbers)

    def bit(self, column: str) -> int:
        """Return the bit of the hidden column for a column that a set omits."""
        return 1 << (len(self.columns) - 1 - self.columns.index(column))

    def nulled(self, key: Expression) -> Expression:
        """Return the key, null in the copies for sets that omit it."""
        if all(key.sql in each for each in self.sets):
            return key
        sql = f"IF((`{SET}` & {self.bit(key.sql)}L) = 0, {key.sql}, NULL)"
        return key.model_copy(update={"sql": sql})

    def multiplied(self, source: Relation, operators: Operators) -> Relation:
        """Return one copy of every row per set."""
        columns = (Expression(name=each.column, sql=column_sql(each)) for each in source.attributes)
        numbers = ", ".join(f"{each}L" for each in self.numbers)
        copies = Expression(name=SET, sql=f"explode(array({numbers}))")
        operator = operators.query(source.operator, (*columns, copies, *hidden_columns(source)))
        return replace(source, operator=operator)

    def omitted_bits(self, columns: list[str]) -> exp.Expr:
        """Return which of these columns are omitted, over the aggregate's output: one bit each, the
        first column in the highest.
        """
        hidden = exp.Column(this=exp.to_identifier(SET, quoted=True))
        if columns == list(self.columns):
            mask = exp.Literal.number((1 << len(columns)) - 1)
            return exp.Paren(this=exp.BitwiseAnd(this=hidden, expression=mask))
        bits: list[exp.Expr] = []
        for place, column in enumerate(reversed(columns)):
            shift = self.bit(column).bit_length() - 1
            call = exp.Anonymous(
                this="shiftright", expressions=[hidden.copy(), exp.Literal.number(shift)]
            )
            bit = exp.Paren(this=exp.BitwiseAnd(this=call, expression=exp.Literal.number(1)))
            bits.append(exp.Mul(this=bit, expression=exp.Literal.number(1 << place)))
        total = bits[0]
        for each in bits[1:]:
            total = exp.Add(this=total, expression=each)
        return exp.Paren(this=total)


def has_sets(group: exp.Group) -> bool:
    """Return whether a GROUP BY has grouping sets."""
    return any(group.args.get(each) for each in _TRAILING) or any(
        isinstance(each, _GROUPERS) for each in group.expressions
    )


def written_items(group: exp.Group) -> list[exp.Expr]:
    """Return all items of a GROUP BY, in the order of the text."""
    trailing = [each for key in _TRAILING for each in group.args.get(key) or []]
    return [item for each in (*group.expressions, *trailing) for item in _items(each)]


def written_sets(group: exp.Group, script: Script) -> list[Items]:
    """Return the sets of a GROUP BY: each combination of one set from each of its parts."""
    trailing = [each for key in _TRAILING for each in group.args.get(key) or []]
    if not trailing:
        parts = [_sets(each, each.expressions, script) for each in group.expressions]
        return _combined(parts, group, script)
    if len(trailing) > 1 or any(isinstance(each, _GROUPERS) for each in group.expressions):
        raise script.error(
            group,
            "grouping sets in the list of GROUP BY cannot be combined with sets after the list",
            "Write them all in the list, as in GROUP BY a, ROLLUP (b, c).",
        )
    (last,) = trailing
    # WITH ROLLUP and WITH CUBE apply to the whole list.
    return _sets(last, last.expressions or group.expressions, script)


def _sets(node: exp.Expr, listed: list[exp.Expr], script: Script) -> list[Items]:
    """Return the sets that one part of GROUP BY forms from its list."""
    match node:
        case exp.GroupingSets():
            nested = [
                _sets(each, each.expressions, script)
                if isinstance(each, _GROUPERS)
                else [_set(each)]
                for each in listed
            ]
            return [each for sets in nested for each in sets]
        case exp.Rollup():
            steps = [_set(each) for each in listed]
            return [tuple(itertools.chain(*steps[:count])) for count in range(len(steps), -1, -1)]
        case exp.Cube():
            return _combined([[_set(each), ()] for each in listed], node, script)
        case _:
            return [(node,)]


def _combined(parts: list[list[Items]], place: exp.Expr, script: Script) -> list[Items]:
    combined: list[Items] = [()]
    for sets in parts:
        if len(combined) * len(sets) > _MAX_SETS:
            raise script.error(
                place,
                f"GROUP BY has more than {_MAX_SETS} grouping sets",
                "Name only the sets that you need with GROUPING SETS: every row is copied per set.",
            )
        combined = [(*one, *other) for one, other in itertools.product(combined, sets)]
    return combined


def _set(node: exp.Expr) -> Items:
    """Return one set, or one step of ROLLUP and CUBE: `(a, b)`, `(a)`, `()` or `a`."""
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def _items(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, _GROUPERS):
        return [
            item
            for each in node.expressions
            for item in (_items(each) if isinstance(each, _GROUPERS) else _set(each))
        ]
    return [node]
