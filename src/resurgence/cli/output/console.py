"""Terminal output: one message per error, live progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from resurgence.control.jobs.restart_policy import GiveUp
from resurgence.control.jobs.transitions import StateName
from resurgence.control.telemetry.events import Event
from resurgence.errors import ResurgenceError, SqlError
from resurgence.graph.watermarks import END_OF_TIME

_SHOWN_ABOVE = ("failure", "incident", "fallback", "checkpoint_damaged", "owner_watched", "jars")
"""Events that are printed above the live view."""
ERROR_CONSOLE = Console(stderr=True, highlight=False, soft_wrap=True)


def print_error(error: ResurgenceError, sql_file: Path | None = None) -> None:
    """Print an error: its place in the SQL, the message and the hint."""
    place = ""
    if isinstance(error, SqlError):
        file = sql_file or "the SQL of the job"
        place = f"{file}:{error.line}:{error.column}: "
    print_failure(f"{place}{error.message}", error.hint)


def print_failure(message: str, hint: str = "") -> None:
    ERROR_CONSOLE.print(f"[bold red]error:[/] {_plain(message)}")
    if hint:
        ERROR_CONSOLE.print(f"[bold]hint:[/] {_plain(hint)}")


def print_diagnosis(given_up: GiveUp) -> None:
    """Print what is known about a failed job beyond the reason."""
    fault = given_up.first_fault
    if given_up.tried:
        ERROR_CONSOLE.print(f"[bold]tried:[/] {', then '.join(given_up.tried)}")
    if fault.position:
        ERROR_CONSOLE.print(f"[bold]input:[/] {_plain(fault.position)}")
    if fault.traceback:
        ERROR_CONSOLE.print(_plain(fault.traceback.rstrip()))


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def watermark_text(mark: object) -> str:
    """Format a watermark."""
    if not isinstance(mark, int):
        return "none"
    if mark == END_OF_TIME:
        return "end of input"
    try:
        return datetime.fromtimestamp(mark / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(mark)


class ProgressLine:
    """The progress of a run, updated from its events."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._state = "Created"
        self._state_began_at = time.monotonic()
        self._epoch = 0
        self._rows = 0
        self._rate = 0.0
        self._watermark = "none"
        self._checkpointed_at: float | None = None
        self._incidents = 0
        self._state_bytes = 0
        self._bad = 0
        self._late = 0
        self._dead = 0
        self._replay = ""
        self._replay_began_at = 0.0

    def note(self, event: Event) -> None:
        match event["event"]:
            case "state":
                self._state = str(event["to"])
                self._state_began_at = time.monotonic()
                self._replay = ""
            case "replay_started":
                self._replay = replay_text(event)
                self._replay_began_at = time.monotonic()
            case "checkpoint":
                self._replay = ""
                rows, duration = _number(event["rows"]), _number(event["duration"])
                self._epoch = int(_number(event["epoch"]))
                self._rows += int(rows)
                self._rate = rows / duration if duration else 0.0
                self._watermark = watermark_text(event["watermark"])
                self._state_bytes = int(_number(event["state_bytes"]))
                self._bad += int(_number(event["bad"]))
                self._late += int(_number(event["late"]))
                self._dead += int(_number(event.get("dead")))
                self._checkpointed_at = time.monotonic()
            case "incident":
                self._incidents += 1

    def table(self) -> Table:
        """Return the live view."""
        age = (
            "none yet"
            if self._checkpointed_at is None
            else f"{time.monotonic() - self._checkpointed_at:.0f} s ago"
        )
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_row("[bold]job[/]", self._job, "[bold]state[/]", self.state_text())
        table.add_row("[bold]epoch[/]", str(self._epoch), "[bold]last checkpoint[/]", age)
        table.add_row(
            "[bold]rows[/]",
            f"{self._rows:,} ({self._rate:,.0f}/s)",
            "[bold]watermark[/]",
            self._watermark,
        )
        table.add_row(
            "[bold]state size[/]",
            f"{self._state_bytes / 1e6:.1f} MB",
            "[bold]incidents[/]",
            str(self._incidents),
        )
        if self._bad or self._late:
            table.add_row(
                "[bold]bad rows[/]", f"{self._bad:,}", "[bold]late rows[/]", f"{self._late:,}"
            )
        if self._dead:
            table.add_row("[bold]dead letters[/]", f"{self._dead:,}", "", "")
        return table

    def state_text(self) -> str:
        """Return the state, with its seconds while a worker is started, the state is restored or an
        epoch is replayed.
        """
        if self._replay:
            seconds = time.monotonic() - self._replay_began_at
            return f"{self._state}, {self._replay} ({seconds:.0f} s)"
        if self._state == StateName.RUNNING:
            return self._state
        return f"{self._state} ({time.monotonic() - self._state_began_at:.0f} s)"

    def __rich__(self) -> Table:
        return self.table()


def replay_text(event: Event) -> str:
    """Format the progress of a replay."""
    epoch, first, last = event["epoch"], event["first"], event["last"]
    among = f" of {first}-{last}" if first != last else ""
    return f"replaying epoch {epoch}{among}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


class ProgressView:
    """Progress on standard error: live on a terminal, plain lines elsewhere."""

    def __init__(self, job: str) -> None:
        self._progress = ProgressLine(job)
        self._live = (
            Live(self._progress, console=ERROR_CONSOLE, refresh_per_second=5)
            if sys.stderr.isatty()
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, event: Event) -> None:
        self._progress.note(event)
        text = describe(event)
        if text is None:
            return
        if self._live is None:
            print(f"{event['at']} {text}", file=sys.stderr, flush=True)
        elif event["event"] in _SHOWN_ABOVE:
            self._live.console.print(f"{event['at']} {_plain(text)}")


def describe(event: Event) -> str | None:
    """Format an event as a line; return None for events that are only for programs."""
    match event["event"]:
        case "state":
            return f"{event['from']} -> {event['to']}: {event['reason']}"
        case "worker_started":
            return f"worker started (pid {event['pid']}, generation {event['generation']})"
        case "replay_started":
            return f"{replay_text(event)}: {_number(event['rows']):,.0f} rows"
        case "checkpoint":
            return (
                f"epoch {event['epoch']}: {_number(event['rows']):,.0f} rows in, {_number(event['rows_out']):,.0f} out, "
                f"{_number(event['duration']):.2f} s, watermark {watermark_text(event['watermark'])}"
            )
        case "failure":
            return f"failure ({event['kind']}, {event['domain']}): {event['error']}"
        case "fallback" | "checkpoint_damaged":
            reasons = event["reasons"]
            shown = "; ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)
            return f"checkpoint of epoch {event['epoch']} cannot be used: {shown}"
        case "jars":
            return str(event["message"])
        case "owner_watched":
            return (
                f"{event['owner']}; waiting up to {event['at_most']} s to see whether it is alive"
            )
        case "incident" if event["resumed_at"] is not None:
            return f"recovered: restored epoch {event['restored_epoch']}, {event['replayed_rows']} rows replayed"
    return None


def json_lines_writer(file: IO[str]) -> Callable[[Event], None]:
    """Return a function that writes each event as a line of JSON and flushes it."""

    def write(event: Event) -> None:
        file.write(json.dumps(event) + "\n")
        file.flush()

    return write
