"""SQL values as JSON; pure."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any


def json_value(value: Any) -> Any:
    """Convert an SQL value to JSON; types that JSON lacks become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return format(value, "f") if isinstance(value, Decimal) else str(value)
