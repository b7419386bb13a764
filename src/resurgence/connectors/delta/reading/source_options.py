"""The options of Delta sources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from resurgence.connectors.formats.options import SourceOptions
from resurgence.graph.table_options import option

_OLDEST_MILLIS = 10**11
"""Smaller numbers are versions."""
_HINT = (
    "Use earliest, latest, a version, or an instant such as 2024-01-01T00:00:00Z or milliseconds"
    " since 1970."
)


class StartKind(StrEnum):
    """Where a new job begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    VERSION = "version"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True)
class Start:
    """The option 'source.offset'."""

    kind: StartKind
    number: int = 0
    """A version, or milliseconds since 1970."""

    def __str__(self) -> str:
        return self.kind.value


def parse_start(value: object) -> Start:
    """Parse the option. Raise ValueError if it is none of the kinds."""
    if isinstance(value, Start):
        return value
    text = str(value).strip()
    if text in (StartKind.EARLIEST, StartKind.LATEST):
        return Start(StartKind(text))
    if text.isdigit():
        is_instant = int(text) >= _OLDEST_MILLIS
        return Start(StartKind.TIMESTAMP if is_instant else StartKind.VERSION, int(text))
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Start(StartKind.TIMESTAMP, round(at.timestamp() * 1000))


class StopAt(StrEnum):
    """Where a bounded source ends."""

    LATEST = "latest"


class DeltaSourceOptions(SourceOptions):
    """The options of a `delta` source."""

    path: str = option("the folder or storage URL of the table")
    offset: Annotated[Start, BeforeValidator(parse_start)] = option(
        "where a new job begins: `latest` (default): with what is appended from now on. `earliest`:"
        " with all rows that the table has. A version, as in `12`: with what that version appended."
        " An instant, as in `2024-01-01T00:00:00Z` or in milliseconds since 1970: with the first"
        " version that was committed at or after it",
        default=Start(StartKind.LATEST),
        name="source.offset",
        hint=_HINT,
    )
    stop_at: StopAt | None = option(
        "`latest`: the source ends with the version that was the newest when the job first started;"
        " without it, it is unbounded",
        default=None,
        name="source.stop_at",
    )
