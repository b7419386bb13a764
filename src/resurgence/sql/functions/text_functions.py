"""Functions whose literal arguments mean something else in Spark: regular expressions with flags,
formats of dates, names of codes and digests.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from resurgence.sql.functions.spark_template import call, filled
from resurgence.sql.syntax.parse import Script

_FLAGS = frozenset("imsx")
"""Flags that Java writes as Postgres and DataFusion do."""
_LETTERS = {
    "Y": "yyyy",
    "y": "yy",
    "m": "MM",
    "d": "dd",
    "j": "DDD",
    "H": "HH",
    "I": "hh",
    "M": "mm",
    "S": "ss",
    "p": "a",
    "a": "E",
    "A": "EEEE",
    "b": "MMM",
    "B": "MMMM",
    "F": "yyyy-MM-dd",
    "T": "HH:mm:ss",
    "%": "%",
}
_DIGESTS = {
    "md5": "unhex(md5(x))",
    **{f"sha{bits}": f"unhex(sha2(x, {bits}))" for bits in (224, 256, 384, 512)},
}
_CODES = {
    ("encode", "hex"): "lower(hex(x))",
    ("encode", "base64"): "base64(x)",
    ("decode", "hex"): "unhex(x)",
    ("decode", "base64"): "unbase64(x)",
}


def _regexp_like(node: exp.Anonymous, script: Script) -> exp.Expr:
    arguments = node.expressions
    if len(arguments) != 3:
        return node
    text, pattern, flags = arguments
    return call("regexp_like", node, text, _with_flags(pattern, _flags(flags, script)))


def _regexp_replace(node: exp.Anonymous, script: Script) -> exp.Expr:
    """With flags, as in Postgres; with a number or nothing in fourth place, as in Spark."""
    arguments = node.expressions
    if len(arguments) != 4 or not _is_text(arguments[3]):
        return node
    text, pattern, replacement, flags = arguments
    found = _flags(flags, script, "g")
    if "g" not in found:
        raise script.error(
            flags,
            "regexp_replace() replaces every match; to replace the first only is not supported",
            "add the flag 'g'",
        )
    if not _is_text(replacement):
        raise script.error(
            replacement, "with flags, the replacement must be a literal", "leave the flags out"
        )
    # Java refers to a group by $1 and not by \1.
    java = re.sub(r"\\(\d)", r"$\1", re.sub(r"\$", r"\\$", replacement.name))
    pattern = _with_flags(pattern, found - {"g"})
    return call("regexp_replace", node, text, pattern, exp.Literal.string(java))


def _regexp_match(node: exp.Anonymous, script: Script) -> exp.Expr:
    """An array of what the groups of the first match have, or of the whole match."""
    arguments = node.expressions
    if len(arguments) not in (2, 3) or not _is_text(arguments[1]):
        raise script.error(
            node,
            "regexp_match() takes a text, a pattern that is a literal, and flags",
            "use regexp_extract(text, pattern, group)",
        )
    text, pattern = arguments[:2]
    groups = _groups(pattern, script)
    flags = _flags(arguments[2], script) if len(arguments) == 3 else set()
    pattern = _with_flags(pattern, flags)
    numbers = range(1, groups + 1) if groups else [0]
    parts = ", ".join(f"regexp_extract(s, p, {each})" for each in numbers)
    return filled(f"IF(regexp_like(s, p), array({parts}), NULL)", node, s=text, p=pattern)


def _groups(pattern: exp.Expr, script: Script) -> int:
    """How many groups the pattern has. Spark gives an empty text for a group that took no part in
    the match, where null would be right: a pattern in which that can happen is refused.
    """
    plain = re.sub(r"\[[^\]]*\]", "", re.sub(r"\\.", "", pattern.name))
    outside = re.sub(r"\([^()]*\)", "", plain)
    if re.search(r"\)[?*{]|\(\?", plain) or "|" in outside:
        raise script.error(
            pattern,
            "regexp_match() cannot tell a group that may be left out from an empty one",
            "use regexp_extract(text, pattern, group)",
        )
    return plain.count("(")


def _to_char(node: exp.Anonymous, script: Script) -> exp.Expr:
    """A format with `%` is strftime's."""
    arguments = node.expressions
    if len(arguments) != 2 or not _is_text(arguments[1]) or "%" not in arguments[1].name:
        return node
    java: list[str] = []
    for part in re.findall(r"%.|[^%]+|%", arguments[1].name):
        if part[0] == "%":
            if part[1:] not in _LETTERS:
                known = ", ".join(f"%{each}" for each in _LETTERS)
                raise script.error(
                    arguments[1], f"'{part}' is not supported in a format", f"known: {known}"
                )
            java.append(_LETTERS[part[1:]])
        else:
            quoted = "'" + part.replace("'", "''") + "'"
            java.append(quoted if re.search(r"[A-Za-z'#{}\[\]]", part) else part)
    return call("date_format", node, arguments[0], exp.Literal.string("".join(java)))


def _coded(node: exp.Anonymous, script: Script) -> exp.Expr:
    """encode() and decode() with a code of Postgres'; with a character set they are Spark's."""
    arguments = node.expressions
    if len(arguments) != 2 or not _is_text(arguments[1]):
        return node
    template = _CODES.get((node.name.lower(), arguments[1].name.lower()))
    return filled(template, node, x=arguments[0]) if template else node


def _digest(node: exp.Anonymous, script: Script) -> exp.Expr:
    arguments = node.expressions
    name = arguments[1].name.lower() if len(arguments) == 2 and _is_text(arguments[1]) else ""
    if name not in _DIGESTS:
        raise script.error(
            node,
            "digest() takes a value and the name of a digest",
            "known: " + ", ".join(f"'{each}'" for each in _DIGESTS),
        )
    return filled(_DIGESTS[name], node, x=arguments[0])


def _flags(node: exp.Expr, script: Script, more: str = "") -> set[str]:
    allowed = _FLAGS | set(more)
    if not _is_text(node) or not set(node.name) <= allowed:
        known = ", ".join(sorted(allowed))
        raise script.error(node, "these flags are not supported", f"known: {known}, as a literal")
    return set(node.name)


def _with_flags(pattern: exp.Expr, flags: set[str]) -> exp.Expr:
    if not flags:
        return pattern
    prefix = f"(?{''.join(sorted(flags))})"
    if _is_text(pattern):
        return exp.Literal.string(prefix + pattern.name)
    return filled("concat(f, p)", pattern, f=exp.Literal.string(prefix), p=pattern)


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


TEXT_FUNCTIONS: dict[str, Callable[[exp.Anonymous, Script], exp.Expr]] = {
    "regexp_like": _regexp_like,
    "regexp_replace": _regexp_replace,
    "regexp_match": _regexp_match,
    "to_char": _to_char,
    "encode": _coded,
    "decode": _coded,
    "digest": _digest,
}
"""Each gives what Spark is to compute; the call as it is where Spark's own meaning is meant."""
