"""Python functions that the SQL cases call."""

from __future__ import annotations

from resurgence import udaf, udf


@udf
def doubled(number: int | None) -> int | None:
    """Null stays null."""
    return None if number is None else number * 2


@udaf
def spread(values: list[float]) -> float | None:
    """From the least to the greatest."""
    return max(values) - min(values) if values else None
