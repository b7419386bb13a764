"""`logs` and `events` of a job, and following them while the service may come and go."""

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
    ask,
)
from resurgence.cli.whole_number import whole_number

PATIENCE = timedelta(minutes=5)
"""A service that is away for longer is given up."""
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_POLL_SECONDS = 20

T = TypeVar("T")
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")]


def logs_command(
    name: JobArgument,
    follow: Follow = False,
    lines: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number(1, 10_000), help="How many lines of what there is."
        ),
    ] = 200,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Show the end of a worker's log; the next worker's, too, with --follow."""

    def command(client: ServiceClient) -> int:
        part = client.last_log_lines(name, lines)
        _write(part.text)
        return _follow_log(client, name, part) if follow else 0

    ask(server, key_file, debug, command, name=name)


def events_command(
    name: JobArgument,
    follow: Follow = False,
    after: Annotated[
        int,
        typer.Option(metavar="N", parser=whole_number(0), help="Only what came after this event."),
    ] = 0,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Show what happened to a job; with --json one object per line."""

    def command(client: ServiceClient) -> int:
        page, seen = client.events(name, after), after
        while page:
            seen = _print_events(page, as_json)
            page = [] if follow else client.events(name, seen)
        return _follow_events(client, name, seen, as_json) if follow else 0

    ask(server, key_file, debug, command, name=name)


class Patient:
    """Asks a service that may be restarted meanwhile; says so once, and once when it is back."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self._patience = patience.total_seconds()

    def ask(self, look: Callable[[], T]) -> T:
        """What the service says, if it says so in time."""
        lost_at: float | None = None
        while True:
            try:
                found = look()
            except (NoService, ServiceFailed) as error:
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now
                    _note(f"{error.message}; trying again for {self._patience:.0f} s")
                if now - lost_at >= self._patience:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                if lost_at is not None:
                    _note("the service answers again")
                return found


def _follow_events(client: ServiceClient, name: str, seen: int, as_json: bool) -> int:
    patient = Patient()
    while True:
        try:
            page = patient.ask(partial(client.events, name, seen, wait=_POLL_SECONDS))
        except ServiceRefused as error:
            return _end_if_deleted(error)
        if page:
            seen = _print_events(page, as_json)


def _follow_log(client: ServiceClient, name: str, part: LogAnswer) -> int:
    patient = Patient()
    worker, offset = part.worker, part.offset
    while True:
        try:
            part = patient.ask(partial(client.log_after, name, worker, offset))
        except ServiceRefused as error:
            if error.answered != "worker.unknown":
                return _end_if_deleted(error)
            worker, offset = "", 0
            continue
        _write(part.text)
        worker, offset = part.worker, part.offset
        if not part.text:
            if part.newest != worker:
                _note(f"the log of worker {part.newest}")
                worker, offset = part.newest, 0
            else:
                time.sleep(_LOOK_SECONDS)


def _end_if_deleted(error: ServiceRefused) -> int:
    if error.answered != "job.unknown":
        raise error
    _note("the job is gone")
    return 0


def _print_events(events: Iterable[JobEvent], as_json: bool) -> int:
    """Print a page; the id of its last event."""
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
