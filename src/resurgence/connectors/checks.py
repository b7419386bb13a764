"""The checks of a job's connectors that run before Spark starts."""

from __future__ import annotations

from resurgence.connectors.path_overlap import require_separate_paths
from resurgence.connectors.registry import make_lookup, make_sink, make_source
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.secrets import open_options


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
