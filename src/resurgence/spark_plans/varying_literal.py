"""Literals of Spark SQL that differ from epoch to epoch, such as a watermark.

Spark would compile a plain literal anew in every epoch. It passes an array to the generated code as
an object, and does not constant-fold the result of a lambda over it.
"""

from __future__ import annotations


def varying_literal(sql: str) -> str:
    """Return SQL for the value of a literal, for which the generated code is always the same."""
    return f"transform(array({sql}), it -> it)[0]"
