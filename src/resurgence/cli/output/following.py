"""`logs` and `events` of a job. With --follow they survive restarts of the service."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Annotated, TypeVar

import typer

from resurgence.api.models import JobEvent
from resurgence.cli.output import console
from resurgence.cli.service_client import (
    DEFAULT_SERVER,
    LogAnswer,
    NoService,
    ServiceClient,
    ServiceFailed,
    ServiceRefused,
)
from resurgence.cli.service_flags import (
    AsJson,
    Debug,
    JobArgument,
    KeyFile,
    Server,
    call_service,
)
from resurgence.cli.whole_number import whole_number

PATIENCE = timedelta(minutes=5)
"""How long to retry while the service is unavailable."""
_RETRY_SECONDS = 1.0
_POLL_SECONDS = 1.0
_LONG_POLL_SECONDS = 20

T = TypeVar("T")
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until Ctrl-C.")]


def logs_command(
    name: JobArgument,
    follow: Follow = False,
    lines: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number(1, 10_000), help="Number of existing lines to show."
        ),
    ] = 200,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Show the end of the worker's log; with --follow, also the logs of later workers."""

    def command(client: ServiceClient) -> int:
        part = client.last_log_lines(name, lines)
        _write(part.text)
        return _follow_log(client, name, part) if follow else 0

    call_service(server, key_file, debug, command, name=name)


def events_command(
    name: JobArgument,
    follow: Follow = False,
    after: Annotated[
        int,
        typer.Option(metavar="N", parser=whole_number(0), help="Only events after this id."),
    ] = 0,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Show the events of a job; with --json, one object per line."""

    def command(client: ServiceClient) -> int:
        page, seen = client.events(name, after), after
        while page:
            seen = _print_events(page, as_json)
            page = [] if follow else client.events(name, seen)
        return _follow_events(client, name, seen, as_json) if follow else 0

    call_service(server, key_file, debug, command, name=name)


class Retrying:
    """Retries requests while the service restarts; reports the start and the end of the outage."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self._patience = patience.total_seconds()

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of a request; raise its error if the outage exceeds the patience."""
        lost_at: float | None = None
        while True:
            try:
                found = request()
            except (NoService, ServiceFailed) as error:
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now
                    _note(f"{error.message}; retrying for {self._patience:.0f} s")
                if now - lost_at >= self._patience:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                if lost_at is not None:
                    _note("the service is available again")
                return found


def _follow_events(client: ServiceClient, name: str, seen: int, as_json: bool) -> int:
    retrying = Retrying()
    while True:
        try:
            page = retrying.call(partial(client.events, name, seen, wait=_LONG_POLL_SECONDS))
        except ServiceRefused as error:
            return _end_if_deleted(error)
        if page:
            seen = _print_events(page, as_json)


def _follow_log(client: ServiceClient, name: str, part: LogAnswer) -> int:
    retrying = Retrying()
    worker, offset = part.worker, part.offset
    while True:
        try:
            part = retrying.call(partial(client.log_after, name, worker, offset))
        except ServiceRefused as error:
            if error.response_code != "worker.unknown":
                return _end_if_deleted(error)
            worker, offset = "", 0
            continue
        _write(part.text)
        worker, offset = part.worker, part.offset
        if not part.text:
            if part.newest != worker:
                _note(f"log of worker {part.newest}")
                worker, offset = part.newest, 0
            else:
                time.sleep(_POLL_SECONDS)


def _end_if_deleted(error: ServiceRefused) -> int:
    if error.response_code != "job.unknown":
        raise error
    _note("the job was deleted")
    return 0


def _print_events(events: Iterable[JobEvent], as_json: bool) -> int:
    """Print a page; return the id of its last event."""
    last = 0
    for each in events:
        facts = each.model_dump()
        text = None if as_json else console.describe(facts)
        print(json.dumps(facts) if as_json else f"{each.at} {text or each.event}", flush=True)
        last = each.id
    return last


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
