"""A pipeline's text as it is stored: the original with the literal secrets of its tables masked.

It is still SQL and compiles to the same operators. Secrets in comments are masked too, because an
option can be commented out. Literals in queries are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.secrets import MASK, is_secret, shown_value
from resurgence.sql.syntax.dialect import Resurgence
from resurgence.sql.syntax.parse import parse

_ASSIGNMENT = re.compile(
    r"""(?P<name>[\w.-]+)(?P<equals>["'`]?\s*=\s*)(?P<value>'(?:\\.|''|[^'\\])*'|[^\s,)]+)"""
)


@lru_cache(maxsize=4)
def masked_sql(text: str) -> str:
    """Return the text with `***` for literal secrets."""
    try:
        edits = sorted([*_option_edits(text), *_comment_edits(text)])
    except SqlError:
        return _masked_anywhere(text)
    parts, end = [], 0
    for start, stop, shown in edits:
        parts += [text[end:start], shown]
        end = stop
    return "".join([*parts, text[end:]])


def _option_edits(text: str) -> Iterator[tuple[int, int, str]]:
    for statement in parse(text).statements:
        for option in statement.find_all(exp.Property):
            if "value_span" not in option.meta:
                continue
            start, stop = option.meta["value_span"]
            value = option.args.get("value")
            written = value.name if isinstance(value, exp.Literal) else text[start:stop]
            shown = shown_value(option.this.name, written)
            if shown != written:
                yield start, stop, _literal(shown)


def _comment_edits(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the edits of comments, which are between tokens."""
    tokens = Resurgence().tokenize(text)
    ends = [0, *(each.end + 1 for each in tokens)]
    starts = [*(each.start for each in tokens), len(text)]
    for stop, start in zip(ends, starts, strict=True):
        between = text[stop:start]
        shown = _masked_anywhere(between)
        if shown != between:
            yield stop, start, shown


def _masked_anywhere(text: str) -> str:
    """Mask whatever looks like an option, in text that is not parsed."""

    def masked(match: re.Match[str]) -> str:
        value = match["value"]
        inner = value[1:-1] if value.startswith("'") else value
        if not is_secret(match["name"]) or shown_value(match["name"], inner) == inner:
            return match[0]
        return f"{match['name']}{match['equals']}{_literal(MASK)}"

    return shown_value("", _ASSIGNMENT.sub(masked, text))


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
