"""The rows of a query, as a table, as JSON lines or as CSV."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

from resurgence.api.json_values import json_value
from resurgence.cli.output.plain_table import table_lines

MAX_TABLE_ROWS = 1000
"""Maximum rows of a printed table."""


class OutputFormat(StrEnum):
    """The output format of a query."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_rows(columns: list[str], rows: Iterator[tuple[Any, ...]], layout: OutputFormat) -> None:
    """Print the result of a query."""
    match layout:
        case OutputFormat.TABLE:
            _print_table(columns, rows)
        case OutputFormat.JSON:
            names = _distinct(columns)
            for row in rows:
                values = dict(zip(names, map(json_value, row), strict=True))
                print(json.dumps(values, ensure_ascii=False))
        case OutputFormat.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_csv_value(each) for each in row] for row in rows)


def _print_table(columns: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    shown = [[_cell(each) for each in row] for row in itertools.islice(rows, MAX_TABLE_ROWS)]
    for line in table_lines(columns, shown):
        print(line)
    if next(rows, None) is not None:
        print(
            f"only the first {MAX_TABLE_ROWS:,} rows are shown; use --format csv or json for all",
            file=sys.stderr,
        )


def _cell(value: Any) -> object:
    """Format a value for a table. Numbers have no thousands separators, because some are not
    quantities.
    """
    if value is None:
        return "NULL"
    if isinstance(value, dict | list | tuple):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(json_value(value)) if not isinstance(value, datetime) else str(value)


def _csv_value(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(json_value(value), ensure_ascii=False)
    return "" if value is None else json_value(value)


def _distinct(names: Iterable[str]) -> list[str]:
    """Make column names unique, so that no value hides another."""
    found: list[str] = []
    for name in names:
        free = name
        for number in itertools.count(2):
            if free not in found:
                break
            free = f"{name}_{number}"
        found.append(free)
    return found
