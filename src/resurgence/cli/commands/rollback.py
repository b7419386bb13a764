"""`resurgence rollback`: a job resumes from an earlier checkpoint; its sinks retract later output.

With the name of a job, a service rolls it back, running or stopped. On a state directory this
process does, and only if no live process runs the job. The rollback is recorded before output is
retracted, so that the next run completes it if this process dies in between.
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
from resurgence.cli.service_flags import KeyFile, Server, call_service
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, Debug, Name, open_job, run_and_exit
from resurgence.cli.whole_number import whole_number
from resurgence.clock import SystemClock
from resurgence.connectors.dead_letter_table import DeadLetterTable
from resurgence.connectors.registry import make_sink
from resurgence.control.jobs.rollback_preview import held_by_sinks, preview_rollback
from resurgence.control.store.metadata import stored_sql
from resurgence.errors import ConfigError, UserError
from resurgence.graph.model import Graph
from resurgence.ids import NO_EPOCH, Epoch, Generation
from resurgence.secrets import concealer_for, is_masked
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind, RollbackRecord


def rollback_command(
    to_epoch: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number(0),
            help="The epoch to roll back to; 0 for the beginning.",
        ),
    ],
    job: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A job of the service.")
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help=f"Without a service: where checkpoints are stored; by default {DEFAULT_STATE_DIR}.",
        ),
    ] = None,
    name: Name = None,
    sql: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sql",
            help="Without a service: the pipeline, if it is not the one that ran last.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    udfs: Annotated[
        Path | None, typer.Option("--udfs", metavar="FILE.py", help="Python functions for the SQL.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would happen.")
    ] = False,
    accept_duplicates: Annotated[
        bool,
        typer.Option(
            "--accept-duplicates", help="Roll back even if a sink cannot retract its output."
        ),
    ] = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Roll back to an earlier checkpoint. Sinks retract the output committed after it."""
    if job is not None and state_dir is None:

        def request(client: ServiceClient) -> int:
            if name is not None or sql is not None or udfs is not None:
                raise ConfigError(
                    "--name, --sql and --udfs apply to a state directory, not to a service",
                    hint="Omit them: the service knows the pipeline of its job.",
                )
            return _roll_back_by_service(client, job, to_epoch, dry_run, accept_duplicates)

        call_service(server, key_file, debug, request, name=job)

    def command() -> int:
        backend = open_job(state_dir or DEFAULT_STATE_DIR, job or name)
        if not dry_run:
            _require_free(backend, backend.newest_generation())
        graph = _graph(backend, sql, udfs)
        return roll_back(
            backend, graph, Epoch(to_epoch), dry_run=dry_run, accept_duplicates=accept_duplicates
        )

    run_and_exit(debug, command)


def _roll_back_by_service(
    client: ServiceClient, job: str, to_epoch: int, dry_run: bool, accept_duplicates: bool
) -> int:
    _show(client.rollback_preview(job, to_epoch))
    if dry_run:
        print("nothing was changed")
        return 0
    request = RollbackRequest(to_epoch=to_epoch, accept_duplicates=accept_duplicates)
    updated = client.rollback(job, request)
    print(
        f"{job}: rollback to epoch {to_epoch}; state {updated.status.state}, "
        f"desired {updated.desired.wanted}"
    )
    return 0


def _require_free(backend: StateBackend, newest: Generation) -> None:
    """Raise JobHeld if a live process runs the job: the rollback would fence it out."""
    now = SystemClock().now()
    owner = owner_here(OwnerKind.ROLLBACK, uuid.uuid4().hex, now)
    backend.leases.require_free(newest, owner, now)


def roll_back(
    backend: StateBackend,
    graph: Graph,
    to_epoch: Epoch,
    *,
    dry_run: bool,
    accept_duplicates: bool,
) -> int:
    """Print the effects of a rollback, and perform it unless `dry_run`."""
    before = backend.newest_claim()
    directory = before.directory if before is not None else None
    exists = directory is None or Path(directory).is_dir()
    held = _held_by_sinks(backend, graph, directory) if exists else NO_EPOCH
    preview = preview_rollback(backend, graph, to_epoch, held)
    _show(rollback_answer(preview))
    if not accept_duplicates:
        preview.require_no_duplicates()
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
            f"epoch {to_epoch} is not committed yet: the next run commits it and retracts the rest"
        )
    elif not exists:
        print(
            f"the job ran in {directory}, which is missing here: the next run retracts the output"
        )
    else:
        _retract(backend, graph, record, directory)
    print(f"rolled back: the next run continues with epoch {record.highest_epoch + 1}")
    return 0


def _held_by_sinks(backend: StateBackend, graph: Graph, directory: str | None) -> Epoch:
    with contextlib.chdir(directory) if directory else contextlib.nullcontext():
        return held_by_sinks(backend, graph)


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
        letters = DeadLetterTable(backend.store.url, backend.paths)
        letters.retract(record.job, record.to_epoch, record.highest_epoch)


def _show(preview: Rollback) -> None:
    """Print the effects of a rollback."""
    if preview.first_undone is None:
        print(f"rollback to epoch {preview.to_epoch}: no sealed epoch is undone")
    else:
        print(
            f"rollback to epoch {preview.to_epoch}: epochs {preview.first_undone} to "
            f"{preview.last_undone} are undone, with {count_text(preview.rows, 'row')} of output"
        )
    if preview.last_held is not None:
        print(
            f"epochs up to {preview.last_held}, which only the sinks have recorded, are retracted, "
            "too"
        )
    sinks = [
        (
            each.table,
            each.rows,
            "retracts them" if each.retracts else "keeps them and receives them again",
        )
        for each in preview.sinks
    ]
    print("\n".join(table_lines(("sink", "rows", "effect"), sinks)))
    sources = [
        (each.operator, each.rows, "the beginning" if each.offset is None else _offset(each.offset))
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
            f"the pipeline of '{job}' is not stored here", hint="Name its file with --sql."
        )
    graph = compile_file(text, udfs)
    for sink in graph.sinks():
        masked = [key for key, value in sink.options.items() if is_masked(key, value)]
        if masked:
            raise UserError(
                f"the pipeline of '{job}' is stored without the secrets of its sink "
                f"'{sink.table}': {', '.join(masked)}",
                hint="Name its file with --sql.",
            )
    return graph
