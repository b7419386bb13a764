"""Collapsing of repeated log lines, so that a lasting fault does not fill the log with one message.

The first of several identical consecutive lines of a logger is written at once. Repetitions within
`WINDOW` are counted. The count is written before the logger's next different line, when the line
repeats after the window has ended, or when the log is closed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import timedelta

WINDOW = timedelta(minutes=1)


@dataclass
class _Run:
    line: Hashable
    began_at: float
    repeats: int = 0


@dataclass(frozen=True)
class LineVerdict:
    """What to write for a line."""

    is_written: bool
    repeats: int
    """Suppressed repetitions of the previous line; to be written first."""


class Repeats:
    """Counter of identical consecutive lines of each logger. `now` is in monotonic seconds."""

    def __init__(self, window: timedelta = WINDOW) -> None:
        self._window = window.total_seconds()
        self._runs: dict[str, _Run] = {}

    def note(self, logger: str, line: Hashable, now: float) -> LineVerdict:
        """Decide what to write for the next line of a logger."""
        run = self._runs.get(logger)
        if run is not None and run.line == line and now - run.began_at < self._window:
            run.repeats += 1
            return LineVerdict(is_written=False, repeats=0)
        self._runs[logger] = _Run(line, now)
        return LineVerdict(is_written=True, repeats=run.repeats if run else 0)

    def end(self) -> dict[str, int]:
        """Reset, and return how often the last line of each logger was suppressed."""
        counts = {logger: run.repeats for logger, run in self._runs.items() if run.repeats}
        self._runs.clear()
        return counts


class CollapsingHandler(logging.Handler):
    """A handler that forwards records to another one, without repetitions."""

    def __init__(self, target: logging.Handler, window: timedelta = WINDOW) -> None:
        super().__init__(target.level)
        self._target = target
        self._repeats = Repeats(window)
        self._last: dict[str, logging.LogRecord] = {}

    def emit(self, record: logging.LogRecord) -> None:
        cause = repr(record.exc_info[1]) if record.exc_info else ""
        line = (record.levelno, record.getMessage(), cause)
        verdict = self._repeats.note(record.name, line, time.monotonic())
        if verdict.repeats:
            self._write_count(record.name, verdict.repeats)
        if verdict.is_written:
            self._last[record.name] = record
            self._target.handle(record)

    def close(self) -> None:
        """Write the remaining counts."""
        self.acquire()
        try:
            for logger, repeats in self._repeats.end().items():
                self._write_count(logger, repeats)
        finally:
            self.release()
        self._target.flush()
        super().close()

    def _write_count(self, logger: str, repeats: int) -> None:
        last = self._last[logger]
        times = "once" if repeats == 1 else f"{repeats} times"
        self._target.handle(
            logging.makeLogRecord(
                {
                    "name": logger,
                    "levelno": last.levelno,
                    "levelname": last.levelname,
                    "msg": f"{last.getMessage()} ... repeated {times}",
                }
            )
        )


@contextlib.contextmanager
def collapsing_log() -> Iterator[None]:
    """Collapse what this process logs on standard error, unless logging is already configured."""
    # Unlike a StreamHandler, lastResort looks up sys.stderr for each line: the progress view
    # replaces it.
    target = logging.lastResort or logging.StreamHandler()
    handler = CollapsingHandler(target)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
