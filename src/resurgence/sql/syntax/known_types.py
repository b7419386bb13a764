"""Types of expressions, as far as they are known without Spark: those of declared columns, their
fields, casts and from_json().
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ParseError

from resurgence.sql.catalog.relation import Attribute, Relation
from resurgence.sql.syntax.parse import Script


def known_type(node: exp.Expr, relation: Relation, script: Script) -> exp.DataType | None:
    """Return the type of an expression over a relation; None if only Spark knows it."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return field_type(*relation.resolve(node, script))
    if isinstance(node, exp.Cast):
        return node.to
    if isinstance(node, exp.Anonymous) and node.name.lower() == "from_json":
        schema = node.expressions[1] if len(node.expressions) > 1 else None
        return _parsed(schema.name) if isinstance(schema, exp.Literal) else None
    return None


def field_type(attribute: Attribute, path: tuple[str, ...] = ()) -> exp.DataType | None:
    """Return the type of a column, or of a field inside it."""
    kind = _parsed(attribute.type) if attribute.type else None
    for name in path:
        found = [each for each in fields(kind) if each.name.lower() == name.lower()]
        kind = found[0].kind if found else None
    return kind


def fields(kind: exp.DataType | None) -> list[exp.ColumnDef]:
    """Return the fields of a struct; an empty list for any other type."""
    if kind is None or kind.this != exp.DType.STRUCT:
        return []
    return [each for each in kind.expressions if isinstance(each, exp.ColumnDef)]


def _parsed(text: str) -> exp.DataType | None:
    for written in (text, f"STRUCT<{text}>"):
        try:
            return exp.DataType.build(written, dialect="spark")
        except (ParseError, ValueError):
            continue
    return None
