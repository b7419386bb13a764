"""Changelogs in Debezium's format, merged strictly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

OPERATIONS = {"c": (False, True), "u": (True, True), "d": (True, False)}
"""Which of `before` and `after` an operation has."""


class BrokenChangelog(AssertionError):
    """A change that cannot be applied to what there is."""


def merge(lines: Iterable[str]) -> list[str]:
    """The rows that are left, as JSON texts.

    Raises BrokenChangelog when a row is updated or deleted that is not there.
    """
    rows: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        change = json.loads(line)
        before, after = change.get("before"), change.get("after")
        if (before is not None, after is not None) != OPERATIONS.get(change.get("op")):
            raise BrokenChangelog(f"change {number} is neither insert, update nor delete: {line}")
        if before is not None:
            gone = json.dumps(before)
            if rows[gone] == 0:
                raise BrokenChangelog(f"change {number} retracts a row that does not exist: {line}")
            rows[gone] -= 1
        if after is not None:
            rows[json.dumps(after)] += 1
    return list(rows.elements())
