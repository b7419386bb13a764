"""LIKE ANY and LIKE ALL: one LIKE for each pattern, joined by OR or AND, as in Spark."""

from __future__ import annotations

from sqlglot import exp

from resurgence.sql.functions.spark_template import placed


def each_pattern(node: exp.Like | exp.ILike) -> exp.Expr:
    """Return one LIKE for each pattern, or the node itself without ANY and ALL. `NOT LIKE ANY` is
    true if one of the patterns does not match, `NOT LIKE ALL` if none does.
    """
    quantifier = node.expression
    if not isinstance(quantifier, exp.Any | exp.All) or isinstance(quantifier.this, exp.Query):
        return node
    patterns = quantifier.this.unnest()
    listed = patterns.expressions if isinstance(patterns, exp.Tuple) else [patterns]
    parts: list[exp.Expr] = []
    for pattern in listed:
        part: exp.Expr = type(node)(this=node.this.copy(), expression=pattern.copy())
        if isinstance(node.parent, exp.Escape):
            part = exp.Escape(this=part, expression=node.parent.expression.copy())
        parts.append(exp.Not(this=part) if node.args.get("negate") else part)
    joined = exp.and_(*parts) if isinstance(quantifier, exp.All) else exp.or_(*parts)
    return placed(exp.Paren(this=joined), node)
