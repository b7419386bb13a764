"""Clauses that the grammar accepts and a pipeline does not support: refused by their SQL names.

The parser has its own words for the parts of a node (`pivots`, `by_name`, `version`). None of them
appears in a message: the table below has the names of parts, and any other part is quoted as SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from types import MappingProxyType

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from resurgence.errors import SqlError
from resurgence.sql.syntax.dialect import Resurgence
from resurgence.sql.syntax.parse import Script

CLAUSES: Mapping[str, str] = MappingProxyType(
    {
        "alternative": "OR",
        "begin": "BEGIN",
        "by_name": "BY NAME",
        "catalog": "a qualified table name",
        "changes": "CHANGES",
        "clone": "CLONE",
        "cluster": "CLUSTER BY",
        "clustered": "CLUSTERED",
        "concurrently": "CONCURRENTLY",
        "conflict": "ON CONFLICT",
        "connect": "CONNECT BY",
        "db": "a qualified table name",
        "default": "DEFAULT VALUES",
        "directed": "DIRECTED",
        "distinct": "DISTINCT",
        "distribute": "DISTRIBUTE BY",
        "exclude": "EXCLUDE",
        "exists": "IF NOT EXISTS",
        "expression": "AS",
        "for_": "FOR",
        "format": "FORMAT",
        "from_": "FROM",
        "global_": "GLOBAL",
        "group": "GROUP BY",
        "having": "HAVING",
        "hint": "a hint",
        "hints": "a hint",
        "ignore": "IGNORE",
        "indexed": "INDEXED BY",
        "indexes": "INDEX",
        "into": "INTO",
        "is_function": "FUNCTION",
        "joins": "a join in parentheses",
        "laterals": "LATERAL",
        "limit": "LIMIT",
        "match": "MATCH_RECOGNIZE",
        "match_condition": "MATCH_CONDITION",
        "method": "a join method",
        "nearest": "NEAREST",
        "no_schema_binding": "WITH NO SCHEMA BINDING",
        "offset": "OFFSET",
        "on": "ON",
        "only": "ONLY",
        "operation_modifiers": "a modifier of SELECT",
        "options": "OPTION",
        "order": "ORDER BY",
        "ordinality": "WITH ORDINALITY",
        "overwrite": "OVERWRITE",
        "partition": "PARTITION",
        "pattern": "PATTERN",
        "pivots": "PIVOT",
        "prewhere": "PREWHERE",
        "qualify": "QUALIFY",
        "refresh": "REFRESH",
        "replace": "OR REPLACE",
        "returning": "RETURNING",
        "rows_from": "ROWS FROM",
        "sample": "TABLESAMPLE",
        "settings": "SETTINGS",
        "sort": "SORT BY",
        "source": "TABLE",
        "stored": "STORED AS",
        "system_time": "FOR SYSTEM_TIME AS OF",
        "unique": "UNIQUE",
        "using": "USING",
        "when": "AT or BEFORE",
        "where": "WHERE",
        "windows": "WINDOW",
        "with_": "WITH",
    }
)
"""The parser's name for a part of a node, and its name in SQL."""

_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "catalog": "Write the table's name alone.",
        "db": "Write the table's name alone.",
        "joins": "Write the joins one after the other, or put a SELECT in parentheses.",
        "limit": "Filter with WHERE. Use LIMIT only at the end of a SELECT to the terminal.",
        "offset": "Filter with WHERE.",
        "order": "Sort where the output is read: a stream has no last row.",
        "overwrite": "Use INSERT INTO, which appends rows.",
        "pivots": "Use an aggregate with FILTER (WHERE ...) for each column.",
        "version": "Read the table as it is. Use FOR SYSTEM_TIME AS OF only in a lookup join.",
    }
)
_LONGEST_QUOTE = 40
_KEYWORDS = re.compile(r"[A-Z_]+(?: [A-Z_]+)*")


def refuse_unread(node: exp.Expr, read: Set[str], script: Script, place: str = "here") -> None:
    """Raise SqlError for the first part of a node that is present and not in `read`. `place` is
    where it is not supported.
    """
    for part, value in node.args.items():
        if part not in read and value:
            raise unsupported(node, part, script, place)


def drop_comments(create: exp.Create) -> None:
    """Remove what a pipeline does not store: COMMENT of a table, a view or a column, and TEMPORARY
    of a view, because no view outlives its pipeline.
    """
    for constraint in list(create.find_all(exp.ColumnConstraint)):
        if isinstance(constraint.kind, exp.CommentColumnConstraint):
            constraint.pop()
    properties = create.args.get("properties")
    if properties is None:
        return
    dropped: tuple[type[exp.Expr], ...] = (exp.SchemaCommentProperty,)
    if create.kind == "VIEW":
        dropped = (*dropped, exp.TemporaryProperty)
    remaining = [each for each in properties.expressions if not isinstance(each, dropped)]
    properties.set("expressions", remaining)
    if not remaining:
        properties.pop()


def unsupported(node: exp.Expr, part: str, script: Script, place: str = "here") -> SqlError:
    """Return the error for one part of a node."""
    value = node.args.get(part)
    first = value[0] if isinstance(value, list) else value
    at = first if isinstance(first, exp.Expr) else node
    name = clause_name(part, first)
    return script.error(at, f"{name} is not supported {place}", _HINTS.get(part, "Remove it."))


def clause_name(part: str, value: object) -> str:
    """Return the SQL name of a part of a node."""
    match value:
        case exp.Version():
            # The parser does not distinguish Spark's TIMESTAMP AS OF from the standard's form.
            return "VERSION AS OF" if value.name == "VERSION" else "FOR SYSTEM_TIME AS OF"
        case exp.Fetch():
            return "FETCH"
        case exp.Lock():
            return "FOR UPDATE" if value.args.get("update") else "FOR SHARE"
        case exp.Properties():
            return clause_name(part, value.expressions[0])
        case exp.Property():
            # Its text begins with its keywords, as in PARTITIONED BY (a).
            words = _KEYWORDS.match(_text(value))
            return words[0] if words else "an option"
    if part in CLAUSES:
        return CLAUSES[part]
    if isinstance(value, exp.Expr):
        return f"'{_text(value)}'"
    return f"'{value}'" if isinstance(value, str) else "a part of this statement"


def _text(node: exp.Expr) -> str:
    text = node.sql(Resurgence, comments=False, unsupported_level=ErrorLevel.IGNORE)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
