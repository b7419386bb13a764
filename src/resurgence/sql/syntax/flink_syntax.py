"""Flink syntax that Spark's parser does not accept.

Syntax with an equivalent is replaced by it: `FLOOR(at TO HOUR)` becomes date_trunc(), and
`EXECUTE STATEMENT SET BEGIN ... END` the statements inside it. Windowing table functions become a
`WindowTable`, which `window_tables` compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

WINDOW_PARAMETERS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
"""The windowing table functions, with the names of their arguments in order."""
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_SET_OPENINGS = (("EXECUTE", "STATEMENT", "SET", "BEGIN"), ("STATEMENT", "SET", "BEGIN"))
_SET_EXAMPLE = (
    "Write it as in EXECUTE STATEMENT SET BEGIN INSERT INTO a ...; INSERT INTO b ...; END."
)


class WindowTable(exp.Expression):
    """`TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), ...))`: a function's name and its arguments, each a
    Kwarg. Surplus arguments have no name.
    """

    arg_types: ClassVar = {"this": True, "expressions": True, "alias": False}


class PartitionedTable(exp.Expression):
    """`TABLE t PARTITION BY key` as an argument of a table function."""

    arg_types: ClassVar = {"this": True, "partition_by": False}


class FlinkSyntax(SparkParser):
    """Spark's parser with Flink's additions."""

    FLINK_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CEIL": lambda self: self._parse_rounded("ceil"),
        "FLOOR": lambda self: self._parse_rounded("floor"),
        "JSON_VALUE": lambda self: self._parse_json_value(json_path=False),
    }

    def refuse(self, message: str, hint: str, token: Token) -> None:
        """Raise an error that is reported unchanged."""
        detail = {"description": message, "start": token.start, "found": token.text, "hint": hint}
        raise ParseError(message, [detail])

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        return super().parse(self._without_statement_sets(raw_tokens), sql)

    def _without_statement_sets(self, tokens: list[Token]) -> list[Token]:
        """Return the tokens without the words around the statements of a set: all statements of a
        file run as one job.
        """
        remaining: list[Token] = []
        opening: Token | None = None
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if not remaining or remaining[-1].token_type == TokenType.SEMICOLON:
                words = [each.text.upper() for each in tokens[index : index + 4]]
                size = next(
                    (len(each) for each in _SET_OPENINGS if words[: len(each)] == [*each]), 0
                )
                if size and opening is not None:
                    self.refuse("a statement set cannot contain another one", _SET_EXAMPLE, token)
                if size:
                    opening = token
                    index += size
                    continue
                if opening is not None and words[0] == "END" and words[1:2] in ([], [";"]):
                    opening = None
                    index += 1
                    continue
                if opening is not None and words[0] not in ("INSERT", ";"):
                    message = f"a statement set can contain only INSERT statements, not {words[0]}"
                    self.refuse(message, "Move it before EXECUTE STATEMENT SET.", token)
            remaining.append(token)
            index += 1
        if opening is not None:
            self.refuse("this statement set is never closed", _SET_EXAMPLE, opening)
        return remaining

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        return self._parse_window_table() or super()._parse_table(*args, **kwargs)

    def _parse_window_table(self) -> WindowTable | None:
        """Parse a windowing table function, with or without TABLE(...) around it."""
        index = self._index
        is_wrapped = bool(self._match_pair(TokenType.TABLE, TokenType.L_PAREN))
        function = self._curr.text.upper() if self._curr else ""
        is_call = self._next and self._next.token_type == TokenType.L_PAREN
        if function not in WINDOW_PARAMETERS or not is_call:
            self._retreat(index)
            return None
        self._advance()
        positional = iter(WINDOW_PARAMETERS[function])
        arguments = self._parse_wrapped_csv(lambda: self._parse_window_argument(positional))
        if is_wrapped:
            self._match_r_paren()
        alias = self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS)
        return WindowTable(this=function, expressions=arguments, alias=alias)

    def _parse_window_argument(self, positional: Iterator[str]) -> exp.Kwarg:
        start = self._curr.start
        if self._next and self._next.token_type == TokenType.FARROW:
            name = self._curr.text.upper()
            self._advance(2)
        else:
            name = next(positional, "")
        value: exp.Expr | None
        if self._match(TokenType.TABLE):
            value = PartitionedTable(this=self._parse_table_parts())
            value.this.meta["start"] = self._prev.start
            if self._match(TokenType.PARTITION_BY):
                is_list = self._match(TokenType.L_PAREN, advance=False)
                keys = (
                    self._parse_wrapped_csv(self._parse_column)
                    if is_list
                    else [self._parse_column()]
                )
                value.set("partition_by", keys)
        else:
            value = self._parse_disjunction()
        argument = exp.Kwarg(this=exp.to_identifier(name), expression=value)
        argument.meta["start"] = start
        return argument

    def _parse_column_def(
        self, this: exp.Expr | None, computed_column: bool = True
    ) -> exp.Expr | None:
        if not computed_column or not self._match(TokenType.ALIAS):
            return super()._parse_column_def(this, computed_column)
        expression = self._parse_disjunction()
        # The base class reads `x NOT NULL` as Postgres' `x IS NOT NULL`; here it is a constraint.
        words = [each.text.upper() for each in self._tokens[self._index - 3 : self._index]]
        is_constraint = words[1:] == ["NOT", "NULL"] and words[0] != "IS"
        if is_constraint and isinstance(expression, exp.Not):
            expression = expression.this.this
        self._match_texts(("STORED", "VIRTUAL"))
        not_null = is_constraint or bool(self._match_pair(TokenType.NOT, TokenType.NULL))
        computed = exp.ComputedColumnConstraint(this=expression, not_null=not_null)
        constraints: list[exp.Expr] = [exp.ColumnConstraint(kind=computed)]
        while constraint := self._parse_column_constraint():
            constraints.append(constraint)
        return self.expression(exp.ColumnDef(this=this, constraints=constraints))

    def _parse_rounded(self, function: str) -> exp.Expr:
        """Parse FLOOR(at TO HOUR) and CEIL(at TO HOUR); without TO they are Spark's."""
        arguments = self._parse_csv(lambda: self._parse_lambda())
        if len(arguments) != 1 or not self._match_text_seq("TO"):
            return exp.Anonymous(this=function, expressions=arguments)
        value, unit = arguments[0], self._curr.text.upper()
        if unit not in _UNITS:
            message = f"{function.upper()} requires a unit of time after TO, not '{unit}'"
            self.refuse(message, f"Use one of {', '.join(_UNITS)}.", self._curr)
        self._advance()
        if function == "ceil":
            # Less a microsecond, so that a value at the beginning of a unit remains in that unit.
            months = {"QUARTER": ("3", "MONTH")}
            count, step = months.get(unit, ("1", unit))
            later = exp.Add(this=_operand(value), expression=_interval(count, step))
            value = exp.Sub(this=later, expression=_interval("1", "MICROSECOND"))
        return exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(unit), value])


def _interval(count: str, unit: str) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(count), unit=exp.var(unit))


def _operand(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Binary) else node
