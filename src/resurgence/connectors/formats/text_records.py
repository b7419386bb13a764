"""Records of text: how they are decoded, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable

from resurgence.connectors.formats.contract import Fault

NO_VALUE = Fault("no value (tombstone)")


def explained(raw: bytes | None, explain: Callable[[str], Fault]) -> Fault:
    """Return why a record is bad: `explain` is asked about those that are text."""
    if raw is None:
        return NO_VALUE
    try:
        return explain(raw.decode())
    except UnicodeDecodeError as error:
        place = len(raw[: error.start].decode()) + 1
        return Fault(f"not UTF-8: byte {raw[error.start]:02x}", place)
