"""The flags and exit statuses of the commands that read a state directory, and how they find the
job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from resurgence.cli.output import console
from resurgence.cli.pipeline_file import apply_own_storage_settings
from resurgence.errors import ConfigError, JobHeld, ResurgenceError, UserError, did_you_mean
from resurgence.ids import JobName, job_name
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import job_names
from resurgence.storage.object_store import ObjectStore, split_url, storage_url

DEFAULT_STATE_DIR = ".resurgence"


def _jobs_here(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs of a local state directory that begin with what is typed, for the shell."""
    scheme, path = split_url(storage_url(context.params.get("state_dir") or DEFAULT_STATE_DIR))
    if scheme != "file" or not Path(path).is_dir():
        return []
    return [each for each in _local_jobs(Path(path)) if each.startswith(incomplete)]


StateDir = Annotated[
    str, typer.Option(metavar="DIR", help="Where checkpoints are stored: a folder or a URL.")
]
Name = Annotated[
    str | None,
    typer.Option(
        help="The name of the job; optional if there is only one.", autocompletion=_jobs_here
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces.")]


def open_job(state_dir: str, name: str | None) -> StateBackend:
    """Open the checkpoints of a job for reading; create and claim nothing."""
    url = storage_url(state_dir)
    scheme, path = split_url(url)
    if scheme == "file" and not Path(path).is_dir():
        raise ConfigError(
            f"state directory {path} does not exist", hint="Name it with --state-dir."
        )
    apply_own_storage_settings()
    store = ObjectStore(url)
    if name is not None:
        backend = StateBackend(store, job_name(name))
        if not store.list(backend.paths.generations) and not store.list(backend.paths.epochs):
            raise ConfigError(
                f"there is no job '{name}' in {state_dir}",
                hint=did_you_mean(name, _jobs(store)),
            )
        return backend
    jobs = _jobs(store)
    if not jobs:
        raise ConfigError(
            f"state directory {state_dir} holds no job", hint="Name another with --state-dir."
        )
    if len(jobs) > 1:
        raise ConfigError(
            f"state directory {state_dir} holds several jobs",
            hint=f"Choose with --name: {', '.join(jobs)}.",
        )
    return StateBackend(store, jobs[0])


def _jobs(store: ObjectStore) -> tuple[JobName, ...]:
    scheme, path = split_url(store.url)
    if scheme != "file":
        return job_names(store)
    return _local_jobs(Path(path))


def _local_jobs(folder: Path) -> tuple[JobName, ...]:
    """Return the jobs of a local state directory, without listing every state file."""
    return tuple(
        JobName(each.name) for each in sorted(folder.iterdir()) if (each / "generations").is_dir()
    )


def run_and_exit(debug: bool, command: Callable[[], int]) -> None:
    """Run a command; an error is one message. Exit 2: the user can fix it. 1: something failed, or
    another process has the job.
    """
    try:
        status = command()
    except ResurgenceError as error:
        if debug:
            raise
        console.print_error(error)
        is_fixable = isinstance(error, UserError) and not isinstance(error, JobHeld)
        status = 2 if is_fixable else 1
    raise typer.Exit(status)
