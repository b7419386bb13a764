"""The flags and exit statuses of the commands that call a service."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from resurgence.cli.completion import service_jobs
from resurgence.cli.output import console
from resurgence.cli.service_client import ServiceClient
from resurgence.errors import ConfigError, ResurgenceError, UserError
from resurgence.ids import job_name

Server = Annotated[
    str, typer.Option(metavar="URL", envvar="RESURGENCE_SERVER", help="The address of the service.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="A file with the API key; by default RESURGENCE_API_KEY, if it is set.",
    ),
]
JobArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the job.", autocompletion=service_jobs),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces.")]

KEY_VARIABLE = "RESURGENCE_API_KEY"


def call_service(
    server: str,
    key_file: Path | None,
    debug: bool,
    command: Callable[[ServiceClient], int],
    *,
    name: str | None = None,
    file: Path | None = None,
) -> None:
    """Run a command with a client; an error is one message. Exit 2: the user can fix it. 1: the
    service failed. 0: also on Ctrl-C.
    """
    try:
        if name is not None:
            job_name(name)
        with ServiceClient(server, api_key(key_file)) as client:
            status = command(client)
    except KeyboardInterrupt:
        status = 0
    except ValidationError as error:
        if debug:
            raise
        console.print_error(_invalid_request(error))
        status = 2
    except ResurgenceError as error:
        if debug:
            raise
        console.print_error(error, file)
        status = 2 if isinstance(error, UserError) else 1
    raise typer.Exit(status)


def _invalid_request(error: ValidationError) -> UserError:
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return UserError(f"{place}: {first['msg']}")


def api_key(file: Path | None) -> str | None:
    """Return the API key: from a file, else from the environment."""
    if file is None:
        return os.environ.get(KEY_VARIABLE, "").strip() or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the API key from {file}: {error}") from error
