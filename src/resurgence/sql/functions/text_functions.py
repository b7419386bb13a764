"""Functions whose literal arguments have another meaning in Spark: regular expressions with flags,
date formats, names of encodings and digests.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from resurgence.sql.functions.spark_template import call, filled
from resurgence.sql.syntax.parse import Script

_FLAGS = frozenset("imsx")
"""Flags that Java spells as Postgres and DataFusion do."""
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
_ENCODINGS = {
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
    """Translate a call with flags, as in Postgres; any other is Spark's."""
    arguments = node.expressions
    if len(arguments) != 4 or not _is_text(arguments[3]):
        return node
    text, pattern, replacement, flags = arguments
    found = _flags(flags, script, "g")
    if "g" not in found:
        raise script.error(
            flags,
            "regexp_replace() cannot replace only the first match",
            "Add the flag 'g' to replace every match.",
        )
    if not _is_text(replacement):
        raise script.error(
            replacement, "with flags, the replacement must be a literal", "Remove the flags."
        )
    # Java refers to a group by $1 and not by \1.
    java = re.sub(r"\\(\d)", r"$\1", re.sub(r"\$", r"\\$", replacement.name))
    pattern = _with_flags(pattern, found - {"g"})
    return call("regexp_replace", node, text, pattern, exp.Literal.string(java))


def _regexp_match(node: exp.Anonymous, script: Script) -> exp.Expr:
    """Return an array of the groups of the first match, or of the whole match without groups."""
    arguments = node.expressions
    if len(arguments) not in (2, 3) or not _is_text(arguments[1]):
        raise script.error(
            node,
            "regexp_match() takes a text, a literal pattern, and flags",
            "Use regexp_extract(text, pattern, group).",
        )
    text, pattern = arguments[:2]
    groups = _groups(pattern, script)
    flags = _flags(arguments[2], script) if len(arguments) == 3 else set()
    pattern = _with_flags(pattern, flags)
    numbers = range(1, groups + 1) if groups else [0]
    parts = ", ".join(f"regexp_extract(s, p, {each})" for each in numbers)
    return filled(f"IF(regexp_like(s, p), array({parts}), NULL)", node, s=text, p=pattern)


def _groups(pattern: exp.Expr, script: Script) -> int:
    """Return the number of groups in the pattern. Spark returns an empty text for a group that is
    not in the match, where null would be right: a pattern in which that can happen is refused.
    """
    plain = re.sub(r"\[[^\]]*\]", "", re.sub(r"\\.", "", pattern.name))
    outside = re.sub(r"\([^()]*\)", "", plain)
    if re.search(r"\)[?*{]|\(\?", plain) or "|" in outside:
        raise script.error(
            pattern,
            "regexp_match() cannot distinguish a group without a match from an empty one",
            "Use regexp_extract(text, pattern, group).",
        )
    return plain.count("(")


def _to_char(node: exp.Anonymous, script: Script) -> exp.Expr:
    """Translate a format with `%`, which is strftime's; any other is Spark's."""
    arguments = node.expressions
    if len(arguments) != 2 or not _is_text(arguments[1]) or "%" not in arguments[1].name:
        return node
    java: list[str] = []
    for part in re.findall(r"%.|[^%]+|%", arguments[1].name):
        if part[0] == "%":
            if part[1:] not in _LETTERS:
                known = ", ".join(f"%{each}" for each in _LETTERS)
                raise script.error(
                    arguments[1], f"'{part}' is not supported in a format", f"Use one of {known}."
                )
            java.append(_LETTERS[part[1:]])
        else:
            quoted = "'" + part.replace("'", "''") + "'"
            java.append(quoted if re.search(r"[A-Za-z'#{}\[\]]", part) else part)
    return call("date_format", node, arguments[0], exp.Literal.string("".join(java)))


def _coded(node: exp.Anonymous, script: Script) -> exp.Expr:
    """Translate encode() and decode() with an encoding of Postgres; with a character set they are
    Spark's.
    """
    arguments = node.expressions
    if len(arguments) != 2 or not _is_text(arguments[1]):
        return node
    template = _ENCODINGS.get((node.name.lower(), arguments[1].name.lower()))
    return filled(template, node, x=arguments[0]) if template else node


def _digest(node: exp.Anonymous, script: Script) -> exp.Expr:
    arguments = node.expressions
    name = arguments[1].name.lower() if len(arguments) == 2 and _is_text(arguments[1]) else ""
    if name not in _DIGESTS:
        known = ", ".join(f"'{each}'" for each in _DIGESTS)
        raise script.error(
            node, "digest() takes a value and the name of a digest", f"Use one of {known}."
        )
    return filled(_DIGESTS[name], node, x=arguments[0])


def _flags(node: exp.Expr, script: Script, more: str = "") -> set[str]:
    allowed = _FLAGS | set(more)
    if not _is_text(node) or not set(node.name) <= allowed:
        known = ", ".join(sorted(allowed))
        raise script.error(node, "these flags are not supported", f"Use {known}, as a literal.")
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
"""Each returns the call translated to Spark's functions, or unchanged if it has Spark's meaning."""
