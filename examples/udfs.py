"""Functions for udfs.sql; their SQL types come from the annotations."""

from __future__ import annotations

from resurgence import udaf, udf


@udf
def parity(number: int) -> str:
    """One value per row."""
    return "odd" if number % 2 else "even"


@udaf
def spread(values: list[int]) -> int | None:
    """One value per window and group."""
    return max(values) - min(values) if values else None
