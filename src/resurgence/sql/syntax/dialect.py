"""The grammar: Spark's, with identifiers in double quotes, connector options, watermarks, computed
columns and Postgres' arrows for JSON.

Function calls remain as the user wrote them (name and arguments) instead of becoming the parser's own
function classes, because those rewrite calls and the result must be Spark's. Functions with their own
syntax (`CAST(x AS t)`, `EXTRACT(hour FROM x)`, ...) use the parsers of the base class.

Every operand, clause, type and statement gets `meta["start"]`, its offset in the text, so that an
error can report its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from resurgence.sql.syntax.flink_syntax import FlinkSyntax

N = TypeVar("N")
Modifier = Callable[[Any], tuple[str, Any]]

_INHERITED_FUNCTION_PARSERS = (
    "CAST",
    "TRY_CAST",
    "EXTRACT",
    "POSITION",
    "SUBSTRING",
    "SUBSTR",
    "TRIM",
    "OVERLAY",
)
_INHERITED_CONSTRAINTS = ("NOT", "NULL", "PRIMARY KEY", "COMMENT")
_REFUSED_CONSTRAINTS = ("FOREIGN KEY", "REFERENCES", "UNIQUE", "CHECK", "DEFAULT")
_UNIT_FUNCTIONS = frozenset(
    {"dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff"}
)
_UNITS = frozenset(
    {
        "microsecond",
        "millisecond",
        "second",
        "minute",
        "hour",
        "day",
        "dayofyear",
        "week",
        "month",
        "quarter",
        "year",
    }
)
_ONE_UNIT = re.compile(r"\s*-?\d+(?:\.\d+)?\s*[a-z]+\s*", re.IGNORECASE)
"""An interval that the base class reads completely."""
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
_NEVER_FIRST = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER}


def _marked(node: N, start: int) -> N:
    if isinstance(node, exp.Expr) and "start" not in node.meta:
        node.meta["start"] = start
    return node


def _marking(parse: Modifier) -> Modifier:
    def run(parser: Any) -> tuple[str, Any]:
        start = parser._curr.start
        key, node = parse(parser)
        return key, _marked(node, start)

    return run


def _read_unit(call: exp.Anonymous) -> None:
    """Turn the unit in `timestampdiff(HOUR, a, b)` from a column into a word."""
    if call.name.lower() in _UNIT_FUNCTIONS and len(call.expressions) == 3:
        unit = call.expressions[0]
        if isinstance(unit, exp.Column) and not unit.table and unit.name.lower() in _UNITS:
            unit.replace(exp.var(unit.name.upper()))


class MetadataColumnConstraint(exp.Expression, exp.ColumnConstraintKind):
    """`METADATA FROM 'key'`: the connector provides the column beside the record."""


class PlanningTime(exp.Expression, exp.Func):
    """The planning time of the epoch that evaluates it; `this` is the function that returns it."""


class ResurgenceParser(FlinkSyntax):
    """Spark's parser with the differences that the module docstring lists."""

    FUNC_TOKENS: ClassVar = SparkParser.FUNC_TOKENS | {TokenType.SESSION}
    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: SparkParser.FUNCTION_PARSERS[name] for name in _INHERITED_FUNCTION_PARSERS},
        **FlinkSyntax.FLINK_FUNCTION_PARSERS,
    }
    NO_PAREN_FUNCTIONS: ClassVar = {
        **SparkParser.NO_PAREN_FUNCTIONS,
        TokenType.LOCALTIMESTAMP: exp.Localtimestamp,
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {
        name: parse
        for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name in ("CASE", "IF")
    }
    QUERY_MODIFIER_PARSERS: ClassVar = {
        token: _marking(parse) for token, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
    }
    CONSTRAINT_PARSERS: ClassVar = {
        **{name: SparkParser.CONSTRAINT_PARSERS[name] for name in _INHERITED_CONSTRAINTS},
        **{name: lambda self: self._refuse_constraint() for name in _REFUSED_CONSTRAINTS},
        "GENERATED": lambda self: self._parse_generated(),
        "METADATA": lambda self: self._parse_metadata(),
        "WATERMARK": lambda self: self._parse_watermark(),
    }
    COLUMN_OPERATORS: ClassVar = {
        **SparkParser.COLUMN_OPERATORS,
        # The base class reads a key as a path, so that a dot in it would split it.
        TokenType.ARROW: lambda _self, this, key: exp.JSONExtract(this=this, expression=key),
        TokenType.DARROW: lambda _self, this, key: exp.JSONExtractScalar(this=this, expression=key),
    }
    SCHEMA_UNNAMED_CONSTRAINTS: ClassVar = {
        "PRIMARY KEY",
        "FOREIGN KEY",
        "UNIQUE",
        "CHECK",
        "WATERMARK",
    }

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        # `window` is a name, except in WINDOW name AS (...).
        for word, name, *rest in zip(*(raw_tokens[place:] for place in range(4)), strict=False):
            if (
                word.text.upper() == "WINDOW"
                and {word.token_type, name.token_type} <= _NAMES
                and [each.token_type for each in rest] == [TokenType.ALIAS, TokenType.L_PAREN]
            ):
                word.token_type = TokenType.WINDOW
        return super().parse(raw_tokens, sql)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        at_end = not (token or self._curr)
        token = token or self._curr or self._prev
        start = token.end + 1 if at_end else token.start
        found = "" if at_end else self.sql[token.start : token.end + 1]
        error = ParseError(message, [{"description": message, "start": start, "found": found}])
        if self.error_level == ErrorLevel.IMMEDIATE:
            raise error
        self.errors.append(error)

    def expression(
        self, instance: Any, token: Token | None = None, comments: list[str] | None = None
    ) -> Any:
        if isinstance(instance, exp.Distinct) and not instance.args.get("expressions"):
            _marked(instance, self._prev.start)
        if isinstance(instance, exp.Anonymous):
            _read_unit(instance)
        return super().expression(instance, token, comments)

    def _parse_statement(self) -> exp.Expr | None:
        start = self._curr.start
        if self._index == 0 and self._curr.token_type in _NEVER_FIRST:
            self.raise_error(f"'{self._curr.text}' does not begin a statement")
        return _marked(super()._parse_statement(), start)

    def _parse_unary(self) -> exp.Expr | None:
        start = self._curr.start
        return _marked(super()._parse_unary(), start)

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        start = self._curr.start
        return _marked(super()._parse_lambda(alias), start)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # The base class reads `array(1, 2)[0]` as an array of one zero.
        if isinstance(this, exp.Anonymous) and self._is_next(TokenType.L_BRACKET):
            this = exp.Paren(this=this)
        return super()._parse_bracket(this)

    def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
        # INTERVAL '1' HOUR '30' MINUTE is parsed as a bare sum, which a minus before it would split.
        text = self._next.text if self._next and self._next.token_type == TokenType.STRING else ""
        node = super()._parse_interval(*args, **kwargs)
        # The base class reads '1 day 02:03:04' as one day, and '- 5 s' as five seconds.
        has_unit = re.search("[a-z]", text, re.IGNORECASE)
        if isinstance(node, exp.Interval) and has_unit and not _ONE_UNIT.fullmatch(text):
            node = exp.Interval(this=exp.Literal.string(text))
        return exp.Paren(this=node) if isinstance(node, exp.Add) else node

    def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self._curr.start
        return _marked(super()._parse_types(*args, **kwargs), start)

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self._curr.start
        return _marked(super()._parse_select(*args, **kwargs), start)

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self._curr.start
        return _marked(super()._parse_table(*args, **kwargs), start)

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        start = self._curr.start
        return _marked(super()._parse_join(*args, **kwargs), start)

    def _parse_lateral(self) -> exp.Lateral | None:
        start = self._curr.start
        return _marked(super()._parse_lateral(), start)

    def parse_set_operation(self, *args: Any, **kwargs: Any) -> exp.SetOperation | None:
        start = self._curr.start
        node = super().parse_set_operation(*args, **kwargs)
        if node:
            node.meta["start"] = start
        return node

    def _is_next(self, token: TokenType) -> bool:
        return bool(self._match(token, advance=False))

    def _required(self, node: exp.Expr | None) -> exp.Expr | None:
        if node is None:
            self.raise_error("Unexpected token")
        return node

    def _parse_expressions(self) -> list[exp.Expr]:
        # The base class allows a comma before FROM; Spark does not.
        def item() -> exp.Expr | None:
            after_comma = self._prev.token_type == TokenType.COMMA
            node = self._parse_expression()
            return self._required(node) if after_comma else node

        return self._parse_csv(item)

    def _parse_field_def(self) -> exp.Expr | None:
        # A trailing comma is allowed after the last column.
        if self._prev.token_type == TokenType.COMMA and self._is_next(TokenType.R_PAREN):
            return None
        return self._parse_column_def(self._required(self._parse_id_var()))

    def _parse_wrapped_properties(self) -> list[exp.Expr | list[exp.Expr]]:
        return self._parse_wrapped_csv(self._parse_option)

    def _parse_option(self) -> exp.Expr | None:
        """`key = value`, the key in quotes or as dotted words."""
        start = self._curr.start
        if not self._advance_any():
            return None
        key = self._prev.text
        while self._match(TokenType.DOT):
            self._advance_any()
            key = f"{key}.{self._prev.text}"
        if not self._match(TokenType.EQ):
            self.raise_error("Expecting =")
        value_start = self._curr.start if self._curr else start
        value = self._parse_unary()
        option = exp.Property(this=exp.Literal.string(key), value=value)
        option.meta["value_span"] = (value_start, self._prev.end + 1)
        return _marked(option, start)

    def _parse_watermark(self) -> exp.Expr | None:
        start = self._prev.start
        if not self._match(TokenType.FOR):
            return None
        column = self._parse_id_var()
        if self._match(TokenType.ALIAS):
            expression = self._required(self._parse_disjunction())
        else:
            # The class requires an expression; without one the watermark is the column itself.
            expression = exp.Column(this=column.copy()) if column else None
        constraint = exp.WatermarkColumnConstraint(this=column, expression=expression)
        self.expression(constraint)
        return _marked(constraint, start)

    def _parse_generated(self) -> exp.Expr:
        start = self._prev.start
        if not (self._match_text_seq("ALWAYS") and self._match(TokenType.ALIAS)):
            self.raise_error("Expecting ALWAYS AS")
        expression = self._required(self._parse_wrapped(self._parse_disjunction))
        self._match_texts(("STORED", "VIRTUAL"))
        return _marked(exp.ComputedColumnConstraint(this=expression), start)

    def _parse_metadata(self) -> exp.Expr:
        start = self._prev.start
        if not self._match(TokenType.FROM):
            self.raise_error("Expecting FROM")
        key = self._required(self._parse_string())
        return _marked(MetadataColumnConstraint(this=key), start)

    def _refuse_constraint(self) -> None:
        self.raise_error(f"{self._prev.text.upper()} is not supported yet", self._prev)

    def _parse_as_command(self, start: Token) -> exp.Command:
        self.raise_error("Unexpected token")
        return exp.Command(this=start.text)

    def _warn_unsupported(self) -> None:
        """Do not warn: a statement that is not parsed is refused later, with its position."""


class Resurgence(Spark):
    """Streaming SQL. Expressions have Spark's semantics."""

    SUPPORTS_USER_DEFINED_TYPES = True

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ['"', "`"]
        STRING_ESCAPES: ClassVar = ["'", "\\"]
        RAW_STRINGS: ClassVar = [("r'", "'"), ("R'", "'")]
        KEYWORDS: ClassVar = {
            **{
                word: token
                for word, token in Spark.Tokenizer.KEYWORDS.items()
                # The base class reads everything after EXECUTE as one text.
                if word not in ("WINDOW", "EXECUTE")
            },
            # The number is in bytes, as in Postgres; the base class reads it as bits.
            "INT8": TokenType.BIGINT,
            # Parsed so that they can be refused by name.
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
            "MATCH_CONDITION": TokenType.MATCH_CONDITION,
        }

    Parser = ResurgenceParser


def to_spark(node: exp.Expr) -> str:
    """Return the text for Spark: names in backquotes, functions as written, no comments."""
    return node.sql(
        "spark",
        identify=True,
        comments=False,
        normalize_functions=False,
        unsupported_level=ErrorLevel.RAISE,
    )
