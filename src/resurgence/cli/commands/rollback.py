"""`resurgence rollback`: a job goes on from an earlier checkpoint, and its sinks take back what came
after it.

With the name of a job, a service does it, while the job runs or is stopped. On a state dir it is done
here, and only if no live process runs the job. The rollback is recorded first; what is taken back here
is taken back again by the next run, should this process die in between.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from resurgence.api.job_answer import rollback_answer
from resurgence.api.models import Rollback, RollbackRequest
from resurgence.cli.output.plain_table import count_text, table_lines
from resurgence.cli.pipeline_file import compile_file, local_folder, read_sql
from resurgence.cli.service_client import DEFAULT_SERVER, ServiceClient
from resurgence.cli.service_flags import KeyFile, Server, ask
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, Debug, Name, answer, open_job
from resurgence.cli.whole_number import whole_number
from resurgence.clock import SystemClock
from resurgence.connectors.registry import make_sink, newest_held
from resurgence.control.jobs.rollback_preview import preview_rollback
from resurgence.control.store.metadata import stored_sql
from resurgence.errors import ConfigError, UserError
from resurgence.graph.model import Graph
from resurgence.ids import NO_EPOCH, Epoch, Generation
from resurgence.secrets import concealer_for, is_masked
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.decisions import dead_ranges, is_dead
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind, RollbackRecord


def rollback_command(
    to_epoch: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number(0),
            help="The checkpoint to go on from; 0 to begin from nothing.",
        ),
    ],
    job: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The job of a service.")
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help=f"Without a service: where checkpoints are kept; {DEFAULT_STATE_DIR} by default.",
        ),
    ] = None,
    name: Name = None,
    sql: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sql",
            help="On a state dir: the pipeline, if it is not the one that ran last.",
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
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Go back to an earlier checkpoint; sinks take back what was committed after it."""
    if job is not None and state_dir is None:

        def request(client: ServiceClient) -> int:
            if name is not None or sql is not None or udfs is not None:
                raise ConfigError(
                    "--name, --sql and --udfs are for a rollback on a state dir",
                    hint="Leave them out: the service knows the pipeline of its job.",
                )
            return _ask_service(client, job, to_epoch, dry_run, accept_duplicates)

        ask(server, key_file, debug, request, name=job)

    def command() -> int:
        backend = open_job(state_dir or DEFAULT_STATE_DIR, job or name)
        if not dry_run:
            _require_free(backend, backend.newest_generation())
        graph = _graph(backend, sql, udfs)
        return roll_back(
            backend, graph, Epoch(to_epoch), dry_run=dry_run, accept_duplicates=accept_duplicates
        )

    answer(debug, command)


def _ask_service(
    client: ServiceClient, job: str, to_epoch: int, dry_run: bool, accept_duplicates: bool
) -> int:
    _show(client.rollback_preview(job, to_epoch))
    if dry_run:
        print("nothing was changed")
        return 0
    request = RollbackRequest(to_epoch=to_epoch, accept_duplicates=accept_duplicates)
    answered = client.rollback(job, request)
    print(
        f"{job}: rollback to epoch {to_epoch}; it is {answered.status.state}, "
        f"wanted {answered.desired.wanted}"
    )
    return 0


def _require_free(backend: StateBackend, newest: Generation) -> None:
    """Raise JobHeld if a live process runs the job: the rollback would fence it out."""
    now = SystemClock().now()
    asking = owner_here(OwnerKind.ROLLBACK, uuid.uuid4().hex, now)
    backend.leases.require_free(newest, asking, now)


def roll_back(
    backend: StateBackend,
    graph: Graph,
    to_epoch: Epoch,
    *,
    dry_run: bool,
    accept_duplicates: bool,
) -> int:
    """Say what it does, and do it."""
    preview = preview_rollback(backend, graph, to_epoch)
    _show(rollback_answer(preview))
    if not accept_duplicates:
        preview.require_no_duplicates()
    before = backend.newest_claim()
    directory = before.directory if before is not None else None
    is_here = directory is None or Path(directory).is_dir()
    held = _newest_held(backend, graph, directory) if is_here else NO_EPOCH
    known = preview.undone[1] if preview.undone else to_epoch
    if held > known and not is_dead(held, dead_ranges(backend.rollbacks())):
        print(f"epochs up to {held}, which only the sinks have a record of, are retracted, too")
    if dry_run:
        print("nothing was changed")
        return 0
    now = SystemClock().now()
    claim = backend.claim_generation(
        now, permit=lambda newest: _require_free(backend, newest), directory=directory
    )
    record = backend.record_rollback(claim, to_epoch, now, held)
    if to_epoch != NO_EPOCH and not backend.is_committed(to_epoch):
        print(
            f"epoch {to_epoch} is not committed yet: the next run commits it, and retracts the rest"
        )
    elif not is_here:
        print(f"the job ran in {directory}, which is not here: the next run retracts the output")
    else:
        _retract(backend, graph, record, directory)
    print(f"rolled back: the next run goes on with epoch {record.highest_epoch + 1}")
    return 0


def _newest_held(backend: StateBackend, graph: Graph, directory: str | None) -> Epoch:
    identity, _ = backend.identity()
    with contextlib.chdir(directory) if directory else contextlib.nullcontext():
        return newest_held(graph, backend.store.url, backend.paths.job, identity)


def _retract(
    backend: StateBackend, graph: Graph, record: RollbackRecord, directory: str | None
) -> None:
    with (
        contextlib.chdir(directory) if directory else contextlib.nullcontext(),
        concealer_for(each.options for each in graph.sinks()).over_errors(),
    ):
        for each in graph.sinks():
            sink = make_sink(each, backend.store.url, backend.paths.job)
            sink.retract(record.job, record.to_epoch, record.highest_epoch)


def _show(preview: Rollback) -> None:
    """What a rollback does, for people."""
    if preview.first_undone is None:
        print(f"back to epoch {preview.to_epoch}: no sealed epoch is undone")
    else:
        print(
            f"back to epoch {preview.to_epoch}: epochs {preview.first_undone} to "
            f"{preview.last_undone} are undone, with {count_text(preview.rows, 'row')} of output"
        )
    sinks = [
        (
            each.table,
            each.rows,
            "retracts them" if each.retracts else "keeps them, and gets them a second time",
        )
        for each in preview.sinks
    ]
    print("\n".join(table_lines(("sink", "rows", "what it does"), sinks)))
    sources = [
        (each.operator, each.rows, "its beginning" if each.offset is None else _offset(each.offset))
        for each in preview.sources
    ]
    print("\n".join(table_lines(("source", "rows read again", "from"), sources)))


def _offset(offset: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in offset.items())


def _graph(backend: StateBackend, sql: Path | None, udfs: Path | None) -> Graph:
    if sql is not None:
        return compile_file(read_sql(sql), udfs)
    job = backend.paths.job
    text = stored_sql(local_folder(backend.store.url, job) / "resurgence.db", job)
    if text is None:
        raise UserError(
            f"the pipeline of '{job}' is not on record here", hint="Name its file with --sql."
        )
    graph = compile_file(text, udfs)
    for sink in graph.sinks():
        masked = [key for key, value in sink.options.items() if is_masked(key, value)]
        if masked:
            raise UserError(
                f"the pipeline of '{job}' is on record without the secrets of its sink "
                f"'{sink.table}': {', '.join(masked)}",
                hint="Name its file with --sql.",
            )
    return graph
