"""`resurgence check`: validate pipelines and show their graphs, without Spark and without reading
any input.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from resurgence.cli.commands.explain import sql_file
from resurgence.cli.output import console
from resurgence.cli.output.plain_table import count_text
from resurgence.cli.pipeline_file import compile_file, read_sql, settings_for
from resurgence.cli.state_dir import AsJson, Debug, run_and_exit
from resurgence.errors import ResurgenceError, SqlError, UserError
from resurgence.graph.explain import explain_graph
from resurgence.graph.model import Graph


def check_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.sql...", help="The pipelines.")],
    udfs: Annotated[
        Path | None, typer.Option("--udfs", metavar="FILE.py", help="Python functions for the SQL.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting; can be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE.toml",
            help="Settings; by default resurgence.toml, if it exists.",
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Validate pipelines and show what they do, without Spark and without reading any input."""

    def command() -> int:
        settings = settings_for(tuple(assignments or ()), config)
        found = [_examined(each, udfs, debug) for each in files]
        if as_json:
            print(json.dumps([_document(*each) for each in found], indent=2))
        else:
            for file, graph, error in found:
                if error is not None:
                    console.print_error(error, file)
                elif graph is not None:
                    print(f"{file} is valid: {summary(graph)}")
                    if len(files) == 1:
                        print(f"\n{explain_graph(graph, settings.pipeline.parallelism)}", end="")
        return 2 if any(error is not None for _, _, error in found) else 0

    run_and_exit(debug, command)


def summary(graph: Graph) -> str:
    """Return what a graph consists of."""
    with_state = sum(each.has_state for each in graph.operators)
    parts = [
        count_text(len({each.table for each in graph.sources()}), "source"),
        count_text(len({each.table for each in graph.sinks()}), "sink"),
        f"{count_text(with_state, 'operator')} with state" if with_state else "no state",
    ]
    return ", ".join(parts)


Examined = tuple[Path, Graph | None, UserError | None]


def _examined(file: Path, udfs: Path | None, debug: bool) -> Examined:
    try:
        return file, compile_file(read_sql(sql_file(file)), udfs), None
    except UserError as error:
        if debug:
            raise
        return file, None, error


def _document(file: Path, graph: Graph | None, error: ResurgenceError | None) -> dict[str, Any]:
    document: dict[str, Any] = {"file": str(file), "valid": error is None}
    if error is not None:
        document |= {"message": error.message, "hint": error.hint}
    if isinstance(error, SqlError):
        document |= {"line": error.line, "column": error.column}
    if graph is not None:
        document |= {
            "sources": sorted({each.table for each in graph.sources()}),
            "sinks": [
                {"table": each.table, "connector": each.connector, "guarantee": each.guarantee}
                for each in graph.sinks()
            ],
            "operators": [each.id for each in graph.operators],
        }
    return document
