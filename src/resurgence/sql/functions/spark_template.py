"""Templates of Spark SQL, with names as placeholders for the user's expressions."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from sqlglot import exp

from resurgence.sql.syntax.dialect import Resurgence

N = TypeVar("N", bound=exp.Expr)
_LOOSE = (exp.Binary, exp.Neg, exp.Not, exp.Predicate)
"""Expressions that need parentheses as operands."""


def filled(template: str, place: exp.Expr, **values: exp.Expr) -> exp.Expr:
    """Return the template with the values inserted, at the position of `place`."""
    tree = _parsed(template).copy()
    for column in list(tree.find_all(exp.Column)):
        value = values[column.name].copy()
        column.replace(exp.Paren(this=value) if isinstance(value, _LOOSE) else value)
    return placed(tree, place)


def call(function: str, place: exp.Expr, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a call of a function, at the position of `place`."""
    return placed(exp.Anonymous(this=function, expressions=list(arguments)), place)


def placed(node: N, place: exp.Expr) -> N:
    """Return the node, with the position of `place` in the user's text."""
    if "start" in place.meta:
        node.meta["start"] = place.meta["start"]
    return node


@cache
def _parsed(template: str) -> exp.Expr:
    """Parse the template and remove its offsets, which mean nothing in the user's text."""
    statement = Resurgence().parse(f"SELECT ({template})")[0]
    assert isinstance(statement, exp.Select)
    tree: exp.Expr = statement.expressions[0]
    tree = tree.this if isinstance(tree.this, exp.Anonymous) else tree
    for node in tree.walk():
        node.meta.pop("start", None)
    return tree
