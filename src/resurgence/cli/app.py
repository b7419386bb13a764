"""`resurgence`: the commands and their flags. What they do stands elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from resurgence import __version__
from resurgence.cli import console
from resurgence.cli.explain import explain_file
from resurgence.cli.run import RunOptions, run_file
from resurgence.errors import ResurgenceError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Streaming SQL on Apache Spark that comes back after any failure, exactly once.",
)

SqlFile = Annotated[
    Path, typer.Argument(metavar="FILE.sql", help="The pipeline.", exists=True, dir_okay=False)
]
Parallelism = Annotated[
    int | None, typer.Option(min=1, max=64, help="Subtasks of each stateful operator.")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")
]
Functions = Annotated[
    Path | None, typer.Option("--udfs", metavar="FILE.py", help="Python functions for the SQL.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE.toml", help="Settings; resurgence.toml here is taken by itself."
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Streaming SQL on Apache Spark that comes back after any failure, exactly once."""
    if version:
        typer.echo(f"resurgence {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.Exit(2)


@app.command()
def run(
    file: SqlFile,
    state_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Where checkpoints are kept: a folder or a URL.")
    ] = ".resurgence",
    name: Annotated[
        str | None, typer.Option(help="The job's name; the file's name by default.")
    ] = None,
    parallelism: Parallelism = None,
    epoch_rows: Annotated[
        int | None, typer.Option(min=1, help="Most rows that an epoch takes from a source.")
    ] = None,
    udfs: Functions = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    events: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write events as JSON lines.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show what an epoch costs.")] = False,
    debug: Debug = False,
) -> None:
    """Run one pipeline until its input ends. The same command again goes on where it was."""
    options = RunOptions(
        file=file,
        state_dir=state_dir,
        name=name,
        parallelism=parallelism,
        epoch_rows=epoch_rows,
        udfs=udfs,
        assignments=tuple(assignments or ()),
        config=config,
        events=events,
        profile=profile,
        debug=debug,
    )
    _guarded(file, debug, lambda: run_file(options))


@app.command()
def explain(
    file: SqlFile,
    parallelism: Parallelism = None,
    udfs: Functions = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    debug: Debug = False,
) -> None:
    """Show the graph of a pipeline: operators, ids, state, and the Spark jobs of an epoch."""
    _guarded(
        file, debug, lambda: explain_file(file, parallelism, udfs, tuple(assignments or ()), config)
    )


def _guarded(file: Path, debug: bool, command: Callable[[], int]) -> None:
    """Run a command; what is the user's to mend is one message and exit 2, never a stack trace."""
    try:
        status = command()
    except ResurgenceError as error:
        if debug:
            raise
        console.complain(error, file)
        status = 2
    raise typer.Exit(status)


def main() -> None:
    """Entry point."""
    app()
