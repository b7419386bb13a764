"""The checks of a job's connectors that run before Spark starts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from resurgence.connectors.path_overlap import require_separate_paths
from resurgence.connectors.registry import make_lookup, make_sink, make_source
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.ids import JobName, OperatorId
from resurgence.secrets import open_options
from resurgence.state.records import Offset


def check_connectors(graph: Graph, state_url: str, job: JobName) -> None:
    """Raise UserError for errors that can be detected without Spark, such as a missing file or
    secret.
    """
    require_separate_paths(graph)
    for source in graph.sources():
        with open_options(source.table, source.options).concealer.over_errors():
            make_source(source).check()
    for table in graph.lookup_tables():
        with open_options(table.name, table.options).concealer.over_errors():
            make_lookup(table).check()
    for sink in graph.sinks():
        with open_options(sink.table, sink.options).concealer.over_errors():
            make_sink(sink, state_url, job).check()


def require_no_more_input(graph: Graph, ends: Mapping[OperatorId, Offset], now: datetime) -> None:
    """Raise UserError if a source of a finished job has rows after the offset at which it ended.
    They cannot be read: the end of the input has closed all windows.
    """
    for each in graph.sources():
        if each.id not in ends:
            continue
        with open_options(each.table, each.options).concealer.over_errors():
            more = make_source(each).plan(ends[each.id], 1, now)
        if more is not None and more.rows:
            raise UserError(
                f"table '{each.table}' has new input, but the job has already finished: "
                f"the end of its input was reached, and all windows are closed",
                hint="Read all of the input under another --name and with another sink, or roll "
                "the job back to an epoch before its end.",
            )
