"""Scalar functions of Postgres, DataFusion and Arroyo, translated to Spark's.

A name that Spark has keeps Spark's semantics, except with arguments that Spark refuses or cannot
interpret (`regexp_like` with flags, `date_part('epoch', ...)`, `encode(x, 'hex')`). A user-defined
function takes precedence over all of them.

`determinism` owns the functions of the clock and the calls that are refused because a replay would
produce different rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from resurgence.sql.functions.determinism import bare_word, check_cast, reproducible_call
from resurgence.sql.functions.json_functions import (
    JSON_FUNCTIONS,
    arrow_of_lambda,
    is_arrow,
    json_arrow,
    json_call,
    json_value,
)
from resurgence.sql.functions.spark_template import call, filled, placed
from resurgence.sql.functions.text_functions import TEXT_FUNCTIONS
from resurgence.sql.syntax.like_patterns import each_pattern
from resurgence.sql.syntax.parse import Script


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RENAMED = {
    "strpos": "instr",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "make_array": "array",
    "make_list": "array",
    "array_has": "array_contains",
    "list_has": "array_contains",
    "list_contains": "array_contains",
    "array_cat": "concat",
    "array_concat": "concat",
    "list_concat": "concat",
    "array_push_back": "array_append",
    "list_append": "array_append",
    "list_distinct": "array_distinct",
    "list_sort": "array_sort",
    "array_to_string": "array_join",
    "list_to_string": "array_join",
    "to_timestamp_seconds": "timestamp_seconds",
    "to_timestamp_millis": "timestamp_millis",
    "to_timestamp_micros": "timestamp_micros",
    "to_unixtime": "unix_timestamp",
    "date_bin": "time_bucket",
}
_ELEMENT = ("(a, i)", "try_element_at(a, nullif(i, 0))")
_FROM = "IF(f < 0, greatest(array_size(a) + f + 1, 1), greatest(f, 1))"
_SLICE = (
    "(a, f, t)",
    f"slice(a, {_FROM}, greatest(IF(t < 0, array_size(a) + t + 1, t) - {_FROM} + 1, 0))",
)
_QUOTED = r"concat('\\Q', replace(d, '\\E', '\\E\\\\E\\Q'), '\\E')"
_REWRITTEN = {
    "array_element": _ELEMENT,
    "array_extract": _ELEMENT,
    "list_element": _ELEMENT,
    "list_extract": _ELEMENT,
    "array_slice": _SLICE,
    "list_slice": _SLICE,
    "array_has_all": ("(a, b)", "array_size(array_except(b, a)) = 0"),
    "array_has_any": ("(a, b)", "array_size(array_intersect(a, b)) > 0"),
    "string_to_array": ("(s, d)", f"split(s, {_QUOTED})"),
    "to_timestamp_nanos": ("(x)", "timestamp_micros((x - pmod(x, 1000)) DIV 1000)"),
    "to_hex": ("(x)", "lower(hex(x))"),
    "sha224": ("(x)", "unhex(sha2(x, 224))"),
    "sha256": ("(x)", "unhex(sha2(x, 256))"),
    "sha384": ("(x)", "unhex(sha2(x, 384))"),
    "sha512": ("(x)", "unhex(sha2(x, 512))"),
}
"""Parameters, and the Spark SQL over them."""
_PRECISIONS = {
    "0": "timestamp_seconds(x)",
    "3": "timestamp_millis(x)",
    "6": "timestamp_micros(x)",
    "9": _REWRITTEN["to_timestamp_nanos"][1],
}
_SECONDS = "EXTRACT(SECOND FROM CAST(x AS TIMESTAMP))"
_BETWEEN = "unix_micros(CAST('1970-01-01 00:00:00' AS TIMESTAMP) + x) / CAST(1000000 AS DOUBLE)"
"""The epoch of an interval: its length in seconds."""
_FIELDS = {
    "epoch": "unix_micros(CAST(x AS TIMESTAMP)) / CAST(1000000 AS DOUBLE)",
    "millisecond": f"CAST({_SECONDS} * 1000 AS DOUBLE)",
    "microsecond": f"CAST({_SECONDS} * 1000000 AS BIGINT)",
    "isodow": "EXTRACT(DOW_ISO FROM x)",
    "isoyear": "EXTRACT(YEAROFWEEK FROM x)",
}
"""Fields of a timestamp that Spark does not have, or has under another name."""
_TAKES_LAMBDA = _names("""
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform
    transform_keys transform_values zip_with
""")

_RETURNS_ARRAY = _names("extract_json make_array regexp_match string_to_array")
_FROM_1 = "counts_from_1"
"""Marks the array that such a function returns: Spark has no function of that name, so a subscript
right after the call counts as in the function's system of origin.
"""

_REFUSED_NODES: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (
        exp.AtTimeZone,
        "AT TIME ZONE is not supported, because timestamps are instants",
        "Use from_utc_timestamp(x, zone) or to_utc_timestamp(x, zone).",
    ),
    (exp.SimilarTo, "SIMILAR TO is not supported", "Use regexp_like(text, pattern)."),
    (exp.Slice, "slices are not supported", "Use slice(array, start, length)."),
)


def spark_names(statement: exp.Expr, script: Script, is_own: Callable[[str], bool]) -> exp.Expr:
    """Return a copy of the statement with scalar functions translated to Spark's. `is_own` returns
    whether a function is user-defined.
    """
    tree = statement.copy()
    for arrow in list(tree.find_all(exp.Lambda)):
        owner = arrow.parent.name.lower() if isinstance(arrow.parent, exp.Anonymous) else ""
        if owner not in _TAKES_LAMBDA and not is_own(owner) and is_arrow(arrow):
            arrow.replace(placed(arrow_of_lambda(arrow), arrow))
    for node in _innermost_first(tree):
        translated = _translated(node, script, is_own)
        if translated is node:
            continue
        name = _called(node)
        if name and isinstance(node.parent, exp.Select):
            translated = placed(exp.alias_(translated, name, quoted=True), node)
        if node is tree:
            tree = translated
        else:
            node.replace(translated)
    return tree


def _called(node: exp.Expr) -> str | None:
    """Return the name of the function that a node calls, if it calls one by name."""
    if isinstance(node, exp.JSONValue):
        return "json_value"
    return node.name.lower() if isinstance(node, exp.Anonymous) else bare_word(node)


def _innermost_first(tree: exp.Expr) -> Iterator[exp.Expr]:
    return reversed(list(tree.walk(bfs=True)))


def _translated(node: exp.Expr, script: Script, is_own: Callable[[str], bool]) -> exp.Expr:
    for kind, message, hint in _REFUSED_NODES:
        if isinstance(node, kind):
            raise script.error(node, message, hint)
    if isinstance(node, exp.Cast | exp.TryCast):
        check_cast(node, script)
    if word := bare_word(node):
        return reproducible_call(word, [], node, script) or node
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar):
        return json_arrow(node, script)
    if isinstance(node, exp.JSONValue):
        return json_value(node, script)
    if isinstance(node, exp.Like | exp.ILike):
        return each_pattern(node)
    if isinstance(node, exp.Escape) and isinstance(node.this, exp.Paren):
        return node.this  # Already applied to each pattern.
    if isinstance(node, exp.JSONBContainsTopKey):
        called = call("json_contains", node, node.this, node.expression)
        return json_call(called, script)
    if isinstance(node, exp.Bracket) and _counts_from_1(node.this):
        return _element(node, script)
    if isinstance(node, exp.Extract) and (template := _field(node.name, node.expression)):
        return filled(template, node, x=node.expression)
    if isinstance(node, exp.RegexpILike):
        return filled("regexp_like(s, concat('(?i)', p))", node, s=node.this, p=node.expression)
    if isinstance(node, exp.Anonymous) and not is_own(node.name):
        translated = _translated_call(node, script)
        if node.name.lower() in _RETURNS_ARRAY:
            translated.meta[_FROM_1] = True
        return translated
    return node


def _translated_call(node: exp.Anonymous, script: Script) -> exp.Expr:
    name, arguments = node.name.lower(), node.expressions
    if (clock := reproducible_call(name, arguments, node, script)) is not None:
        return clock
    if name in _RENAMED:
        return call(_RENAMED[name], node, *arguments)
    if name in TEXT_FUNCTIONS:
        return TEXT_FUNCTIONS[name](node, script)
    if name in JSON_FUNCTIONS:
        return json_call(node, script)
    if name in ("array_length", "list_length"):
        return _array_length(node, script)
    if name in ("date_part", "datepart") and len(arguments) == 2:
        field, value = arguments
        template = _field(field.name, value) if isinstance(field, exp.Literal) else None
        return filled(template, node, x=value) if template else node
    if name == "to_timestamp_ltz" and len(arguments) == 2 and arguments[1].is_int:
        return _of_number(node, script)
    if name in _REWRITTEN:
        signature, template = _REWRITTEN[name]
        parameters = signature.strip("()").split(", ")
        if len(arguments) != len(parameters):
            message = f"{name}() takes {len(parameters)} arguments, not {len(arguments)}"
            raise script.error(node, message, f"Write it as in {name}{signature}.")
        return filled(template, node, **dict(zip(parameters, arguments, strict=True)))
    return node


def _of_number(node: exp.Anonymous, script: Script) -> exp.Expr:
    """Translate Flink's to_timestamp_ltz(number, precision)."""
    number, precision = node.expressions
    if precision.name not in _PRECISIONS:
        message = "to_timestamp_ltz() takes the precision 0, 3, 6 or 9"
        raise script.error(precision, message, "Use 0 for seconds.")
    template = _PRECISIONS[precision.name]
    return filled(template, node, x=number)


def _counts_from_1(array: exp.Expr) -> bool:
    is_marked = bool(array.meta.get(_FROM_1))
    return is_marked or (isinstance(array, exp.Paren) and _counts_from_1(array.this))


def _element(node: exp.Bracket, script: Script) -> exp.Expr:
    if len(node.expressions) != 1:
        raise script.error(node, "an array takes one subscript", "Write it as in a[1].")
    return filled(_ELEMENT[1], node, a=node.this.unnest(), i=node.expressions[0])


def _array_length(node: exp.Anonymous, script: Script) -> exp.Expr:
    arguments = node.expressions
    if not arguments or (len(arguments) > 1 and arguments[1].name != "1"):
        raise script.error(
            node,
            "array_length() takes an array and, optionally, the dimension 1",
            "Use array_length(element_at(a, 1)) for an inner array.",
        )
    return call("array_size", node, arguments[0])


def _field(name: str, value: exp.Expr) -> str | None:
    value = value.unnest()
    is_difference = isinstance(value, exp.Sub) and not isinstance(
        value.expression.unnest(), exp.Interval
    )
    if name.lower() == "epoch" and (is_difference or isinstance(value, exp.Interval)):
        return _BETWEEN
    return _FIELDS.get(name.lower()) or _FIELDS.get(name.lower().removesuffix("s"))
