"""Shows that a command is at work: a line with the seconds on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from resurgence.cli.output.console import ERROR_CONSOLE

_PLAIN_EVERY_SECONDS = 10.0


class Wait:
    """A wait that the user sees."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._printed = time.monotonic()
        self._done = 0
        self._total: int | None = None
        self._spinner = Spinner("dots")
        self._is_live = sys.stderr.isatty()

    def now(self, what: str) -> None:
        """Say what is done now."""
        self._what = what
        if not self._is_live:
            print(what, file=sys.stderr, flush=True)

    def step(self, done: int, total: int | None = None) -> None:
        """Say how much is done, of how much if that is known."""
        self._done, self._total = done, total
        at = time.monotonic()
        if not self._is_live and at - self._printed >= _PLAIN_EVERY_SECONDS:
            self._printed = at
            print(self.text(), file=sys.stderr, flush=True)

    def text(self) -> str:
        """Return the state of the wait as a line."""
        of = f" of {self._total:,}" if self._total is not None else ""
        count = f", {self._done:,}{of}" if self._done or self._total is not None else ""
        return f"{self._what}{count} ({time.monotonic() - self._began:.0f} s)"

    def __rich__(self) -> Table:
        row = Table.grid(padding=(0, 1))
        cells: list[object] = [self._spinner, self.text()]
        if self._total:
            cells.append(ProgressBar(self._total, self._done, width=30))
        row.add_row(*cells)  # type: ignore[arg-type]
        return row


@contextmanager
def waiting(what: str) -> Iterator[Wait]:
    """Show a wait on standard error while the block runs. Nothing of it stays on a terminal."""
    wait = Wait(what)
    if not sys.stderr.isatty():
        yield wait
        return
    with Live(wait, console=ERROR_CONSOLE, refresh_per_second=8, transient=True):
        yield wait
