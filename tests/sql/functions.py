"""Python functions that the SQL cases call."""

from __future__ import annotations

import asyncio

from resurgence import udaf, udf


@udf
def doubled(number: int | None) -> int | None:
    """Null stays null."""
    return None if number is None else number * 2


@udaf
def spread(values: list[float]) -> float | None:
    """From the least to the greatest."""
    return max(values) - min(values) if values else None


@udf(max_in_flight=10, timeout="1 minute")
async def asked(driver: int, kind: str | None) -> str:
    """As if another system had to be asked; later rows are answered first."""
    await asyncio.sleep(0.001 / driver)
    return f"{kind or 'no kind'} by {driver}"
