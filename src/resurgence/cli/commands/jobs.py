"""`create`, `edit`, `stop`, `start`, `restart`, `rescale`, `delete`: the desired state of a job.

The service responds as soon as it has stored the desired state; the job converges.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from resurgence.api.models import Job, JobDetail, JobRequest, PipelineRequest, RestartRequest
from resurgence.cli.output.waiting import waiting
from resurgence.cli.service_client import DEFAULT_SERVER, ServiceClient, ServiceFailed
from resurgence.cli.service_flags import (
    AsJson,
    Debug,
    JobArgument,
    KeyFile,
    Server,
    call_service,
)
from resurgence.cli.whole_number import whole_number
from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.errors import ConfigError, UserError
from resurgence.ids import job_name
from resurgence.state.inspection.edits import ACCEPT_FLAG

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
FunctionsFile = Annotated[
    Path | None,
    typer.Option(
        "--udfs",
        metavar="FILE.py",
        help="Python functions for the SQL.",
        exists=True,
        dir_okay=False,
    ),
]

_POLL_SECONDS = 0.2


def create_command(
    file: SqlFile,
    name: Annotated[
        str | None, typer.Option(help="The name of the job; by default that of the file.")
    ] = None,
    udfs: FunctionsFile = None,
    parallelism: Parallelism = None,
    assignments: Assignments = None,
    stopped: Annotated[bool, typer.Option("--stopped", help="Do not start it yet.")] = False,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Create a job and start it."""

    def command(client: ServiceClient) -> int:
        request = JobRequest(
            name=job_name(name or file.stem),
            sql=_text(file),
            functions=_text(udfs) if udfs else None,
            settings=_settings(assignments, parallelism),
            start=not stopped,
        )
        return _print_job("created", client.create(request), as_json)

    call_service(server, key_file, debug, command, file=file)


def edit_command(
    name: JobArgument,
    file: SqlFile,
    udfs: FunctionsFile = None,
    parallelism: Parallelism = None,
    assignments: Assignments = None,
    accept_state_loss: Annotated[
        bool,
        typer.Option(ACCEPT_FLAG, help="Edit even if the pipeline loses some of its state."),
    ] = False,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Replace a job's pipeline, functions and settings. Operators that the edit does not touch keep
    their state.
    """

    def command(client: ServiceClient) -> int:
        settings = _settings(assignments, parallelism)
        if accept_state_loss:
            settings["checkpoint.accept_state_loss"] = "true"
        request = PipelineRequest(
            sql=_text(file), functions=_text(udfs) if udfs else None, settings=settings
        )
        return _print_job("edited", client.edit(name, request), as_json)

    call_service(server, key_file, debug, command, name=name, file=file)


def stop_command(
    name: JobArgument,
    mode: Annotated[
        StopMode,
        typer.Option(help="checkpoint: finish the epoch first. force: end the worker at once."),
    ] = StopMode.CHECKPOINT,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has stopped.")] = False,
    timeout: Annotated[
        int,
        typer.Option(parser=whole_number(1), metavar="SECONDS", help="Maximum wait with --wait."),
    ] = 300,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Stop a job; `start` resumes it."""

    def command(client: ServiceClient) -> int:
        job: Job = client.stop(name, mode)
        if wait:
            job = _wait_until_ended(client, job, timedelta(seconds=timeout))
        _print_job(f"stop ({mode})", job, as_json)
        return 1 if wait and job.status.state is StateName.FAILED else 0

    call_service(server, key_file, debug, command, name=name)


def start_command(
    name: JobArgument,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Start a job that was stopped or has failed."""
    call_service(
        server,
        key_file,
        debug,
        lambda client: _print_job("start", client.start(name), as_json),
        name=name,
    )


def restart_command(
    name: JobArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for a checkpoint first.")
    ] = False,
    without_state: Annotated[
        bool, typer.Option("--without-state", help="Start without state, this once.")
    ] = False,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Start a new run of a job, whatever state it is in."""
    request = RestartRequest(force=force, without_state=without_state)
    call_service(
        server,
        key_file,
        debug,
        lambda client: _print_job("restart", client.restart(name, request), as_json),
        name=name,
    )


def rescale_command(
    name: JobArgument,
    parallelism: Annotated[
        int,
        typer.Argument(
            metavar="N", parser=whole_number(1, 64), help="Subtasks of each stateful operator."
        ),
    ],
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Change the parallelism of a job."""
    call_service(
        server,
        key_file,
        debug,
        lambda client: _print_job(
            f"rescale to {parallelism}", client.rescale(name, parallelism), as_json
        ),
        name=name,
    )


def delete_command(
    name: JobArgument,
    with_state: Annotated[
        bool, typer.Option("--with-state", help="Delete its checkpoints, too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Stop a job at once and delete it. Its state is retained unless --with-state is passed."""

    def command(client: ServiceClient) -> int:
        if not yes:
            _confirm(client.job(name), with_state)
        return _print_job("delete", client.delete(name, with_state=with_state), as_json)

    call_service(server, key_file, debug, command, name=name)


def _confirm(job: JobDetail, with_state: bool) -> None:
    what = "with its checkpoints" if with_state else "its checkpoints stay"
    if not sys.stdin.isatty():
        raise UserError(
            f"deleting '{job.name}' requires a confirmation", hint="Confirm with --yes."
        )
    if not typer.confirm(f"Delete {job.name} ({job.status.state}; {what})?", err=True):
        raise UserError("nothing was deleted")


def _wait_until_ended(client: ServiceClient, job: Job, longest: timedelta) -> Job:
    deadline = time.monotonic() + longest.total_seconds()
    with waiting(f"{job.name} is stopping") as wait:
        while job.status.state not in TERMINAL:
            if time.monotonic() >= deadline:
                waited = f"{longest.total_seconds():.0f} s"
                raise ServiceFailed(
                    f"'{job.name}' is still {job.status.state} after {waited}",
                    hint="Wait until it has stopped, or stop it with --mode force.",
                )
            time.sleep(_POLL_SECONDS)
            job = client.job(job.name)
            wait.step(0)
    return job


def _print_job(what: str, job: Job, as_json: bool) -> int:
    if as_json:
        print(json.dumps(job.model_dump(mode="json"), indent=2))
    else:
        print(f"{job.name}: {what}; state {job.status.state}, desired {job.desired.wanted}")
    return 0


def _settings(assignments: list[str] | None, parallelism: int | None) -> dict[str, str]:
    values = {}
    for assignment in assignments or ():
        key, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"'{assignment}' is not a setting", hint="Write --set key=value.")
        values[key.strip()] = value.strip()
    if parallelism is not None:
        values["pipeline.parallelism"] = str(parallelism)
    return values


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
