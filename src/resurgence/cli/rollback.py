"""`resurgence rollback`: a job goes on from an earlier checkpoint, and its sinks take back what came
after it.

The rollback is recorded first; what is taken back here is taken back again by the next run, should
this process die in between.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated

import typer

from resurgence.cli.pipeline_file import compile_file, local_folder
from resurgence.cli.plain_table import table_lines
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, Debug, Name, StateDir, answer, open_job
from resurgence.clock import SystemClock
from resurgence.connectors.contract import Sink
from resurgence.connectors.registry import make_sink
from resurgence.control.metadata import stored_sql
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.graph.secrets import concealer_for, is_masked
from resurgence.ids import NO_EPOCH, Epoch
from resurgence.state.backend import StateBackend
from resurgence.state.inspection import Status, kept_checkpoints, of_each_epoch
from resurgence.state.ownership import owner_here
from resurgence.state.records import OwnerKind


def rollback_command(
    to_epoch: Annotated[
        int, typer.Option(min=0, help="The checkpoint to go on from; 0 to begin from nothing.")
    ],
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    sql: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sql",
            help="The pipeline, if it is not the one that ran last.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    udfs: Annotated[
        Path | None, typer.Option("--udfs", metavar="FILE.py", help="Python functions for the SQL.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    accept_duplicates: Annotated[
        bool,
        typer.Option(
            "--accept-duplicates", help="Also if a sink cannot take back what it has written."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Go back to an earlier checkpoint; sinks take back what was committed after it."""

    def command() -> int:
        backend = open_job(state_dir, name)
        _require_stopped(backend)
        graph = _graph(backend, sql, udfs)
        return roll_back(
            backend, graph, Epoch(to_epoch), dry_run=dry_run, accept_duplicates=accept_duplicates
        )

    answer(debug, command)


def _require_stopped(backend: StateBackend) -> None:
    """Raise JobHeld if a live process runs the job: the rollback would fence it out."""
    now = SystemClock().now()
    asking = owner_here(OwnerKind.ROLLBACK, uuid.uuid4().hex, now)
    backend.leases.require_free(backend.newest_generation(), asking, now)


def roll_back(
    backend: StateBackend,
    graph: Graph,
    to_epoch: Epoch,
    *,
    dry_run: bool,
    accept_duplicates: bool,
) -> int:
    """Say what it does, and do it."""
    views = of_each_epoch(kept_checkpoints(backend))
    usable = [epoch for epoch, view in views.items() if view.status is Status.VALID]
    if to_epoch not in (NO_EPOCH, *usable):
        raise UserError(
            f"cannot roll back to epoch {to_epoch}: it has no checkpoint that can be used",
            hint=f"choose one of {', '.join(map(str, usable)) or 'none'}, or 0 for nothing",
        )
    dying = [
        view for view in views.values() if view.epoch > to_epoch and view.status is not Status.DEAD
    ]
    sinks = {
        each.table: make_sink(each, backend.store.url, backend.paths.job) for each in graph.sinks()
    }
    rows = sum(
        sum(view.manifest.counts.rows_out.values()) for view in dying if view.manifest is not None
    )
    span = f"epochs {dying[0].epoch} to {dying[-1].epoch}" if dying else "no kept epoch"
    print(f"back to epoch {to_epoch}: {span}, {rows:,} rows of output, would be undone")
    print(
        "\n".join(table_lines(("sink", "what it does"), [_told(*each) for each in sinks.items()]))
    )
    known = {each.id for each in graph.sinks()}
    wrote = {
        each
        for view in dying
        if view.manifest is not None
        for each in view.manifest.counts.rows_out
    }
    stuck = [table for table, sink in sinks.items() if not sink.retracts]
    stuck += sorted(each for each in wrote - known)
    if stuck and not accept_duplicates:
        raise UserError(
            f"{', '.join(stuck)} cannot take back what was written, or is not in the pipeline",
            hint="what it has stays; say that this is fine with --accept-duplicates",
        )
    if dry_run:
        print("nothing was changed")
        return 0
    now = SystemClock().now()
    record = backend.record_rollback(backend.claim_generation(now), to_epoch, now)
    if to_epoch == NO_EPOCH or backend.is_committed(to_epoch):
        with concealer_for(each.options for each in graph.sinks()).over_errors():
            for sink in sinks.values():
                sink.retract(record.job, to_epoch, record.highest_epoch)
    else:
        print(
            f"epoch {to_epoch} is not committed yet: the next run does that, and takes back the rest"
        )
    print(f"rolled back: the next run goes on with epoch {record.highest_epoch + 1}")
    return 0


def _told(table: str, sink: Sink) -> tuple[str, str]:
    return table, "takes it back" if sink.retracts else "keeps it, and gets it again"


def _graph(backend: StateBackend, sql: Path | None, udfs: Path | None) -> Graph:
    if sql is not None:
        return compile_file(sql.read_text(encoding="utf-8"), udfs)
    job = backend.paths.job
    text = stored_sql(local_folder(backend.store.url, job) / "resurgence.db", job)
    if text is None:
        raise UserError(
            f"the pipeline of '{job}' is not on record here", hint="give its file with --sql"
        )
    graph = compile_file(text, udfs)
    for sink in graph.sinks():
        masked = [key for key, value in sink.options.items() if is_masked(key, value)]
        if masked:
            raise UserError(
                f"the pipeline of '{job}' is on record without the secrets of its sink "
                f"'{sink.table}': {', '.join(masked)}",
                hint="give its file with --sql",
            )
    return graph
