"""Postgres' arrows for JSON and the JSON functions of DataFusion and Arroyo, as Spark SQL.

All of them take the text of a JSON value. `->` and its equivalents return JSON, so that a string keeps
its quotes; `->>` and its equivalents return text, as Spark's get_json_object does. A cast uses the
text. The typed functions return null for a value of another type. Keys and paths are literals: they
become one path, so that a chain of arrows parses the text once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from resurgence.sql.functions.spark_template import filled, placed
from resurgence.sql.syntax.parse import Script

_VALUE = "try_variant_get(try_parse_json(j), p, 'variant')"
_TEXT = "get_json_object(j, p)"
_JSON = f"IF(schema_of_variant({_VALUE}) IN ('STRING', 'VOID'), to_json({_VALUE}), {_TEXT})"
_STRING = f"IF(schema_of_variant({_VALUE}) = 'STRING', {_TEXT}, NULL)"
_SCALAR = f"IF(schema_of_variant({_VALUE}) RLIKE '^(OBJECT|ARRAY|VOID)', NULL, {_TEXT})"
_BY_KEYS = {
    "json_get": _JSON,
    "json_as_text": _TEXT,
    "json_get_json": _JSON,
    "json_get_str": _STRING,
    "json_get_int": f"IF(schema_of_variant({_VALUE}) = 'BIGINT', CAST({_TEXT} AS BIGINT), NULL)",
    "json_get_float": f"IF(schema_of_variant({_VALUE}) RLIKE '^(BIGINT|DOUBLE|DECIMAL.*)$',"
    f" CAST({_TEXT} AS DOUBLE), NULL)",
    "json_get_bool": f"IF(schema_of_variant({_VALUE}) = 'BOOLEAN', CAST({_TEXT} AS BOOLEAN), NULL)",
    "json_contains": f"{_VALUE} IS NOT NULL",
    "json_length": f"IF(schema_of_variant({_VALUE}) = 'STRING', NULL,"
    f" coalesce(json_array_length({_TEXT}), array_size(json_object_keys({_TEXT}))))",
}
"""Functions of a JSON text and any number of keys."""
_BY_PATH = {
    "get_first_json_object": _JSON,
    "extract_json_string": _STRING,
    "extract_json": "CASE WHEN try_parse_json(j) IS NULL THEN NULL"
    f" WHEN {_VALUE} IS NULL THEN array() ELSE array({_JSON}) END",
}
"""Functions of a JSON text and a path."""
JSON_FUNCTIONS = frozenset({*_BY_KEYS, *_BY_PATH})

_STEP = r"""\.\w+|\[\d+\]|\['[^'*]+'\]|\["[^'"*]+"\]"""
_PATH = re.compile(rf"\$(?:{_STEP})*")
_ARROWS = (exp.JSONExtract, exp.JSONExtractScalar)


def json_call(node: exp.Anonymous, script: Script) -> exp.Expr:
    """Translate a call of one of JSON_FUNCTIONS."""
    name, arguments = node.name.lower(), node.expressions
    if name in _BY_PATH:
        if len(arguments) != 2:
            raise script.error(
                node, f"{name}() takes a JSON text and a path, not {len(arguments)} arguments"
            )
        return filled(_BY_PATH[name], node, j=arguments[0], p=_checked_path(arguments[1], script))
    if not arguments:
        raise script.error(node, f"{name}() takes a JSON text and keys")
    path = exp.Literal.string("$" + "".join(_step(each, script) for each in arguments[1:]))
    template = _TEXT if name == "json_get" and _is_cast(node) else _BY_KEYS[name]
    return filled(template, node, j=arguments[0], p=path)


def json_value(node: exp.JSONValue, script: Script) -> exp.Expr:
    """Translate `JSON_VALUE(json, path RETURNING type DEFAULT x ON EMPTY DEFAULT y ON ERROR)`.

    As in SQL's lax mode, a path that leads to nothing, to null, to an object or to an array is
    EMPTY. A text that is not JSON, or a value that is not of the type, is an ERROR.
    """
    if not isinstance(node.args.get("path"), exp.Expr):
        raise script.error(node, "JSON_VALUE takes a JSON text and a path")
    path = node.args["path"]
    if isinstance(path, exp.Literal) and path.name.lower().startswith("lax "):
        path = placed(exp.Literal.string(path.name[4:].strip()), path)
    path = _checked_path(path, script)
    type_ = node.args.get("returning") or exp.DataType.build("string")
    handling = node.args.get("on_condition") or exp.OnCondition()
    empty, error = (_default(handling.args.get(key), node, script) for key in ("empty", "error"))
    value: exp.Expr = filled(_SCALAR, node, j=node.this, p=path)
    if node.args.get("returning"):
        value = placed(exp.TryCast(this=value, to=type_.copy(), safe=True), node)
    if isinstance(empty, exp.Null) and isinstance(error, exp.Null):
        return value
    return filled(
        f"CASE WHEN j IS NULL THEN NULL WHEN try_parse_json(j) IS NULL THEN e"
        f" WHEN {_SCALAR} IS NULL THEN d ELSE coalesce(v, e) END",
        node,
        j=node.this,
        p=path,
        v=value,
        d=exp.Cast(this=empty, to=type_.copy()),
        e=exp.Cast(this=error, to=type_.copy()),
    )


def _default(handling: exp.Expr | str | None, node: exp.Expr, script: Script) -> exp.Expr:
    """Return the replacement of a value that is EMPTY, or an ERROR."""
    if isinstance(handling, exp.Expr):
        return handling
    if handling is None or handling.startswith("NULL "):
        return exp.null()
    raise script.error(
        node, f"{handling} is not supported in JSON_VALUE", "Use NULL or DEFAULT value instead."
    )


def json_arrow(node: exp.JSONExtract | exp.JSONExtractScalar, script: Script) -> exp.Expr:
    """Translate `json -> key` or `json ->> key`. The last of a chain translates all."""
    is_json = isinstance(node, exp.JSONExtract)
    if is_json and isinstance(_owner(node), _ARROWS):
        return node
    steps, operand = _step(node.expression, script), node.this
    while isinstance(inner := operand.unnest(), exp.JSONExtract):
        steps, operand = _step(inner.expression, script) + steps, inner.this
    template = _JSON if is_json and not _is_cast(node) else _TEXT
    return filled(template, node, j=operand, p=exp.Literal.string(f"${steps}"))


def _owner(node: exp.Expr) -> exp.Expr | None:
    """Return the node whose first operand this is, with or without parentheses."""
    owner = node.parent
    while isinstance(owner, exp.Paren):
        owner = owner.parent
    first = owner.args.get("this") if owner else None
    return owner if isinstance(first, exp.Expr) and first.unnest() is node else None


def _is_cast(node: exp.Expr) -> bool:
    return isinstance(_owner(node), exp.Cast)


def arrow_of_lambda(node: exp.Lambda) -> exp.Expr:
    """Return the arrow of `f(json -> 'key' ...)`, which the parser reads as a lambda."""
    body: exp.Expr = node.this
    first = body
    while isinstance(first.this, exp.Expr):
        first = first.this
    operand = exp.Column(this=node.expressions[0].copy())
    arrow = exp.JSONExtract(this=operand, expression=first.copy())
    if first is body:
        return arrow
    first.replace(arrow)
    return body


def is_arrow(node: exp.Lambda) -> bool:
    """Return whether the operand after the arrow begins with a literal, as a key does."""
    parameters: Sequence[exp.Expr] = node.expressions
    first = node.this
    while isinstance(first.this, exp.Expr):
        first = first.this
    return len(parameters) == 1 and isinstance(first, exp.Literal)


def _step(key: exp.Expr, script: Script) -> str:
    key = key.unnest()
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdigit():
        return f"[{key.name}]"
    if not isinstance(key, exp.Literal) or not key.is_string:
        raise script.error(
            key,
            "a JSON key must be a text in single quotes, or a number counted from 0",
            "Use try_variant_get(try_parse_json(json), path, type) for any other key.",
        )
    if not key.name or re.search(r"['*\]]", key.name):
        raise script.error(
            key,
            f"the JSON key '{key.name}' is not supported",
            "Use from_json(json, 'MAP<STRING, STRING>') and element_at().",
        )
    return f"['{key.name}']"


def _checked_path(node: exp.Expr, script: Script) -> exp.Expr:
    if not isinstance(node, exp.Literal) or not _PATH.fullmatch(node.name):
        raise script.error(
            node,
            "a JSON path must be a literal of names and numbers, as in '$.a.b[0]'",
            "Read one value at a time: wildcards and filters are not supported.",
        )
    steps = re.findall(_STEP, node.name)
    return exp.Literal.string(
        "$" + "".join(f"['{each[1:]}']" if each[0] == "." else each for each in steps)
    )
