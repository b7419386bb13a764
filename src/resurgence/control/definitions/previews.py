"""The first rows of a query over a sample of its real input, for the editor."""

from __future__ import annotations

from datetime import timedelta

from resurgence.connectors.registry import jar_sets_of
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.engine.preview import PreviewedTable, PreviewRequest, preview
from resurgence.engine.spark.connector_jars import provide, with_jars
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.sql.catalog.declared_names import declarations_and_queries

DEADLINE = timedelta(seconds=90)
ROWS = 20


def preview_text(sql: str, query: str = "") -> str:
    """Return the pipeline of a preview: the declarations of a text, and a query over them; by
    default the query of its last statement that has one.
    """
    declarations, queries = declarations_and_queries(sql)
    chosen = query.strip().rstrip(";").strip() or (queries[-1] if queries else "")
    if not chosen:
        raise UserError("there is no query to preview", hint="Write INSERT INTO or SELECT.")
    head = "".join(f"{each};\n" for each in declarations)
    return f"{head}{chosen};\n"


def previewed_rows(definition: JobDefinition, graph: Graph) -> PreviewedTable:
    """Return the first rows of a graph with one output, computed in a process of their own. Blocks
    until it ends, at most for `DEADLINE`.
    """
    settings = definition.settings
    jars = provide(jar_sets_of(graph), settings.connectors.jars, lambda _line: None)
    functions = definition.functions_file
    request = PreviewRequest(
        graph=graph,
        functions_file=str(functions.absolute()) if functions is not None else None,
        rows=ROWS,
        spark=with_jars(settings.spark, jars),
        storage=settings.storage,
    )
    return preview(request, DEADLINE).tables[-1]
