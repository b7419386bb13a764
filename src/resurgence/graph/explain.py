"""EXPLAIN output: what each operator computes, its state, and the Spark jobs of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resurgence.graph.model import Graph
from resurgence.graph.specs import OperatorSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import OperatorId


def explain_graph(graph: Graph, parallelism: int) -> str:
    """Return the graph as plain text, from sources to sinks."""
    blocks = ["\n".join(each.explain(parallelism)) for each in graph.operators]
    blocks.append("\n".join(_job_lines(graph)))
    tables = list({each.table: each for each in graph.sinks()}.values())
    if len(tables) > 1:
        blocks.append("\n".join(_commit_lines(tables)))
    return "\n\n".join(blocks) + "\n"


def _commit_lines(tables: Sequence[SinkSpec]) -> Iterator[str]:
    """Yield one line per sink, in the order of their commits, and what a reader may see."""
    yield "Commits of an epoch, one after another"
    for place, each in enumerate(tables, start=1):
        yield f"  {place:<12} table {each.table} through {each.connector}"
    yield "  meanwhile    a reader of two tables may find the epoch in one and not yet in the other"
    yield "  after crash  recovery first commits what is missing; no table gets the epoch twice"


def _job_lines(graph: Graph) -> Iterator[str]:
    """Yield one line per Spark job. An operator with state has its own job, which reads the input
    once for all downstream operators.
    """
    yield "Spark jobs of an epoch"
    tables = graph.lookup_tables()
    for table in tables:
        yield f"  when due     reads all of lookup table {table.name}"
    always: list[str] = []
    closing: list[str] = []
    shared = 0
    windows = {each.id for each in graph.window_aggregates()}
    for operator in graph.operators:
        if not operator.has_state and not isinstance(operator, SinkSpec):
            continue
        feeds = _feeds(graph, operator)
        read = ", ".join(each.rows_in_words for each in feeds)
        work = operator.job_in_words
        if isinstance(operator, SinkSpec):
            work = f"{_shuffles(graph, operator)}, stages"
        if windows.issuperset(each.id for each in feeds):
            hint = "only if the watermark has passed the end of a window"
            closing.append(f"  on closing   {operator.id}: reads {read}, {work} ({hint})")
        else:
            hint = ""
            if operator.may_have_one_row_per_group and graph.has_one_reader(operator.id):
                shared += 1
                hint = " (with one row per group: in the job of its sink)"
            always.append(f"  always       {operator.id}: reads {read}, {work}{hint}")
    yield from (*always, *closing)
    most = len(always) + len(closing) + len(tables)
    yield f"  in total     {len(always) - shared} at least, {most} at most"


def _shuffles(graph: Graph, sink: SinkSpec) -> str:
    """Describe the shuffles of the job that stages the rows of a sink."""
    found = list(dict.fromkeys(each.shuffles for each in _between(graph, sink) if each.shuffles))
    if sink.keys and sink.pairs_changes:
        found.append("one by the keys of changes")
    return " and ".join(found) or "no shuffle"


def _between(graph: Graph, operator: OperatorSpec) -> list[OperatorSpec]:
    """Return the stateless operators between an operator and its nearest sources or stateful
    operators.
    """
    found: dict[OperatorId, OperatorSpec] = {}
    above = [*operator.input_ids]
    while above:
        each = graph.operator(above.pop())
        if each.id not in found and not _has_rows(each):
            found[each.id] = each
            above += each.input_ids
    return list(found.values())


def _feeds(graph: Graph, operator: OperatorSpec) -> list[OperatorSpec]:
    """Return the nearest upstream sources and stateful operators."""
    found: dict[OperatorId, OperatorSpec] = {}
    for each in map(graph.operator, operator.row_ids):
        nearest = [each] if _has_rows(each) else _feeds(graph, each)
        found |= {one.id: one for one in nearest}
    return list(found.values())


def _has_rows(operator: OperatorSpec) -> bool:
    return operator.has_state or isinstance(operator, SourceSpec)
