"""Numbers of bytes in options, as in `64MB` or `64MiB`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
SIZE_HINT = "Write it as in 128MB, 64MiB or 100000000."


def parse_size(value: object) -> int:
    """Parse a number of bytes. Raise ValueError unless it is one, and greater than zero."""
    match = _SIZE.fullmatch(str(value).strip())
    unit = match[2].lower().removesuffix("b") if match is not None else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"'{value}' is not a size")
    size = int(Decimal(match[1]) * _UNITS[unit])
    if size <= 0:
        raise ValueError(f"'{value}' is not a size")
    return size


ByteSize = Annotated[int, BeforeValidator(parse_size)]
