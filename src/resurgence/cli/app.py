"""`resurgence`: the commands and their flags. Other modules implement them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from resurgence import __version__
from resurgence.cli.commands import (
    checkpoints,
    connectors,
    dead_letters,
    doctor,
    jobs,
    keys,
    ledger,
    serve,
    state_tables,
)
from resurgence.cli.commands.check import check_command
from resurgence.cli.commands.explain import explain_file, explain_restore, sql_file
from resurgence.cli.commands.init import init_command
from resurgence.cli.commands.preview import preview_command
from resurgence.cli.commands.rollback import rollback_command
from resurgence.cli.commands.run import RunOptions, run_file
from resurgence.cli.guide import add_guide
from resurgence.cli.output import console, following, job_views
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, Name, StateDir
from resurgence.cli.whole_number import whole_number
from resurgence.errors import JobHeld, ResurgenceError, UserError
from resurgence.state.inspection.edits import ACCEPT_FLAG

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Streaming SQL on Apache Spark with exactly-once recovery from any failure.",
)

SqlFile = Annotated[
    Path, typer.Argument(metavar="FILE.sql", help="The pipeline.", exists=True, dir_okay=False)
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=whole_number(1, 64), help="Subtasks of each stateful operator."
    ),
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; can be repeated.")
]
Functions = Annotated[
    Path | None, typer.Option("--udfs", metavar="FILE.py", help="Python functions for the SQL.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE.toml", help="Settings; by default resurgence.toml, if it exists."
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Streaming SQL on Apache Spark with exactly-once recovery from any failure."""
    if version:
        typer.echo(f"resurgence {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.Exit(2)


@app.command()
def run(
    file: SqlFile,
    state_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Where checkpoints are stored: a folder or a URL.")
    ] = ".resurgence",
    name: Annotated[
        str | None, typer.Option(help="The name of the job; by default that of the file.")
    ] = None,
    parallelism: Parallelism = None,
    epoch_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number(1), help="Maximum rows that an epoch reads per source."
        ),
    ] = None,
    udfs: Functions = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    events: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write events as JSON lines.")
    ] = None,
    accept_state_loss: Annotated[
        bool,
        typer.Option(
            ACCEPT_FLAG, help="Run an edited pipeline even if it loses some of its state."
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Fence out the process that runs the job, if any."),
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time of an epoch goes.")
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve the web console on this machine while it runs.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run one pipeline until its input ends. Run the same command again to resume it."""
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
        accept_state_loss=accept_state_loss,
        take_over=take_over,
        profile=profile,
        debug=debug,
        ui=ui,
    )
    _guarded(file, debug, lambda: run_file(options))


@app.command()
def explain(
    what: Annotated[
        list[Path],
        typer.Argument(
            metavar="[restore] FILE.sql",
            help="The pipeline; with `restore`, what a restore would do with its state.",
        ),
    ],
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    parallelism: Parallelism = None,
    udfs: Functions = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    debug: Debug = False,
) -> None:
    """Show the graph of a pipeline, or what a restore would do with each operator's state: keep,
    migrate, drop, rebuild.
    """
    file, settings = what[-1], tuple(assignments or ())

    def command() -> int:
        if len(what) == 1:
            return explain_file(sql_file(file), parallelism, udfs, settings, config)
        if len(what) == 2 and what[0] == Path("restore"):
            return explain_restore(
                sql_file(file), state_dir, name, parallelism, udfs, settings, config
            )
        raise UserError(
            "explain requires one file", hint="Write explain FILE.sql or explain restore FILE.sql."
        )

    _guarded(file, debug, command)


app.command("init")(init_command)
app.command("check")(check_command)
app.command("preview")(preview_command)
app.add_typer(checkpoints.commands, name="checkpoints")
app.add_typer(state_tables.commands, name="state")
app.add_typer(dead_letters.commands, name="dead-letters")
app.command("ledger")(ledger.ledger_command)
app.command("rollback")(rollback_command)
app.add_typer(connectors.commands, name="connectors")
app.command("doctor")(doctor.doctor_command)
app.command("serve")(serve.serve_command)
app.add_typer(keys.commands, name="keys")
app.command("create")(jobs.create_command)
app.command("list")(job_views.list_command)
app.command("show")(job_views.show_command)
app.command("edit")(jobs.edit_command)
app.command("stop")(jobs.stop_command)
app.command("start")(jobs.start_command)
app.command("restart")(jobs.restart_command)
app.command("rescale")(jobs.rescale_command)
app.command("delete")(jobs.delete_command)
app.command("logs")(following.logs_command)
app.command("events")(following.events_command)
app.command("incidents")(job_views.incidents_command)
app.command("workers")(job_views.workers_command)
add_guide(app)


def _guarded(file: Path, debug: bool, command: Callable[[], int]) -> None:
    """Run a command. An error is one message and exit 2, or 1 if another process has the job."""
    try:
        status = command()
    except ResurgenceError as error:
        if debug:
            raise
        console.print_error(error, file)
        status = 1 if isinstance(error, JobHeld) else 2
    raise typer.Exit(status)


def main() -> None:
    """Entry point."""
    app()
