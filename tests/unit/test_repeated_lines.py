"""Log lines that repeat are written once, with a count."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from resurgence.repeated_lines import CollapsingHandler, LineVerdict, Repeats

WRITTEN, COUNTED = LineVerdict(is_written=True, repeats=0), LineVerdict(is_written=False, repeats=0)


def test_identical_consecutive_lines_are_counted_and_the_next_one_has_the_count() -> None:
    repeats = Repeats(timedelta(seconds=60))
    assert [repeats.note("a", "x", now) for now in (0, 5, 59)] == [WRITTEN, COUNTED, COUNTED]
    assert repeats.note("a", "y", 59.5) == LineVerdict(is_written=True, repeats=2)
    assert repeats.note("a", "x", 59.6) == WRITTEN, "it did not follow its like"


def test_a_repeated_line_is_written_once_per_window() -> None:
    repeats = Repeats(timedelta(seconds=60))
    verdicts = {now: repeats.note("a", "x", now) for now in range(0, 125, 5)}
    written = {now: each.repeats for now, each in verdicts.items() if each.is_written}
    assert written == {0: 0, 60: 11, 120: 11}


def test_loggers_do_not_interrupt_each_other() -> None:
    repeats = Repeats()
    assert [repeats.note(name, "x", 0) for name in "abab"] == [WRITTEN, WRITTEN, COUNTED, COUNTED]
    repeats.note("c", "x", 0)
    assert repeats.end() == {"a": 1, "b": 1}
    assert repeats.end() == {}


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.levelname, record.getMessage()))


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(lines: Lines) -> Iterator[logging.Logger]:
    logger, handler = logging.getLogger("tests.repeated"), CollapsingHandler(lines)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)
    handler.close()


def test_the_log_has_a_line_once_and_its_count(log: logging.Logger, lines: Lines) -> None:
    for _ in range(4):
        log.warning("the database %s fails", "d")
    log.error("the database d fails")
    log.error("the database d fails")
    log.error("other")
    assert lines.seen == [
        ("WARNING", "the database d fails"),
        ("WARNING", "the database d fails ... repeated 3 times"),
        ("ERROR", "the database d fails"),
        ("ERROR", "the database d fails ... repeated once"),
        ("ERROR", "other"),
    ]


def test_the_same_words_about_another_exception_are_another_line(
    log: logging.Logger, lines: Lines
) -> None:
    for error in (ValueError("a"), ValueError("b")):
        log.error("failed", exc_info=error)
    assert len(lines.seen) == 2


def test_a_process_that_ends_writes_the_last_count() -> None:
    script = """
import logging
from resurgence.repeated_lines import collapsing_log
with collapsing_log():
    for _ in range(3):
        logging.getLogger("a").warning("disk is full %s", "%d")
        logging.getLogger("a").info("not shown")
logging.getLogger("a").warning("after")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "disk is full %d\ndisk is full %d ... repeated 2 times\nafter\n"
