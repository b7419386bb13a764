"""How the snapshots of an Iceberg table become a stream."""

from __future__ import annotations

from resurgence.connectors.formats.contract import Format
from resurgence.graph.connector_spec import FormatSpec

ROWS = Format(FormatSpec("rows", purpose="appended rows"))
CHANGE_DATA_FEED = Format(
    FormatSpec(
        "change_data_feed",
        is_changelog=True,
        purpose="[changelogs](updates.md): the rows that snapshots insert and delete",
    )
)
