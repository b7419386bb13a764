"""`resurgence preview`: the first rows of a query over a sample of its real input."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from resurgence.cli.commands.explain import sql_file
from resurgence.cli.output import console
from resurgence.cli.output.plain_table import count_text
from resurgence.cli.output.query_rows import OutputFormat, print_rows
from resurgence.cli.output.waiting import waiting
from resurgence.cli.pipeline_file import compile_file, read_sql, settings_for
from resurgence.cli.state_dir import Debug
from resurgence.cli.whole_number import whole_number
from resurgence.connectors.registry import jar_sets_of
from resurgence.engine.preview.process import preview
from resurgence.engine.preview.request import Preview, PreviewRequest
from resurgence.engine.preview.selection import QueryError, placed, selected_graph
from resurgence.engine.spark.connector_jars import provide, with_jars
from resurgence.errors import ConfigError, ResurgenceError, SqlError, UserError
from resurgence.store_settings import apply_storage_settings


def preview_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.sql", help="The pipeline.")],
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="Only this table or view; by default every output."
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option("--sql", metavar="SELECT", help="A query over the tables of the pipeline."),
    ] = None,
    rows: Annotated[
        int, typer.Option(parser=whole_number(1, 10_000), metavar="N", help="Rows to print.")
    ] = 10,
    sample: Annotated[
        int,
        typer.Option(
            parser=whole_number(1, 10_000_000), metavar="N", help="Rows to read of each source."
        ),
    ] = 10_000,
    timeout: Annotated[
        int, typer.Option(parser=whole_number(1), metavar="SECONDS", help="Maximum wait.")
    ] = 120,
    layout: Annotated[
        OutputFormat, typer.Option("--format", help="The output format.")
    ] = OutputFormat.TABLE,
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
    debug: Debug = False,
) -> None:
    """Print the first rows of a query, computed from a sample of its real input. Nothing is written
    or recorded.
    """
    try:
        if table is not None and select is not None:
            raise ConfigError("--table and --sql cannot be combined", hint="Pass one of them.")
        settings = settings_for(tuple(assignments or ()), config)
        text = read_sql(sql_file(file))
        graph = selected_graph(
            text, lambda sql: compile_file(sql, udfs), table=table, select=select
        )
        apply_storage_settings(settings.storage)
        with waiting("preparing") as wait:
            jars = provide(jar_sets_of(graph), settings.connectors.jars, wait.now)
            request = PreviewRequest(
                graph=graph,
                functions_file=str(udfs.absolute()) if udfs is not None else None,
                rows=rows,
                sample=sample,
                spark=with_jars(settings.spark, jars),
                storage=settings.storage,
            )
            wait.now(f"computing a preview of at most {sample:,} rows per source")
            try:
                found = preview(request, timedelta(seconds=timeout))
            except SqlError as error:
                raise (error if select is None else placed(error, text)) from error
        show(found, layout)
    except ResurgenceError as error:
        if debug:
            raise
        console.print_error(error, Path("--sql") if isinstance(error, QueryError) else file)
        raise typer.Exit(2 if isinstance(error, UserError) else 1) from error


def show(found: Preview, layout: OutputFormat) -> None:
    """Print the rows of each table, and on standard error from how much input they are."""
    for number, each in enumerate(found.tables):
        if len(found.tables) > 1:
            print(each.table if number == 0 else f"\n{each.table}")
        print_rows(each.columns, iter([tuple(row) for row in each.rows]), layout)
        if not each.rows:
            print("no rows" if each.is_complete else "more rows", file=sys.stderr)
        elif not each.is_complete:
            print(f"only the first {count_text(len(each.rows), 'row')}", file=sys.stderr)
    for name, count in found.rows_read.items():
        bad = found.rows_bad.get(name, 0)
        left_out = f", {count_text(bad, 'bad row')} left out" if bad else ""
        print(f"read {count_text(count, 'row')} of {name}{left_out}", file=sys.stderr)
