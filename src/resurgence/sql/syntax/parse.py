"""Parsing of text to statements, and the position of a node in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.values import Position
from resurgence.secrets import is_secret
from resurgence.sql.syntax.dialect import Resurgence

STATEMENTS = ("CREATE", "INSERT", "SELECT", "SET", "WITH")

_LEXEME = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | '(?:\\.|''|[^'\\])*' | "(?:""|[^"])*" | `(?:``|[^`])*` | (?!/\*)[^'"`]""",
    re.DOTALL | re.VERBOSE,
)
_OPTION_NAME = re.compile(r"""[(,]\s*["'`]?([\w.-]+)["'`]?\s*=[^(,]*\Z""")
"""The option in whose value a text ends."""
_TABLE_OPTIONS = re.compile(r"/\*\+\s*OPTIONS\b", re.IGNORECASE)
"""Flink: FROM t /*+ OPTIONS('key' = 'value') */. The parser reads it as a comment."""
_BYTE_ORDER_MARK = "\ufeff"
_MOST_LEVELS = 500
"""Deepest nesting of an expression: Spark's parser and ours recurse per level and run out of stack."""
_TOO_DEEP = f"an expression is nested more than {_MOST_LEVELS} levels deep"
_TOO_DEEP_HINT = "Use IN with a list, or a lookup table: each operator of a long chain is a level."
_KEYWORD_HINT = "Check the text just before. Put a name that is an SQL keyword in double quotes."


@dataclass(frozen=True)
class Script:
    """The user's text with its statements in order."""

    text: str
    statements: tuple[exp.Expr, ...]

    def offset(self, node: exp.Expr) -> int:
        """Return the offset in the text at which the node begins."""
        own: int | None = node.meta.get("start")
        if own is not None:
            return own
        # An operator begins at its leftmost operand, a node without an offset where its parent does.
        inner: list[int] = [each.meta["start"] for each in node.walk() if "start" in each.meta]
        if inner:
            return min(inner)
        return self.offset(node.parent) if node.parent else 0

    def position(self, node: exp.Expr) -> Position:
        """Return the position at which the node begins."""
        return _position(self.text, self.offset(node))

    def error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        """Return an error about the node, at its position."""
        return _error(self.text, self.offset(node), message, hint)


def parse(text: str) -> Script:
    """Parse the text; raise SqlError at the first place that cannot be parsed. A byte order mark at
    its start is skipped.
    """
    # A space in its place preserves all offsets.
    readable = f" {text[1:]}" if text.startswith(_BYTE_ORDER_MARK) else text
    try:
        statements = Resurgence().parse(readable, error_level=ErrorLevel.IMMEDIATE)
    except TokenError as error:
        raise _unclosed(text) from error
    except ParseError as error:
        raise _syntax_error(text, error) from error
    except RecursionError as error:
        raise _error(text, 0, _TOO_DEEP, _TOO_DEEP_HINT) from error
    script = Script(
        text, tuple(each for each in statements if each and not isinstance(each, exp.Semicolon))
    )
    _refuse_table_options(text)
    for statement in script.statements:
        _require_shallow(script, statement)
        for cast in list(statement.find_all(exp.Cast)):
            # Postgres: '5 seconds'::INTERVAL
            if cast.to.this == exp.DType.INTERVAL and cast.this.is_string:
                _replace(cast, exp.Interval(this=cast.this.copy()))
        for name in statement.find_all(exp.Identifier):
            if "`" in name.name:
                raise script.error(
                    name, "a name cannot contain a backquote", "Choose another name."
                )
    return script


def _refuse_table_options(text: str) -> None:
    if not _TABLE_OPTIONS.search(text):
        return
    for lexeme in _LEXEME.finditer(text):
        if _TABLE_OPTIONS.match(lexeme[0]):
            hint = "Declare another table with these options in WITH (...)."
            raise _error(text, lexeme.start(), "the hint OPTIONS is not supported", hint)


def _require_shallow(script: Script, statement: exp.Expr) -> None:
    waiting = [(statement, 1)]
    while waiting:
        node, level = waiting.pop()
        if level > _MOST_LEVELS:
            raise script.error(node, _TOO_DEEP, _TOO_DEEP_HINT)
        waiting += [(each, level + 1) for each in node.iter_expressions()]


def _replace(node: exp.Expr, by: exp.Expr) -> None:
    by.meta.update({key: value for key, value in node.meta.items() if key == "start"})
    node.replace(by)


def _position(text: str, offset: int) -> Position:
    before = text[:offset].removeprefix(_BYTE_ORDER_MARK)
    return Position(line=before.count("\n") + 1, column=len(before) - before.rfind("\n"))


def _error(text: str, offset: int, message: str, hint: str) -> SqlError:
    place = _position(text, offset)
    return SqlError(message, line=place.line, column=place.column, hint=hint)


def _unclosed(text: str) -> SqlError:
    offset = 0
    while match := _LEXEME.match(text, offset):
        offset = match.end()
    opening = text[offset : offset + 1]
    if opening == "/":
        return _error(text, offset, "this comment is never closed", "Add */ where it ends.")
    if opening in {"'", '"', "`"}:
        thing = "string" if opening == "'" else "quoted name"
        return _error(
            text, offset, f"this {thing} is never closed", f"Add {opening} where it ends."
        )
    return _error(text, 0, "the text cannot be split into tokens", _KEYWORD_HINT)


def _syntax_error(text: str, error: ParseError) -> SqlError:
    detail = error.errors[0]
    description, offset, found = detail["description"], detail["start"], detail["found"]
    if "hint" in detail:
        return _error(text, offset, description, detail["hint"])
    if description.endswith("not supported yet"):
        return _error(text, offset, description, "Remove it.")
    if description.endswith("does not begin a statement"):
        hint = did_you_mean(found, STATEMENTS) or f"Use one of {', '.join(STATEMENTS)}."
        return _error(text, offset, description, hint)
    expected = re.match(r"Expecting (.+)$", description)
    place = f"'{found}'" if found else "end of the statement"
    option = _OPTION_NAME.search(text, 0, offset)
    if option and is_secret(option[1]):
        place = "text (not shown)"
    if expected:
        return _error(text, offset, f"expected '{expected[1]}' before {place}", _KEYWORD_HINT)
    return _error(text, offset, f"unexpected {place}", _KEYWORD_HINT)
