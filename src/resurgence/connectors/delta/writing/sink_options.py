"""The options of Delta sinks."""

from __future__ import annotations

from resurgence.connectors.lakehouse.options import LakehouseSinkOptions
from resurgence.graph.table_options import option


class DeltaSinkOptions(LakehouseSinkOptions):
    """The options of a `delta` sink."""

    path: str = option("a folder or storage URL; the table is created there if there is none")
    partitioned_by: str | None = option(
        "the columns by which a new table is partitioned, separated by commas",
        default=None,
        name="partitioning.fields",
    )
