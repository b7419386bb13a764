"""Which files of a table may hold a key of an epoch's changes, by their statistics. Pure.

A file is left out only if its statistics prove that it holds none. Missing ones prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pydantic import JsonValue

from resurgence.connectors.lakehouse.table_file import ColumnStatistics


@dataclass(frozen=True)
class ValueRange:
    """The values of a column in some rows."""

    lowest: Any = None
    highest: Any = None
    """None if the bounds are not known."""
    may_be_null: bool = True
    may_have_values: bool = True


UNKNOWN = ValueRange()


def may_hold(changes: Mapping[str, ValueRange], file: Mapping[str, ValueRange]) -> bool:
    """Return whether a file may have a row with a key of these changes. Both are by key column; a
    column that is missing in the file's ranges can have any value.
    """
    return all(_overlap(each, file.get(name, UNKNOWN)) for name, each in changes.items())


def _overlap(one: ValueRange, other: ValueRange) -> bool:
    if one.may_be_null and other.may_be_null:
        return True
    if not (one.may_have_values and other.may_have_values):
        return False
    if None in (one.lowest, one.highest, other.lowest, other.highest):
        return True
    try:
        return bool(one.lowest <= other.highest and other.lowest <= one.highest)
    except TypeError:
        # Types that cannot be compared here say nothing.
        return True


def ranges_as_json(
    statistics: Iterable[ColumnStatistics], rows: int, keys: Sequence[str]
) -> dict[str, JsonValue]:
    """Return the ranges of key columns in a file of `rows` rows, for `merged_ranges`."""
    found: dict[str, JsonValue] = {}
    for each in statistics:
        if len(each.path) == 1 and each.path[0] in keys:
            low, high = each.bounds if each.bounds is not None and not each.nans else (None, None)
            bounds: list[JsonValue] = [_as_json(low), _as_json(high)]
            found[each.path[0]] = [*bounds, each.nulls, rows - each.nulls]
    return found


def merged_ranges(
    files: Sequence[Mapping[str, JsonValue]], keys: Sequence[str]
) -> dict[str, ValueRange]:
    """Return the ranges of key columns in several files together."""
    return {key: _merged([_range(each.get(key)) for each in files]) for key in keys}


def _range(content: JsonValue) -> ValueRange:
    if not isinstance(content, list) or len(content) != 4:
        return UNKNOWN
    low, high, nulls, values = content
    return ValueRange(_from_json(low), _from_json(high), nulls != 0, values != 0)


def _merged(ranges: Sequence[ValueRange]) -> ValueRange:
    valued = [each for each in ranges if each.may_have_values]
    is_known = all(None not in (each.lowest, each.highest) for each in valued)
    return ValueRange(
        min((each.lowest for each in valued), default=None) if is_known else None,
        max((each.highest for each in valued), default=None) if is_known else None,
        any(each.may_be_null for each in ranges),
        bool(valued),
    )


def _as_json(value: object) -> JsonValue:
    """Return a value that `_from_json` restores; None for types that are not compared."""
    match value:
        case bool():
            return None
        case int() | str():
            return value
        case datetime():
            return {"datetime": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case Decimal():
            return {"decimal": str(value)}
        case _:
            return None


def _from_json(value: JsonValue) -> Any:
    match value:
        case {"datetime": str(text)}:
            return datetime.fromisoformat(text)
        case {"date": str(text)}:
            return date.fromisoformat(text)
        case {"decimal": str(text)}:
            return Decimal(text)
        case _:
            return value
