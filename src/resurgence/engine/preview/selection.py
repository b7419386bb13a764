"""Which part of a pipeline is previewed: all of its outputs, one table or view, or a SELECT over its
tables. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from resurgence.errors import SqlError, UserError, did_you_mean
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec

TERMINAL_CONNECTOR = "stdout"
NO_OUTPUT = "the pipeline has no output"
"""The message of the planner about such a pipeline."""


class QueryError(SqlError):
    """The SELECT that was given is invalid, at this line and column of its own text."""

    code = "sql.query"


def selected_graph(
    sql: str,
    compile_sql: Callable[[str], Graph],
    *,
    table: str | None = None,
    select: str | None = None,
) -> Graph:
    """Return the part of a pipeline that computes the rows of a table, a view or a SELECT; of all
    of its output tables if neither is given.
    """
    if select is not None:
        return _with_select(sql, compile_sql, select)
    if table is None:
        return compile_sql(sql)
    graph = _declared(sql, compile_sql)
    sinks = [each for each in graph.sinks() if each.table.lower() == table.lower()]
    if sinks:
        return feeding(graph, sinks)
    quoted = '"' + table.replace('"', '""') + '"'
    try:
        return _with_select(sql, compile_sql, f"SELECT * FROM {quoted}")
    except QueryError as error:
        sources = [each.table for each in graph.sources()]
        known = [*sources, *(each.table for each in graph.sinks())]
        raise UserError(
            f"cannot preview '{table}': {error.message}",
            hint=did_you_mean(table, known) or error.hint,
        ) from error


def feeding(graph: Graph, sinks: list[SinkSpec]) -> Graph:
    """Return the part of a graph that feeds some of its sinks."""
    needed = {each.id for each in sinks}
    for sink in sinks:
        needed |= {each.id for each in graph.upstream(sink.id)}
    kept = tuple(each for each in graph.operators if each.id in needed)
    return graph.model_copy(update={"operators": kept})


def _with_select(sql: str, compile_sql: Callable[[str], Graph], select: str) -> Graph:
    """Return the graph of a SELECT after the statements of a pipeline."""
    before = f"{_ended(sql)}\n"
    try:
        graph = compile_sql(before + select)
    except SqlError as error:
        raise placed(error, sql) from error
    printed = _printed(graph)
    if len(printed) == len(_printed(_declared(sql, compile_sql))):
        raise UserError("only a SELECT can be previewed", hint="Write a query without INSERT.")
    return feeding(graph, printed[-1:])


def _declared(sql: str, compile_sql: Callable[[str], Graph]) -> Graph:
    """Return the graph of a pipeline, which is empty if it only declares tables."""
    try:
        return compile_sql(sql)
    except SqlError as error:
        if error.message != NO_OUTPUT:
            raise
        return Graph(operators=())


def _printed(graph: Graph) -> list[SinkSpec]:
    return [each for each in graph.sinks() if each.connector == TERMINAL_CONNECTOR]


def placed(error: SqlError, sql: str) -> SqlError:
    """Return an error in a SELECT that followed a pipeline with its line in the SELECT; others as
    they are.
    """
    first_line = f"{_ended(sql)}\n".count("\n")
    if error.line <= first_line:
        return error
    return QueryError(
        error.message, line=error.line - first_line, column=error.column, hint=error.hint
    )


def _ended(sql: str) -> str:
    """Return the text of a pipeline so that a statement can follow."""
    ended = sql.rstrip()
    return f"{ended}\n;" if ended and not ended.endswith(";") else ended
