"""`resurgence state`: the state of any retained checkpoint, as SQL tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resurgence.cli.output.plain_table import bytes_text, table_lines
from resurgence.cli.output.query_rows import OutputFormat, print_rows
from resurgence.cli.state_dir import (
    DEFAULT_STATE_DIR,
    AsJson,
    Debug,
    Name,
    StateDir,
    open_job,
    run_and_exit,
)
from resurgence.cli.whole_number import whole_number
from resurgence.state.inspection.checkpoints import checkpoint_of, kept_checkpoints

if TYPE_CHECKING:
    from resurgence.state.inspection.state_database import StateDatabase

commands = typer.Typer(no_args_is_help=True, help="Query a job's state with SQL.")

AtEpoch = Annotated[
    int | None,
    typer.Option(
        "--epoch",
        parser=whole_number(),
        metavar="N",
        help="The epoch of the checkpoint; by default the newest valid one.",
    ),
]


@commands.command("tables")
def tables_command(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    epoch: AtEpoch = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the tables of a checkpoint."""
    run_and_exit(debug, lambda: list_tables(state_dir, name, epoch, as_json))


@commands.command("schema")
def schema_command(
    table: Annotated[str | None, typer.Argument(help="The table; by default all tables.")] = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    epoch: AtEpoch = None,
    debug: Debug = False,
) -> None:
    """Show the columns of the tables."""
    run_and_exit(debug, lambda: show_schema(state_dir, name, epoch, table))


@commands.command("query")
def query_command(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT, in DuckDB's dialect.")],
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    epoch: AtEpoch = None,
    layout: Annotated[
        OutputFormat, typer.Option("--format", help="The output format.")
    ] = OutputFormat.TABLE,
    debug: Debug = False,
) -> None:
    """Query the tables of a checkpoint, read-only."""
    run_and_exit(debug, lambda: query_state(state_dir, name, epoch, sql, layout))


def list_tables(state_dir: str, name: str | None, epoch: int | None, as_json: bool) -> int:
    """Print the tables of a checkpoint."""
    from resurgence.state.inspection.state_database import CHECKPOINTS, state_tables

    views = kept_checkpoints(open_job(state_dir, name))
    view = checkpoint_of(views, epoch)
    rows: list[dict[str, Any]] = [
        {
            "table": each.name,
            "operator": each.operator,
            "kind": str(each.checkpoint.kind),
            "rows": each.rows,
            "files": len(each.checkpoint.files),
            "bytes": sum(file.bytes for file in each.checkpoint.files),
        }
        for each in state_tables(view)
    ]
    if as_json:
        print(json.dumps({"epoch": view.epoch, "tables": rows}, indent=2))
        return 0
    print(f"state after epoch {view.epoch}")
    about = {"table": CHECKPOINTS, "operator": None, "kind": None, "rows": len(views), "files": 0}
    cells = [
        (
            *(each[key] for key in ("table", "operator", "kind", "rows", "files")),
            bytes_text(each.get("bytes", 0)),
        )
        for each in (*rows, about)
    ]
    for line in table_lines(("table", "operator", "kind", "rows", "files", "size"), cells):
        print(line)
    return 0


def show_schema(state_dir: str, name: str | None, epoch: int | None, table: str | None) -> int:
    """Print the columns of one table, or of all."""
    with _open(state_dir, name, epoch) as database:
        tables = (table,) if table is not None else database.names
        rows = [(each, *column) for each in tables for column in database.columns(each)]
    for line in table_lines(("table", "column", "type"), rows):
        print(line)
    return 0


def query_state(
    state_dir: str, name: str | None, epoch: int | None, sql: str, layout: OutputFormat
) -> int:
    """Print the result of a query."""
    with _open(state_dir, name, epoch) as database:
        print_rows(*database.query(sql), layout)
    return 0


def _open(state_dir: str, name: str | None, epoch: int | None) -> StateDatabase:
    from resurgence.state.inspection.state_database import StateDatabase

    backend = open_job(state_dir, name)
    views = kept_checkpoints(backend)
    return StateDatabase(backend, checkpoint_of(views, epoch), views)
