"""GROUPING SETS, ROLLUP and CUBE: one aggregate, over every row once for each set.

Rows are multiplied before the aggregate, and a hidden column of each copy says which set it is for.
That column is one more key; a key that a set leaves out is null in the copies for that set. So the
nulls of the sets never mix with nulls of the rows, and aggregates see the columns as they are.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.graph.values import Expression
from resurgence.sql.catalog.relation import Relation, column_sql
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import carried
from resurgence.sql.syntax.parse import Script

SET = "__grouping_set"
"""The hidden column: a bit for every grouped column that the set leaves out, the first column being
the highest; and above these bits, a number that tells sets apart which are the same.
"""

MOST_COLUMNS = 50
"""So many bits fit, with room for the number above them."""
_MOST_SETS = 256
_GROUPERS = (exp.GroupingSets, exp.Rollup, exp.Cube)
_BESIDE = ("grouping_sets", "rollup", "cube")
"""Where the parser puts sets that stand behind the list: GROUP BY a, b WITH ROLLUP."""

Items = tuple[exp.Expr, ...]


@dataclass(frozen=True)
class GroupingSets:
    """What is grouped by, as SQL in the order of the text, and the sets of it."""

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
        """What stands in the hidden column for a column that is left out."""
        return 1 << (len(self.columns) - 1 - self.columns.index(column))

    def nulled(self, key: Expression) -> Expression:
        """The key, null in the copies for sets that leave it out."""
        if all(key.sql in each for each in self.sets):
            return key
        sql = f"IF((`{SET}` & {self.bit(key.sql)}L) = 0, {key.sql}, NULL)"
        return key.model_copy(update={"sql": sql})

    def multiplied(self, source: Relation, operators: Operators) -> Relation:
        """Every row once for each set."""
        kept = (Expression(name=each.column, sql=column_sql(each)) for each in source.attributes)
        numbers = ", ".join(f"{each}L" for each in self.numbers)
        copies = Expression(name=SET, sql=f"explode(array({numbers}))")
        operator = operators.query(source.operator, (*kept, copies, *carried(source)))
        return replace(source, operator=operator)

    def told(self, columns: list[str]) -> exp.Expr:
        """Which of these columns are left out, over the aggregate's output: a bit for each, the
        first one being the highest.
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
    """Whether a GROUP BY has sets."""
    return any(group.args.get(each) for each in _BESIDE) or any(
        isinstance(each, _GROUPERS) for each in group.expressions
    )


def written_items(group: exp.Group) -> list[exp.Expr]:
    """All that a GROUP BY names, in the order of the text."""
    beside = [each for key in _BESIDE for each in group.args.get(key) or []]
    return [item for each in (*group.expressions, *beside) for item in _items(each)]


def written_sets(group: exp.Group, script: Script) -> list[Items]:
    """The sets of a GROUP BY with sets: each combination of one set from each of its parts."""
    beside = [each for key in _BESIDE for each in group.args.get(key) or []]
    if not beside:
        parts = [_sets(each, each.expressions, script) for each in group.expressions]
        return _combined(parts, group, script)
    if len(beside) > 1 or any(isinstance(each, _GROUPERS) for each in group.expressions):
        raise script.error(
            group,
            "sets in the list of GROUP BY and behind it do not go together",
            "write them all in the list, as in GROUP BY a, ROLLUP (b, c)",
        )
    (behind,) = beside
    # WITH ROLLUP and WITH CUBE are of the whole list.
    return _sets(behind, behind.expressions or group.expressions, script)


def _sets(node: exp.Expr, listed: list[exp.Expr], script: Script) -> list[Items]:
    """The sets that one part of GROUP BY makes of what it lists."""
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
        if len(combined) * len(sets) > _MOST_SETS:
            raise script.error(
                place,
                f"GROUP BY makes more than {_MOST_SETS} sets, and takes every row once for each",
                "name the sets that are needed with GROUPING SETS",
            )
        combined = [(*one, *other) for one, other in itertools.product(combined, sets)]
    return combined


def _set(node: exp.Expr) -> Items:
    """One set, or one step of ROLLUP and CUBE: `(a, b)`, `(a)`, `()` or `a`."""
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def _items(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, _GROUPERS):
        return [
            item
            for each in node.expressions
            for item in (_items(each) if isinstance(each, _GROUPERS) else _set(each))
        ]
    return [node]
