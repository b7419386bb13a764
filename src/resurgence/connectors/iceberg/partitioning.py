"""The partition fields of a new table: the option 'partitioning.fields'. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from resurgence.errors import UserError

PARTITIONING = "partitioning.fields"
PARTITIONING_HINT = (
    "Name columns, or transforms of them: day(at), bucket(16, id), truncate(4, name), year(at),"
    " month(at), hour(at)."
)
_TERMS = re.compile(r",(?![^(]*\))")
_CALL = re.compile(r"(?P<name>\w+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>[^,()]+?)\s*\)")
_WITH_NUMBER = ("bucket", "truncate")
_OF_TIME = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class PartitionTerm:
    """A column, and the transform that is applied to it, as Iceberg's metadata names it."""

    column: str
    transform: str = "identity"

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        name, _, number = self.transform.partition("[")
        return f"{name}({number[:-1]}, {self.column})" if number else f"{name}({self.column})"


def partition_terms(text: str | None) -> tuple[PartitionTerm, ...]:
    """Parse the option. Raise UserError for an unknown transform."""
    if not text:
        return ()
    return tuple(_term(each.strip()) for each in _TERMS.split(text) if each.strip())


def _term(text: str) -> PartitionTerm:
    if "(" not in text:
        return PartitionTerm(text)
    call = _CALL.fullmatch(text)
    name = call["name"].lower().removesuffix("s") if call else ""
    if call is not None and name in _WITH_NUMBER and call["number"] and int(call["number"]):
        return PartitionTerm(call["column"], f"{name}[{int(call['number'])}]")
    if call is not None and name in _OF_TIME and call["number"] is None:
        return PartitionTerm(call["column"], name)
    raise UserError(
        f"'{text}' is not a partition field, which '{PARTITIONING}' names", hint=PARTITIONING_HINT
    )


def require_same_partitioning(
    table: str, stored: tuple[PartitionTerm, ...], wanted: tuple[PartitionTerm, ...]
) -> None:
    """Raise UserError if the option is set, and the table is partitioned in another way."""
    if not wanted or _folded(stored) == _folded(wanted):
        return
    held = f"by {', '.join(map(str, stored))}" if stored else "not at all"
    raise UserError(
        f"Iceberg table {table} is partitioned {held}, but '{PARTITIONING}' is"
        f" {', '.join(map(str, wanted))}",
        hint=f"Remove '{PARTITIONING}' to write with the partitions that the table has, or change"
        " the partition spec of the table.",
    )


def _folded(terms: tuple[PartitionTerm, ...]) -> list[tuple[str, str]]:
    return [(each.column.lower(), each.transform) for each in terms]
