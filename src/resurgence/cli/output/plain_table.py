"""Tables and quantities as plain text: the same on a terminal, in a pipe and in a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

MISSING = "-"


def table_lines(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Align columns, numbers to the right. A line break in a cell becomes a space."""
    texts = [[" ".join(_text(cell).split("\n")) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        for index in range(len(header))
    ]
    for row in [list(header), *texts]:
        cells = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _text(cell: object) -> str:
    if cell is None:
        return MISSING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def span_text(span: timedelta | None) -> str:
    """Format a duration in its two largest units, or to the millisecond if it is short."""
    if span is None:
        return MISSING
    seconds = max(0.0, span.total_seconds())
    if seconds < 60:
        return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes} m {int(seconds) % 60} s"
    if days == 0:
        return f"{hours} h {minutes % 60} m"
    return f"{days} d {hours % 24} h"


def bytes_text(count: int) -> str:
    """Format a number of bytes."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def count_text(count: int, noun: str) -> str:
    """Format a count with its noun: `1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
